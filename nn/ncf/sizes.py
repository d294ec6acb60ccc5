"""Sizes and tables of a model of neural collaborative filtering; no TensorFlow."""

from dataclasses import dataclass

NEUMF, GMF, MLP = "neumf", "gmf", "mlp"


@dataclass(frozen=True)
class NCFConfig:
    """Shape of a model of neural collaborative filtering (He et al., 2017).

    Attributes:
        model_type: "gmf" (a product of factors), "mlp", or "neumf", which has both.
        layers: Widths of the MLP's input (a user's and an item's vector), even, and of its hidden
            layers, at least one.
        dropout: Share of hidden units that a training step leaves out, in [0, 1).
    """

    model_type: str
    num_users: int
    num_items: int
    factors: int = 64
    layers: tuple[int, ...] = (256, 256, 128, 64)
    dropout: float = 0.5

    @property
    def has_gmf(self) -> bool:
        return self.model_type in (NEUMF, GMF)

    @property
    def has_mlp(self) -> bool:
        return self.model_type in (NEUMF, MLP)


def embedding_tables(config: NCFConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, columns) of each table: the user's before the item's, factors first."""
    parts = [("mf", config.factors)] if config.has_gmf else []
    parts += [("mlp", config.layers[0] // 2)] if config.has_mlp else []
    rows_of = {"user": config.num_users, "item": config.num_items}
    return [
        (f"{part}_{entity}", rows, dim) for part, dim in parts for entity, rows in rows_of.items()
    ]
