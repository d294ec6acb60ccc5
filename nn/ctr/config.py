"""Shape of a ranking model, DLRM or DCNv2; no TensorFlow."""

import itertools
from dataclasses import dataclass
from typing import NamedTuple


class DenseLayer(NamedTuple):
    """Shape of a dense layer: [batch, inputs] times [inputs, outputs]."""

    inputs: int
    outputs: int
    has_bias: bool = True
    is_first: bool = False  # its input needs no gradient

    @property
    def num_weights(self) -> int:
        return (self.inputs + self.has_bias) * self.outputs


@dataclass(frozen=True)
class CTRConfig:
    """Shape of a ranking model.

    Attributes:
        feature_names: names of the categorical features, one table each.
        embedding_dims: columns of each table; all equal, and equal to the last bottom layer, for
            dot interaction.
        num_numerical: numerical features; with 0 there is no bottom MLP.
        top_mlp_dims: layer sizes of the top MLP; the last one is 1.
        interaction: "cross" or an implementation of `nn.layers.interaction.DotInteraction`.
        cross_layer_projection_dim: rank of the cross layers ("cross").

    Raises:
        ValueError: sizes that do not fit together.
    """

    feature_names: tuple[str, ...]
    cardinalities: tuple[int, ...]
    embedding_dims: tuple[int, ...]
    num_numerical: int
    bottom_mlp_dims: tuple[int, ...]
    top_mlp_dims: tuple[int, ...]
    interaction: str = "dot_tensorflow"
    num_cross_layers: int = 3
    cross_layer_projection_dim: int = 512

    def __post_init__(self) -> None:
        if not self.feature_names and not self.num_numerical:
            raise ValueError("the data set has neither numerical nor categorical features")
        if self.num_numerical and not self.bottom_mlp_dims:
            raise ValueError(
                "--bottom_mlp_dims is empty, but the data set has "
                f"{self.num_numerical} numerical features"
            )
        if self.interaction == "cross":
            return
        if len(self.feature_names) + bool(self.num_numerical) < 2 and self.feature_names:
            raise ValueError(
                "the dot interaction needs two features to multiply, the data set has one "
                f"categorical feature ({self.feature_names[0]}) and no numerical features: use "
                "--interaction cross"
            )
        dims = set(self.embedding_dims)
        if len(dims) > 1:
            raise ValueError(
                "the dot interaction multiplies embeddings with each other and needs one "
                f"--embedding_dim for all tables, got {sorted(dims)}: give one integer, or use "
                "--interaction cross"
            )
        if dims and self.num_numerical and self.bottom_mlp_dims[-1] not in dims:
            raise ValueError(
                f"--bottom_mlp_dims ends with {self.bottom_mlp_dims[-1]}, but --embedding_dim is "
                f"{dims.pop()}: the dot interaction needs both to be equal"
            )

    @property
    def width(self) -> int:
        """Width of the input of cross layers, and otherwise of that of the top MLP."""
        bottom = self.bottom_mlp_dims if self.num_numerical else ()
        width = bottom[-1] if bottom else 0
        if self.interaction == "cross":
            return width + sum(self.embedding_dims)
        if self.feature_names:
            num_vectors = len(self.feature_names) + bool(bottom)
            width += num_vectors * (num_vectors - 1) // 2
            width = -(-width // 8) * 8  # padded as in nn/layers/interaction.py
        return width

    @property
    def mlp_layers(self) -> list[DenseLayer]:
        """Layers of the bottom and of the top MLP."""
        bottom = (self.num_numerical, *self.bottom_mlp_dims) if self.num_numerical else ()
        layers = [DenseLayer(n, m) for n, m in itertools.pairwise(bottom)]
        if layers:
            layers[0] = layers[0]._replace(is_first=True)
        top = (self.width, *self.top_mlp_dims)
        return layers + [DenseLayer(n, m) for n, m in itertools.pairwise(top)]

    @property
    def cross_layers(self) -> list[DenseLayer]:
        """Both matrices of each cross layer; empty with a dot interaction."""
        if self.interaction != "cross":
            return []
        width, rank = self.width, self.cross_layer_projection_dim
        return [DenseLayer(width, rank, False), DenseLayer(rank, width)] * self.num_cross_layers

    @property
    def num_dense_weights(self) -> int:
        """Number of weights that are not in tables."""
        return sum(layer.num_weights for layer in self.mlp_layers + self.cross_layers)


def embedding_tables(config: CTRConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, columns) of each table."""
    names, rows, columns = config.feature_names, config.cardinalities, config.embedding_dims
    return list(zip(names, rows, columns, strict=True))
