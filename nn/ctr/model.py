"""Click-through rate models: DLRM, and DCNv2 with cross layers instead of dot products."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.weights import TableUniform

from nn.ctr.config import CTRConfig, embedding_tables
from nn.embedding_model import EmbeddingModel, ModelOptions
from nn.layers.cross import CrossNetwork
from nn.layers.dense import MLP
from nn.layers.interaction import DotInteraction


class CTRModel(EmbeddingModel):
    """Bottom MLP, embeddings, interaction, top MLP.

    Args:
        embedding_zeros: Whether tables start at zero.
        model_parallel_input: Whether a call gets the ids of this rank's own tables, of all ranks'
            samples.
        **options: See `ModelOptions`.
    """

    def __init__(
        self,
        config: CTRConfig,
        *,
        embedding_zeros: bool = False,
        model_parallel_input: bool = False,
        **options: Any,
    ):
        options = ModelOptions(**options)
        super().__init__(name="ranking_model", dtype=options.dtype)
        self.config = config
        common = {"seed": options.seed, "dtype": options.dtype}
        tables = [
            Embedding(
                rows,
                dim,
                "zeros" if embedding_zeros else TableUniform(options.seed, name),
                combiner="sum",
                name=name,
            )
            for name, rows, dim in embedding_tables(config)
        ]
        self.embedding = options.distribute(tables, dp_input=not model_parallel_input)
        self.bottom_mlp = None
        if config.num_numerical:
            self.bottom_mlp = MLP(config.bottom_mlp_dims, name="bottom_mlp", **common)
        if config.interaction == "cross":
            self.interaction = CrossNetwork(
                config.num_cross_layers, config.cross_layer_projection_dim, name="cross", **common
            )
        else:
            self.interaction = DotInteraction(config.interaction, dtype=options.dtype)
        self.top_mlp = MLP(config.top_mlp_dims, name="top_mlp", linear_output=True, **common)
        self._make_weights()

    def _make_weights(self) -> None:
        """Runs one sample without the lookup, which would be collective."""
        self.embedding.build(None)
        width = sum(self.config.embedding_dims)
        self.logits(
            tf.zeros([1, self.config.num_numerical]), tf.zeros([1, width], self.compute_dtype)
        )

    def call(self, inputs: Sequence) -> tf.Tensor:
        """Scores samples; collective.

        Args:
            inputs: (numerical [batch, num_numerical] float, ids: one [batch, hotness] integer
                tensor per categorical feature, or, where samples differ in their number of ids, a
                pair (values [sum of lengths], row splits int32 [batch + 1]); with
                `model_parallel_input` those of this rank's lookups and all ranks' samples).

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        numerical, ids = inputs
        embeddings = None
        if self.config.feature_names:
            tensors = [
                tf.RaggedTensor.from_row_splits(*pair, validate=False)
                if isinstance(pair, tuple)
                else pair
                for pair in ids
            ]
            embeddings = self.embedding(tensors, concatenate=True)
        return self.logits(numerical, embeddings)

    def logits(self, numerical: tf.Tensor, embeddings: tf.Tensor | None) -> tf.Tensor:
        """Scores samples whose ids were looked up before.

        Args:
            numerical: [batch, num_numerical] float.
            embeddings: [batch, sum of embedding_dims] in the compute dtype; None in a model without
                tables.

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        bottom = None
        if self.bottom_mlp is not None:
            bottom = self.bottom_mlp(tf.cast(numerical, self.compute_dtype))
        if self.config.interaction == "cross":
            parts = [part for part in (bottom, embeddings) if part is not None]
            crossed = self.interaction(tf.concat(parts, axis=1))
        elif not self.config.feature_names:
            crossed = bottom
        else:
            dim = self.config.embedding_dims[0]
            shape = [-1, len(self.config.feature_names), dim]
            crossed = self.interaction(tf.reshape(embeddings, shape), bottom)
        return tf.cast(self.top_mlp(crossed), tf.float32)
