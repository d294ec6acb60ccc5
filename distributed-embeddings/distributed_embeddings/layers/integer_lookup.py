"""A vocabulary that grows: integer keys in, indices in order of first occurrence out."""

import functools
import logging

import tensorflow as tf

from distributed_embeddings.keras import keras

OUT_OF_VOCABULARY = -1  # the key of index 0

_log = logging.getLogger(__name__)


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class IntegerLookup(keras.layers.Layer):
    """Maps integer keys to 1, 2, ... in the order in which they are first seen.

    Every call, in evaluation too, gives an index to keys that it has not seen, until `max_tokens`
    are known; the keys beyond, and the key -1, are 0. A table for its output needs `max_tokens + 1`
    rows.

    The vocabulary is in variables, which are saved, loaded and broadcast as a model's weights are;
    a hash table, rebuilt after they were loaded, answers the calls. Ranks that see different keys
    grow different vocabularies: prepare the data with one, or fill it before training and broadcast
    it.

    Args:
        max_tokens: keys to know. Memory: 8 bytes each, and about 40 more once it is known.
        use_gpu: accepted and logged: TensorFlow has hash tables in host memory only.

    Attributes:
        count: int64 [max_tokens + 1], how often each index was returned.

    Raises:
        ValueError: `max_tokens` below 1, or keys that are not integers.
    """

    def __init__(self, max_tokens, use_gpu=True, **kwargs):
        super().__init__(**kwargs)
        self.max_tokens = int(max_tokens)
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        self.capacity = self.max_tokens + 1
        self.use_gpu = use_gpu
        if use_gpu:
            _warn_once()
        with tf.device("CPU:0"):
            self.vocabulary = self._add_state("vocabulary", [self.capacity], OUT_OF_VOCABULARY)
            self.size = self._add_state("size", [], 1)
            self.fingerprint = self._add_state("fingerprint", [], 0)
            self.count = self._add_state("count", [self.capacity], 0)
            # Key -1 has no entry of its own; under it the table keeps the fingerprint of the
            # vocabulary that it was built from.
            self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

    def _add_state(self, name, shape, value) -> tf.Variable:
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=tf.int64,
            initializer=keras.initializers.Constant(value),
            trainable=False,
        )

    def call(self, inputs):
        """Returns indices in [0, max_tokens], int64, of dense, ragged or sparse integer keys."""
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._look_up(inputs.flat_values))
        if isinstance(inputs, tf.SparseTensor):
            return tf.SparseTensor(inputs.indices, self._look_up(inputs.values), inputs.dense_shape)
        return self._look_up(inputs)

    def _look_up(self, inputs):
        if not inputs.dtype.is_integer:
            raise ValueError(f"{self.name}: keys must be integers, got {inputs.dtype.name}")
        with tf.device("CPU:0"):
            keys = tf.reshape(tf.cast(inputs, tf.int64), [-1])
            unique, position = tf.unique(keys)
            known = self.table.lookup(tf.constant([OUT_OF_VOCABULARY], tf.int64))[0]
            tf.cond(known == self.fingerprint, self.table.size, self._build_table)
            indices = tf.cond(
                self.size < self.capacity, lambda: self._insert(unique), lambda: self._known(unique)
            )
            frequency = tf.math.unsorted_segment_sum(tf.ones_like(keys), position, tf.size(unique))
            self.count.scatter_add(tf.IndexedSlices(frequency, indices))
            return tf.reshape(tf.gather(indices, position), tf.shape(inputs))

    def _known(self, keys):
        """Returns the indices of the keys in the vocabulary, 0 of the others."""
        indices = tf.ensure_shape(self.table.lookup(keys), [None])
        return tf.where(keys == OUT_OF_VOCABULARY, tf.zeros_like(keys), indices)

    def _insert(self, keys):
        """Gives indices to new keys, as far as there are any left; returns those of all keys."""
        is_new = tf.logical_and(self._known(keys) == 0, keys != OUT_OF_VOCABULARY)
        new = tf.boolean_mask(keys, is_new)[: self.capacity - self.size]
        indices = tf.range(self.size, self.size + tf.size(new, tf.int64))
        self.vocabulary.scatter_update(tf.IndexedSlices(new, indices))
        self.size.assign_add(tf.size(new, tf.int64))
        self.fingerprint.assign_add(_fingerprint(new, indices))
        self._add_to_table(new, indices)
        return self._known(keys)

    def _build_table(self):
        """Fills the hash table with a vocabulary that was loaded; returns its size."""
        old, _ = self.table.export()
        self.table.remove(old)
        self._add_to_table(self.vocabulary[1 : self.size], tf.range(1, self.size))
        return self.table.size()

    def _add_to_table(self, keys, indices):
        self.table.insert(keys, indices)
        self.table.insert([tf.constant(OUT_OF_VOCABULARY, tf.int64)], [self.fingerprint])

    def get_vocabulary(self) -> list[int]:
        """Returns the keys in the order of their indices; entry 0 is -1, for unknown keys."""
        return self.vocabulary[: self.size].numpy().tolist()

    def compute_output_shape(self, input_shape):
        return tf.TensorShape(input_shape)

    def get_config(self):
        return {**super().get_config(), "max_tokens": self.max_tokens, "use_gpu": self.use_gpu}


def _fingerprint(keys, indices):
    """Returns an int64 sum of hashes of (key, index), equal for equal vocabularies."""
    pairs = tf.stack([keys, indices], axis=1)
    return tf.reduce_sum(tf.bitcast(tf.fingerprint(pairs), tf.int64))


@functools.cache
def _warn_once() -> None:
    _log.warning(
        "IntegerLookup(use_gpu=True): the vocabulary is looked up in host memory; results are "
        "the same. use_gpu=False logs nothing"
    )
