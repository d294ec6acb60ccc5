"""Click-through rate models: DLRM, and DCNv2 with cross layers instead of dot products."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.weights import TableUniform
from distributed_embeddings.seeds import derive_seed

from nn.ctr.sizes import CTRConfig, embedding_tables
from nn.embedding_model import EmbeddingModel, ModelOptions, StatefulDropoutModel
from nn.layers.cross import CrossNetwork
from nn.layers.dropout import DropoutPlace
from nn.layers.fully_connected import MLP
from nn.layers.interaction import DotInteraction
from nn.layers.piecewise_linear import PiecewiseLinear
from runtime.checkpoint.weight import VariableWeight, Weight


class CTRModel(StatefulDropoutModel):
    """Bottom MLP, embeddings, interaction, top MLP; optional parts are those of `CTRConfig`.

    Args:
        edges: Edges of the bins of each numerical feature, see `PiecewiseLinear`.
        embedding_zeros: Whether tables start at zero.
        model_parallel_input: Whether a call gets the ids of this rank's own tables, of all ranks'
            samples.
        **options: See `ModelOptions`.
    """

    def __init__(
        self,
        config: CTRConfig,
        *,
        edges: Sequence[Any] | None = None,
        embedding_zeros: bool = False,
        model_parallel_input: bool = False,
        **options: Any,
    ):
        options = ModelOptions(**options)
        super().__init__(name="ranking_model", dtype=options.dtype, world=options.world)
        self.config = config
        common = {"seed": options.seed, "dtype": options.dtype}
        tables = [
            Embedding(
                rows,
                dim,
                "zeros"
                if embedding_zeros
                else TableUniform(options.seed, name, int(config.is_wide)),
                combiner="sum",
                name=name,
            )
            for name, rows, dim in embedding_tables(config)
        ]
        self.embedding = options.distribute(tables, dp_input=not model_parallel_input)
        self.numerical_embedding = self.linear = self.bottom_mlp = self.constant = None
        if config.num_numerical:
            self._add_numerical_layers(edges, common)
        if config.has_bottom_mlp:
            self.bottom_mlp = MLP(config.bottom_mlp_dims, name="bottom_mlp", **common)
        if config.has_constant:
            seed = derive_seed(options.seed, "constant")
            normal = keras.initializers.RandomNormal(stddev=1.0, seed=seed)
            self.constant = self.add_weight(
                name="constant", shape=[config.embedding_dims[0]], initializer=normal
            )
        if config.interaction == "cross":
            self.interaction = CrossNetwork(
                config.num_cross_layers, config.cross_layer_projection_dim, name="cross", **common
            )
        else:
            self.interaction = DotInteraction(config.interaction, dtype=options.dtype)
        if config.dropout_rate:
            common["dropout"] = config.dropout_rate, derive_seed(options.seed, "dropout", 0)
        self.top_mlp = MLP(config.top_mlp_dims, name="top_mlp", linear_output=True, **common)
        self._make_weights()

    def _add_numerical_layers(self, edges, common: dict[str, Any]) -> None:
        """Adds the vectors of numerical features, or their linear term."""
        config = self.config
        if config.num_bins:
            self.numerical_embedding = PiecewiseLinear(
                *(config.num_bins, config.number_dim + config.is_wide),
                num_zeros=int(config.is_wide),
                edges=edges,
                name="numerical_embedding",
                **common,
            )
        elif config.is_wide:
            self.linear = keras.layers.Dense(
                1, use_bias=False, kernel_initializer="zeros", name="linear", dtype=common["dtype"]
            )

    def _make_weights(self) -> None:
        """Runs one sample without the lookup, which would be collective."""
        self.embedding.build(None)
        width = sum(dim for _, _, dim in embedding_tables(self.config))
        self.logits(
            tf.zeros([1, self.config.num_numerical]), tf.zeros([1, width], self.compute_dtype)
        )

    def weights_to_save(self) -> list[Weight]:
        weights = super().weights_to_save()
        if self.numerical_embedding is not None:
            edges = self.numerical_embedding.edges
            weights.insert(0, VariableWeight(f"dense/{self.name_of(edges)}", edges))
        return weights

    def optimizer_weights(self, optimizers) -> list[Weight]:
        if self.config.dropout_rate:
            return super().optimizer_weights(optimizers)
        return EmbeddingModel.optimizer_weights(self, optimizers)

    def call(
        self, inputs: Sequence, training: bool = False, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Scores samples; collective.

        Args:
            inputs: (numerical [batch, num_numerical] float, ids: one [batch, hotness] integer
                tensor per categorical feature, or, where samples differ in their number of ids, a
                pair (values [sum of lengths], row splits int32 [batch + 1]); with
                `model_parallel_input` those of this rank's lookups and all ranks' samples).
            training: Whether to drop units.
            weights: Those of the samples in training, [batch, 1], see `first_sample`.

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
        place = None
        if training and self.config.dropout_rate:
            place = self.next_place(tf.shape(numerical)[0], weights)
        return self.logits(numerical, embeddings, place)

    def logits(
        self,
        numerical: tf.Tensor,
        embeddings: tf.Tensor | None,
        place: DropoutPlace | None = None,
    ) -> tf.Tensor:
        """Scores samples whose ids were looked up before.

        Args:
            numerical: [batch, num_numerical] float.
            embeddings: [batch, sum of the tables' columns] in the compute dtype; None in a model
                without tables.
            place: That of `Dropout`; None: nothing is dropped.

        Returns:
            Logits of a click, [batch, 1] float32.
        """
        vectors, linear = self._vectors(numerical, embeddings)
        bottom = None
        if self.bottom_mlp is not None:
            bottom = self.bottom_mlp(tf.cast(numerical, self.compute_dtype))
        if self.constant is not None:
            constant = tf.cast(self.constant, self.compute_dtype)
            bottom = tf.broadcast_to(constant, [tf.shape(vectors)[0], constant.shape[0]])
        if self.config.interaction == "cross":
            parts = [part for part in (bottom, vectors) if part is not None]
            crossed = self.interaction(tf.concat(parts, axis=1))
        elif not (dims := self.config.vector_dims):
            crossed = bottom
        else:
            crossed = self.interaction(tf.reshape(vectors, [-1, len(dims), dims[0]]), bottom)
        logits = tf.cast(self.top_mlp(crossed, place), tf.float32)
        return logits if linear is None else logits + linear

    def _vectors(
        self, numerical: tf.Tensor, embeddings: tf.Tensor | None
    ) -> tuple[tf.Tensor | None, tf.Tensor | None]:
        """Returns the vectors [batch, sum of vector_dims], and the linear term [batch, 1] float32;
        each may be None."""
        config, terms, vectors = self.config, [], embeddings
        if self.numerical_embedding is not None:
            numbers = self.numerical_embedding(numerical)
            numbers = tf.reshape(numbers, [-1, numbers.shape[1] * numbers.shape[2]])
            vectors = numbers if vectors is None else tf.concat([numbers, vectors], axis=1)
        if self.linear is not None:
            terms.append(self.linear(tf.cast(numerical, self.compute_dtype)))
        if config.is_wide and config.vector_dims:
            vectors, of_vectors = _split_wide(vectors, config.vector_dims)
            terms.append(of_vectors)
        if not terms:
            return vectors, None
        terms = tf.cast(tf.concat(terms, axis=1), tf.float32)
        return vectors, tf.reduce_sum(terms, axis=1, keepdims=True)


def _split_wide(vectors: tf.Tensor, dims: Sequence[int]) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits [batch, sum of dims + 1 each] into vectors [batch, sum of dims] and the last column of
    each, its linear term [batch, number of dims]."""
    if len(set(dims)) > 1:
        parts = tf.split(vectors, [size for dim in dims for size in (dim, 1)], axis=1)
        return tf.concat(parts[::2], axis=1), tf.concat(parts[1::2], axis=1)
    # Two outputs instead of one per feature: half the time, with the gradient too.
    number, dim = len(dims), dims[0]
    parts = tf.split(tf.reshape(vectors, [-1, number, dim + 1]), [dim, 1], axis=2)
    return tf.reshape(parts[0], [-1, number * dim]), tf.reshape(parts[1], [-1, number])
