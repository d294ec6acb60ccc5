"""Training samples: interactions, and negatives that are drawn again in every epoch.

`tf.data` yields the positions of the samples of a step; the step itself makes them, on its device,
from the interactions that are stored there. No order and no negative is ever stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dataloading.interactions.keyed_permutation import (
    NUM_DRAW_KEYS,
    NUM_ORDER_KEYS,
    KeyedOrder,
    drawn_below,
    key_words,
    keys_of_epoch,
    right_shift,
)
from dataloading.interactions.stored import num_users_and_items, read_training_rows
from dataloading.pipeline.batch import Batch, InteractionInputs
from dataloading.pipeline.sample_dataset import dataset_of
from dataloading.pipeline.shuffle import check_shares
from dataloading.spec.feature_spec import FeatureSpec

if TYPE_CHECKING:
    import tensorflow as tf

_ITEM_BITS = 32
# Of the lowest 32 bits of a pair, the item has 31 and the last marks a stored row of label 0.
_IS_NEGATIVE = 1 << 31
# What is drawn with `negative_exponent`: a point on a line of this length.
_LINE = 1 << 31


class Draw(NamedTuple):
    """Samples of a global batch on one rank, at neighboring positions of an epoch. Scalars."""

    epoch: tf.Tensor  # int64
    start: tf.Tensor  # int64, position of the first one in the epoch's order
    real: tf.Tensor  # int64, their number
    length: tf.Tensor  # int64, their number with padding, the same on all ranks
    weight: tf.Tensor  # float32, of each real sample, see `Batch`


class SampledInteractions:
    """Every interaction of a split once per epoch, each with negatives of its own user.

    A negative is the user with an item drawn from all items uniformly, by chance also one that the
    user likes, as in He et al., "Neural collaborative filtering" (2017). All samples of an epoch
    are shuffled. The sample at position p of epoch e is a function of (seed, e, p): ranks, batch
    size and restarts change nothing.

    Memory: 8 bytes per interaction, and 8 per item with `negative_exponent`, on the GPU where
    one is visible.

    Args:
        spec: with the channels `user` and `item`, one feature each.
        split: every row of it is an interaction, or a negative if it has the label 0; `train`.
        batch_size: the global batch size, `world_size` or more.
        negative_samples: negatives for each interaction, 0 or more.
        negative_exponent: items are drawn in proportion to their interactions (1 for those without
            any) to the power of this: 0 draws uniformly, 1 as they occur (Mikolov et al., 2013, use
            0.75 for words). The trained logit is the log of how much likelier an item is for the
            user than to be drawn: a larger exponent favors popular items less.
        rank, world_size: see `LoaderOptions`; padding repeats a sample of the batch.

    Attributes:
        num_interactions: rows of the split.
        num_samples: samples of an epoch: interactions and negatives.

    Raises:
        ValueError: see `read_training_rows`, or an argument is out of range.
    """

    failure: str | None = None  # None: invalid rows are found here, not later

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        batch_size: int,
        *,
        negative_samples: int = 4,
        negative_exponent: float = 0.0,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        check_shares(batch_size, rank, world_size)
        users, items, labels = read_training_rows(spec, split)
        self.split = split
        self.num_interactions = len(users)
        self.num_samples = (1 + negative_samples) * self.num_interactions
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.negative_samples = negative_samples
        num_items = num_users_and_items(spec)[1]
        self._num_points = _LINE if negative_exponent else num_items
        self._ends = None
        if negative_exponent:
            positives = items if labels is None else items[labels]
            counts = np.bincount(positives, minlength=num_items)
            self._ends = ends_of_shares(counts, negative_exponent)
        self._order = KeyedOrder(self.num_samples)
        self._words = key_words(seed, NUM_ORDER_KEYS + NUM_DRAW_KEYS)
        # A pair in one number is one read from memory instead of two; and TensorFlow keeps int32
        # constants on the host.
        self._pairs = users.astype(np.int64) << _ITEM_BITS
        self._pairs |= items
        if labels is not None:
            self._pairs[~labels] |= _IS_NEGATIVE
        self._pairs_on_device = self._ends_on_device = self._samples_at = None

    @property
    def num_batches(self) -> int:
        """Global batches per epoch; the last one may be shorter."""
        return -(-self.num_samples // self.batch_size)

    def dataset(self, epoch: int = 0, start_sample: int = 0) -> tf.data.Dataset:
        """Returns a dataset of `Batch(Draw, None, None)`, the inputs of `samples`."""
        import tensorflow as tf

        def draw(index):
            first = start_sample + index * self.batch_size
            size = tf.minimum(self.num_samples - first, self.batch_size)
            # As `shuffle.share_of_rank`.
            base, longer = size // self.world_size, size % self.world_size
            start = first + self.rank * base + tf.minimum(longer, self.rank)
            real = base + tf.cast(self.rank < longer, tf.int64)
            length = base + tf.cast(longer > 0, tf.int64)
            weight = tf.cast(length * self.world_size / size, tf.float32)
            draw = Draw(tf.constant(epoch, tf.int64), start, real, length, weight)
            return Batch(draw, None, None)

        return dataset_of(-(-(self.num_samples - start_sample) // self.batch_size), draw)

    def samples(self, batch: Batch) -> Batch:
        """Returns the samples of an element of `dataset()`, in TensorFlow operations: a `Batch` of
        `InteractionInputs` with labels 1 for interactions and 0 for negatives."""
        import tensorflow as tf

        self._bring_to_device()
        draw = batch.inputs
        index = tf.range(draw.length)
        # Padding repeats the sample before it, which is one of the batch on every rank.
        positions = draw.start + tf.minimum(index, draw.real - 1)
        interactions, negatives = self._samples_at(draw.epoch, positions)
        pairs = tf.gather(self._pairs_on_device, interactions)
        is_positive = negatives < 0
        if self._ends_on_device is not None:
            drawn = tf.searchsorted(self._ends_on_device, negatives, side="right")
            negatives = tf.cast(drawn, tf.int64)
        items = tf.where(is_positive, pairs & (_IS_NEGATIVE - 1), negatives)
        users = right_shift(pairs, _ITEM_BITS)
        weights = tf.where(index < draw.real, draw.weight, 0.0)
        return Batch(
            InteractionInputs(tf.cast(users, tf.int32), tf.cast(items, tf.int32)),
            tf.cast(is_positive & tf.equal(pairs & _IS_NEGATIVE, 0), tf.float32)[:, None],
            weights[:, None],
        )

    def _numbers_at(self, epoch: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the interaction of each position of an epoch, and the item (or the point of the
        line of items) that was drawn for its user; -1 for the interaction itself."""
        import tensorflow as tf

        keys = keys_of_epoch(self._words, epoch)
        rows = self._order.permuted(positions, keys[:NUM_ORDER_KEYS])
        interactions = rows // (1 + self.negative_samples)
        is_positive = tf.equal(rows, interactions * (1 + self.negative_samples))
        drawn = drawn_below(self._num_points, rows, self.num_samples, keys[NUM_ORDER_KEYS:])
        return interactions, tf.where(is_positive, tf.constant(-1, tf.int64), drawn)

    def _bring_to_device(self) -> None:
        """Copies the interactions to the device that trains, once: as a constant of the step they
        would be part of each graph."""
        import tensorflow as tf

        if self._samples_at is not None:
            return
        gpus = tf.config.list_logical_devices("GPU")
        with tf.init_scope(), tf.device(gpus[0].name if gpus else "CPU:0"):
            self._pairs_on_device = tf.constant(self._pairs)
            if self._ends is not None:
                self._ends_on_device = tf.constant(self._ends)
        self._pairs = self._ends = None
        # Some 130 small operations: in one loop by XLA they take 2 ms of 131,072 samples instead of
        # 9 on 2 cores. Not measured on a GPU, where they need no compiler.
        self._samples_at = tf.function(
            self._numbers_at, autograph=False, jit_compile=None if gpus else True
        )


def ends_of_shares(counts: np.ndarray, exponent: float) -> np.ndarray:
    """Returns the end of each item's share of a line of 2^31 points, int64 `[items]`.

    Args:
        counts: interactions of each item; 0 counts as 1.
        exponent: shares are in proportion to counts to this power, to 2^-31.
    """
    ends = np.cumsum(np.maximum(counts, 1).astype(np.float64) ** exponent)
    return np.round(ends / ends[-1] * _LINE).astype(np.int64)
