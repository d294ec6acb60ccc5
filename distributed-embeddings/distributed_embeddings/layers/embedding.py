"""Keras layers that look rows of one table up, with the API of Merlin's distributed-embeddings."""

import tensorflow as tf

from distributed_embeddings.keras import keras
from distributed_embeddings.layers.lookup import look_up
from distributed_embeddings.optimizers.fused_steps import TableMark, mark_table

COMBINERS = (None, "sum", "mean")


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class Embedding(keras.layers.Layer):
    """One embedding table: ids in, rows or their sum or mean out.

    The drop-in for `Embedding` of NVIDIA Merlin's distributed-embeddings and, without combiner, for
    Keras' own. With a combiner the rows of the last dimension are reduced:

        dense ids [d1, ..., dn], n >= 2   ->  [d1, ..., dn-1, output_dim]
        ragged ids [batch, None]          ->  [batch, output_dim], zeros for a sample without ids
        sparse ids [batch, any]           ->  the same; columns do not matter

    Without one, dense ids of any shape give [d1, ..., dn, output_dim], ragged ids [batch, None] a
    ragged [batch, None, output_dim].

    Rows are combined in float32 and cast to the compute dtype afterwards. An id not in [0,
    input_dim) raises InvalidArgumentError on a CPU; on a GPU its row is zeros, and no row learns
    from it.

    Args:
        input_dim: Rows of the table, the largest id + 1.
        output_dim: Width of a row.
        embeddings_initializer: Keras initializer; it runs on the CPU, so that a device never holds
            the table twice.
        embeddings_regularizer: Keras regularizer of the table; it reads all of it, every step.
        activity_regularizer: Keras regularizer of the output.
        embeddings_constraint: Keras constraint of the table.
        combiner: None, "sum" or "mean".
        use_custom_kernel: Whether rows are looked up and combined by the operations of the package
            distributed-embeddings-kernels, where it is installed.
        **kwargs: Arguments of `keras.layers.Layer`. `dtype` is the table's, or a mixed policy.

    Raises:
        ValueError: Sizes that are not positive, an unknown combiner, ids of a rank that the
            combiner cannot reduce, nested ragged ids, or sparse ids without combiner.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        embeddings_initializer="uniform",
        embeddings_regularizer=None,
        activity_regularizer=None,
        embeddings_constraint=None,
        combiner=None,
        use_custom_kernel=True,
        **kwargs,
    ):
        if input_dim <= 0 or output_dim <= 0:
            raise ValueError(
                f"input_dim and output_dim must be positive, got {input_dim} and {output_dim}"
            )
        if combiner not in COMBINERS:
            raise ValueError(f"combiner: expected None, 'sum' or 'mean', got {combiner!r}")
        if "input_shape" not in kwargs and "batch_input_shape" not in kwargs:
            kwargs["input_shape"] = (None,)  # a Sequential model that starts with it is built
        kwargs["autocast"] = False  # ids stay what they are
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        self.combiner = combiner
        self.use_custom_kernel = use_custom_kernel

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self._initial_table,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            experimental_autocast=False,
        )
        mark_table(self.embeddings, TableMark(self.use_custom_kernel))
        self.built = True

    def _initial_table(self, shape, dtype=None, **kwargs):
        with tf.device("CPU:0"):
            return self.embeddings_initializer(shape, dtype=dtype, **kwargs)

    def compute_output_shape(self, input_shape):
        shape = tf.TensorShape(input_shape)
        kept = shape if self.combiner is None else shape[:-1]
        return kept + [self.output_dim]

    def call(self, inputs):
        """Looks up ids: integers, or floats with integer values."""
        rank = inputs.shape.rank
        is_dense = not isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor))
        if self.combiner is not None and is_dense and rank is not None and rank < 2:
            raise ValueError(
                f"{self.name}: ids of shape {inputs.shape} with combiner {self.combiner!r}: is "
                "that one sample, or one id a sample? Give [1, ids] or [batch, 1]"
            )
        dtype = tf.as_dtype(self.compute_dtype)
        return look_up(
            self.embeddings, inputs, self.combiner, dtype, self.name, self.use_custom_kernel
        )

    def get_config(self):
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self.activity_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
            "combiner": self.combiner,
            "use_custom_kernel": self.use_custom_kernel,
        }

    @classmethod
    def from_config(cls, config):
        """Creates a layer from its own config, or from that of Keras' `Embedding`.

        `combiner` and `use_custom_kernel` may be missing, as in configs of older versions.

        Of the latter, `input_length` has no effect, as in Keras on tensors.

        Raises:
            ValueError: `mask_zero` is True.
        """
        config = dict(config)
        config.pop("input_length", None)
        if config.pop("mask_zero", False):
            refuse_mask(config.get("name", cls.__name__))
        return super().from_config(config)


def refuse_mask(name: str) -> None:
    """Raises ValueError for `mask_zero=True` of a layer."""
    raise ValueError(
        f"{name}: expected mask_zero=False, got mask_zero=True: id 0 is looked up like any other "
        "and the outputs have no mask. Remove it, and pass `tf.not_equal(ids, 0)` as the mask of "
        "the next layer; for a sum or mean, use ragged ids without the zeros"
    )
