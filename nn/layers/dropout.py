"""Dropout that is the same on any number of ranks, and resumes after a restart."""

from typing import NamedTuple

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

_PHILOX = 1  # the generator's number in TensorFlow's operations
_NUMBERS_PER_COUNT = 4  # that Philox makes of each value of its counter


class DropoutPlace(NamedTuple):
    """Place of a rank's samples of a batch in the training, from which dropped units follow.

    Attributes:
        step: number of the step, int64 scalar.
        first: number of the rank's first sample in the global batch, int64 scalar.
        num_samples: samples of the rank, padding included, int32 scalar.
    """

    step: tf.Tensor
    first: tf.Tensor
    num_samples: tf.Tensor


def first_sample(
    weights: tf.Tensor | None, num_samples: tf.Tensor, rank: int, world_size: int
) -> tf.Tensor:
    """Returns the number of a rank's first sample in the global batch, int64 scalar.

    Args:
        weights: of the samples, [batch, 1], see `dataloading.pipeline.batch.Batch`: real ones weigh
            batch * ranks / real samples of the global batch. None: the ranks have equally many.
        num_samples: batch, int32 scalar.
        rank, world_size: of this process, and the number of ranks.
    """
    if world_size == 1:
        return tf.zeros([], tf.int64)
    total = tf.cast(num_samples * world_size, tf.float64)
    if weights is not None:
        largest = tf.cast(tf.reduce_max(weights), tf.float64)  # 0: all are padding
        total = tf.round(tf.math.divide_no_nan(total, largest))
    total = tf.cast(total, tf.int64)
    # As `dataloading.pipeline.shuffle.share_of_rank` divides them.
    longer = tf.minimum(tf.constant(rank, tf.int64), total % world_size)
    return rank * (total // world_size) + longer


class Dropout(keras.layers.Layer):
    """Sets a share of the units, in [0, 1), to 0 and divides the others by 1 - rate.

    Units are numbered by sample of the global batch. The same seed, name and step leave out the
    same ones on any number of ranks, also after a restart.
    """

    def __init__(self, rate: float, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.rate = rate
        self.seed = derive_seed(seed, name, "dropout")

    def call(self, x: tf.Tensor, place: DropoutPlace, num_blocks: int = 1) -> tf.Tensor:
        """Returns the units that are kept, of x [rows, width].

        The rows are `num_blocks` blocks one after another, each of which has the same number of
        successive rows of every sample.
        """
        samples = place.num_samples
        units = tf.size(x) // samples  # of a sample
        counts = (units + _NUMBERS_PER_COUNT - 1) // _NUMBERS_PER_COUNT
        seed = tf.stack([tf.constant(self.seed, tf.int64), place.step])
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        start = tf.stack([place.first * tf.cast(counts, tf.int64), 0])
        drawn = tf.raw_ops.StatelessRandomUniformV2(
            shape=tf.stack([samples, counts * _NUMBERS_PER_COUNT]),
            key=key,
            counter=tf.bitcast(tf.bitcast(counter, tf.int64) + start, tf.uint64),
            alg=_PHILOX,
        )[:, :units]
        if num_blocks > 1:
            drawn = tf.reshape(drawn, [samples, num_blocks, units // num_blocks])
            drawn = tf.transpose(drawn, [1, 0, 2])
        kept = tf.reshape(drawn, tf.shape(x)) >= self.rate
        return tf.where(kept, x * tf.cast(1 / (1 - self.rate), x.dtype), tf.zeros([], x.dtype))
