"""Sizes and tables of a model of neural collaborative filtering; no TensorFlow."""

from dataclasses import dataclass

NEUMF, GMF, MLP = "neumf", "gmf", "mlp"
MODEL_TYPES = (NEUMF, GMF, MLP)


@dataclass(frozen=True)
class NCFConfig:
    """Shape of a model of neural collaborative filtering (He et al., 2017).

    Attributes:
        model_type: "gmf" (a product of factors), "mlp", or "neumf", which has both.
        layers: Widths of the MLP's input (a user's and an item's vector) and of its hidden layers,
            at least one.
        dropout: Share of hidden units that a training step leaves out, in [0, 1).

    Raises:
        ValueError: An unknown model, or an invalid size.
    """

    model_type: str
    num_users: int
    num_items: int
    factors: int = 64
    layers: tuple[int, ...] = (256, 256, 128, 64)
    dropout: float = 0.5

    def __post_init__(self):
        if self.model_type not in MODEL_TYPES:
            raise ValueError(
                f"model_type is one of {', '.join(MODEL_TYPES)}, got {self.model_type!r}"
            )
        for name in ("num_users", "num_items", "factors"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if len(self.layers) < 2 or any(width < 1 for width in self.layers):
            raise ValueError(
                "layers are the width of the MLP's input and those of its hidden layers: at least "
                f"two numbers of at least 1, got {self.layers}"
            )
        if self.layers[0] % 2:
            raise ValueError(
                "layers[0], the width of the MLP's input, is shared by a user's and an item's "
                f"vector and must be even, got {self.layers[0]} in layers {self.layers}: use "
                f"{self.layers[0] - 1} or {self.layers[0] + 1}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

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
