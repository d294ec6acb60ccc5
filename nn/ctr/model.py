"""Click-through rate models: DLRM, and DCNv2 with cross layers instead of dot products."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from nn.ctr.config import CTRConfig
from nn.embedding.embedding import Embedding
from nn.embedding.layer import DistributedEmbedding
from nn.embedding.planner import Plan
from nn.embedding.weights import TableUniform
from nn.embedding_model import EmbeddingModel
from nn.layers.cross import CrossNetwork
from nn.layers.dense import MLP
from nn.layers.interaction import DotInteraction
from runtime.cluster.distributed import World


class CTRModel(EmbeddingModel):
    """Bottom MLP, embeddings, interaction, top MLP.

    Args:
        config: sizes.
        seed: seed of the initial weights.
        dtype: Keras dtype policy: "float32", "mixed_bfloat16" or "mixed_float16".
        embedding_trainable: whether tables get gradients.
        embedding_zeros: start tables at zero.
        world: the ranks among which tables are spread.
        plan: who holds which table; None: the default one of `nn.embedding.planner.plan`.
        model_parallel_input: a call gets the ids of this rank's own tables, of all ranks' samples.
        exchange_dtype: dtype of embedding vectors between ranks; None: the compute dtype.
        merlin: options of Merlin's own `DistributedEmbedding`, which then has the tables; None:
            ours.
    """

    def __init__(
        self,
        config: CTRConfig,
        *,
        seed: int = 0,
        dtype: str = "float32",
        embedding_trainable: bool = True,
        embedding_zeros: bool = False,
        world: World = World(),
        plan: Plan | None = None,
        model_parallel_input: bool = False,
        exchange_dtype: str | None = None,
        merlin: Mapping[str, Any] | None = None,
    ):
        super().__init__(name="ranking_model", dtype=dtype)
        self.config = config
        tables = [
            Embedding(
                rows,
                dim,
                embeddings_initializer="zeros" if embedding_zeros else TableUniform(seed, name),
                combiner="sum",
                name=name,
            )
            for name, rows, dim in zip(
                config.feature_names, config.cardinalities, config.embedding_dims, strict=True
            )
        ]
        common = {
            "dp_input": not model_parallel_input,
            "trainable": embedding_trainable,
            "dtype": dtype,
            "name": "embedding",
        }
        if merlin is not None:
            from nn.embedding.merlin_api.backend import MerlinEmbedding

            self.embedding = MerlinEmbedding(tables, merlin, **common)
        else:
            self.embedding = DistributedEmbedding(
                tables,
                strategy="auto",
                plan=plan,
                exchange_dtype=exchange_dtype,
                check_ids=False,  # the loader does
                world=world,
                **common,
            )
        self.bottom_mlp = (
            MLP(config.bottom_mlp_dims, seed=seed, name="bottom_mlp", dtype=dtype)
            if config.num_numerical
            else None
        )
        if config.interaction == "cross":
            self.interaction = CrossNetwork(
                config.num_cross_layers,
                config.cross_layer_projection_dim,
                seed=seed,
                name="cross",
                dtype=dtype,
            )
        else:
            self.interaction = DotInteraction(config.interaction, name="dot", dtype=dtype)
        self.top_mlp = MLP(
            config.top_mlp_dims, seed=seed, name="top_mlp", linear_output=True, dtype=dtype
        )
        self._make_weights()

    def _make_weights(self) -> None:
        """Runs one sample, so that every weight exists before the first step.

        Without the lookup, which would be collective.
        """
        self.embedding.build(None)
        width = sum(self.config.embedding_dims)
        self.logits(
            tf.zeros([1, self.config.num_numerical]), tf.zeros([1, width], self.compute_dtype)
        )

    def call(self, inputs: Sequence) -> tf.Tensor:
        """Scores samples; collective where the tables are spread over ranks.

        Args:
            inputs: (numerical [batch, num_numerical] float, ids: one [batch, hotness] integer
                tensor per categorical feature, or, where samples differ in their number of ids, a
                pair (values [sum of lengths], row splits int32 [batch + 1]); with
                `model_parallel_input` those of this rank's lookups and all ranks' samples). A
                sample without ids gets zeros.

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        numerical, ids = inputs
        embeddings = None
        if self.config.feature_names:
            embeddings = self.embedding(
                [_as_tensor(feature_ids) for feature_ids in ids], concatenate=True
            )
        return self.logits(numerical, embeddings)

    def logits(self, numerical: tf.Tensor, embeddings: tf.Tensor | None) -> tf.Tensor:
        """Scores rows whose ids were looked up before.

        Args:
            numerical: [batch, num_numerical] float.
            embeddings: [batch, sum of embedding_dims] in the compute dtype, those of the
                categorical features side by side; None in a model without tables.

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


def _as_tensor(ids) -> tf.Tensor | tf.RaggedTensor:
    """A feature's ids as embeddings take them, also of a pair (values, row splits)."""
    if isinstance(ids, tuple):
        return tf.RaggedTensor.from_row_splits(*ids, validate=False)
    return ids
