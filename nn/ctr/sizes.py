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
        num_numerical: numerical features.
        top_mlp_dims: layer sizes of the top MLP; the last one is 1.
        interaction: "cross" or an implementation of `nn.layers.interaction.DotInteraction`.
        cross_layer_projection_dim: rank of the cross layers ("cross").
        num_bins: largest number of bins of a numerical feature, each of which becomes a vector; 0:
            the features stay numbers.
        is_wide: whether the logit has a linear term of all features. Each table has one more column
            for it, the last one.
        dropout_rate: share of the hidden units of the top MLP that a training step leaves out, in
            [0, 1).
        variant: "paper", or "nvidia": dot products without numerical features have no trained
            constant vector among their factors.

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
    num_bins: int = 0
    is_wide: bool = False
    dropout_rate: float = 0.0
    variant: str = "paper"

    def __post_init__(self) -> None:
        if not self.feature_names and not self.num_numerical:
            raise ValueError("the data set has neither numerical nor categorical features")
        reads_bottom_mlp_dims = self.has_bottom_mlp or not self.feature_names
        if self.num_numerical and not self.bottom_mlp_dims and reads_bottom_mlp_dims:
            raise ValueError(
                "--bottom_mlp_dims is empty, but the data set has "
                f"{self.num_numerical} numerical features"
            )
        if self.interaction == "cross":
            return
        if len(self.feature_names) == 1 and self.num_vectors < 2:
            raise ValueError(
                "the dot interaction needs two features to multiply, the data set has one "
                f"categorical feature ({self.feature_names[0]}) and no numerical features: use "
                "--interaction cross or --variant paper"
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
    def has_bottom_mlp(self) -> bool:
        """True if a bottom MLP reads the numerical features."""
        return self.num_numerical > 0 and not (self.interaction == "cross" and self.num_bins)

    @property
    def has_constant(self) -> bool:
        """True if a trained constant vector is in place of the bottom MLP's output.

        Without it, dot products of embeddings have no terms of a single feature.
        """
        is_dot = self.interaction != "cross"
        return is_dot and not self.num_numerical and self.variant != "nvidia"

    @property
    def number_dim(self) -> int:
        """Width of the vector of a numerical feature."""
        return max(self.embedding_dims) if self.embedding_dims else self.bottom_mlp_dims[-1]

    @property
    def vector_dims(self) -> tuple[int, ...]:
        """Width of each vector: those of the numerical features, if any, and of the tables."""
        numbers = (self.number_dim,) * self.num_numerical if self.num_bins else ()
        return numbers + self.embedding_dims

    @property
    def num_vectors(self) -> int:
        """Vectors that the dot interaction multiplies."""
        return len(self.vector_dims) + (self.has_bottom_mlp or self.has_constant)

    @property
    def width(self) -> int:
        """Width of the input of cross layers, and otherwise of that of the top MLP."""
        width = self.bottom_mlp_dims[-1] if self.has_bottom_mlp else 0
        if self.interaction == "cross":
            return width + sum(self.vector_dims)
        if self.vector_dims:
            width = width or (self.embedding_dims[0] if self.has_constant else 0)
            width += self.num_vectors * (self.num_vectors - 1) // 2
            width = -(-width // 8) * 8  # padded as in nn/layers/interaction.py
        return width

    @property
    def mlp_layers(self) -> list[DenseLayer]:
        """Layers of the bottom and of the top MLP."""
        bottom = (self.num_numerical, *self.bottom_mlp_dims) if self.has_bottom_mlp else ()
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
        """Number of trained weights that are not in tables."""
        weights = sum(layer.num_weights for layer in self.mlp_layers + self.cross_layers)
        if self.num_bins:
            dim = self.number_dim
            weights += self.num_numerical * (self.num_bins * (dim + self.is_wide) + dim)
        elif self.is_wide:
            weights += self.num_numerical
        if self.has_constant:
            weights += self.embedding_dims[0]
        return weights

    def dense_step_bytes(self, batch_size: float) -> float:
        """Returns the memory for the dense weights and for large activations of a step.

        A dense weight has a gradient and at most two numbers of optimizer state. A cross layer
        keeps its output and a product of the same width for the backward pass, a number with bins
        its encoding and its vector. All are float32.
        """
        activations = 0
        if self.interaction == "cross":
            activations += 2 * self.num_cross_layers * sum(self.vector_dims)
        if self.num_bins:
            activations += 2 * self.num_numerical * (self.num_bins + self.number_dim)
        return 4 * (4 * self.num_dense_weights + activations * batch_size)


def embedding_tables(config: CTRConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, columns) of each table.

    With `is_wide` the last column is a linear term, and the others are the vector.
    """
    names, rows = config.feature_names, config.cardinalities
    columns = [dim + config.is_wide for dim in config.embedding_dims]
    return list(zip(names, rows, columns, strict=True))
