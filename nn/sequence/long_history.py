"""SIM's long history: a search selects items, an attention reads them (Pi et al., 2020).

The selection is a mask, not a list of positions: to gather 50 of 90 vectors, and to scatter their
gradients back, costs more than to attend over all 90 with 40 weights of zero.
"""

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

from nn.sequence.attention import NUM_HEADS, TargetQueries, attend
from nn.sequence.sizes import HARD


def most_recent(mask: tf.Tensor, k: int) -> tf.Tensor:
    """Returns the last k places of each sample where `mask` [batch, n] is True."""
    if k >= mask.shape[1]:
        return mask
    return tf.logical_and(mask, _rank_from_the_end(mask) <= k)


def _rank_from_the_end(mask: tf.Tensor) -> tf.Tensor:
    """Counts the True positions from each one on, int32 [batch, n]."""
    return tf.cumsum(tf.cast(mask, tf.int32), axis=1, reverse=True)


def select_top(scores: tf.Tensor, mask: tf.Tensor, k: int) -> tf.Tensor:
    """Returns the k places of the highest scores where `mask` is True, bool [batch, n].

    Of equal scores (an item that occurs twice) the most recent ones are taken.
    """
    if k >= mask.shape[1]:
        return mask
    scores = tf.where(mask, scores, scores.dtype.min)
    best = tf.math.top_k(scores, k, sorted=False).values
    least = tf.reduce_min(best, axis=1, keepdims=True)
    above = scores > least
    level = tf.logical_and(tf.equal(scores, least), mask)
    num_above = tf.math.count_nonzero(above, axis=1, keepdims=True, dtype=tf.int32)
    last_of_level = tf.logical_and(level, _rank_from_the_end(level) <= k - num_above)
    return tf.logical_or(above, last_of_level)


def hard_search(target_category, categories, mask: tf.Tensor, k: int) -> tf.Tensor:
    """Returns the k most recent items of the target's category [batch, 1], bool [batch, n]."""
    same = tf.equal(tf.cast(categories, tf.int64), tf.cast(target_category, tf.int64))
    return most_recent(tf.logical_and(mask, same), k)


class LongHistory(keras.layers.Layer):
    """Search of a target in a long history.

    The general search selects the k items of highest <A key_j, B target>, or the k most recent of
    the target's category. The exact search is a multi-head attention of the target over these:

        head_i = sum_j softmax_j(<A_i key_j, B_i target> / sqrt(head_dim)) key_j

    The choice has no gradient. The soft search learns by the loss of a classifier of its own (stage
    one) of the history pooled by its scores: sum_j softmax_j(r_j) key_j. (The paper adds up r_j
    key_j; the softmax keeps the sum as large as an item's vector, however long the history is.)
    A and B start as the identity.

    Args:
        gsu: "soft" or "hard".
        top_k: Items to select.
    """

    def __init__(self, gsu: str, top_k: int, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.gsu, self.top_k = gsu, top_k
        own = {"seed": derive_seed(seed, name), "dtype": dtype}
        if gsu != HARD:
            self.search = TargetQueries(name="search", num_heads=1, identity=True, **own)
        self.exact_search = TargetQueries(name="exact_search", **own)

    def call(self, target: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor, categories):
        """Searches the history [batch, n, dim] for the target [batch, dim].

        Hard search reads `categories`, integers of target [batch, 1] and history [batch, n].

        Returns:
            (heads of the exact search, side by side [batch, NUM_HEADS * dim]; history pooled by the
            soft search [batch, dim], None with hard search), zeros where there is no item.
        """
        exact = self.exact_search(target)
        width = NUM_HEADS * keys.shape[-1]
        if self.gsu == HARD:
            selected = hard_search(*categories, mask, self.top_k)
            interest = attend(exact, keys, lambda _: selected[:, tf.newaxis, :])
            return tf.reshape(interest, [-1, width]), None

        def choose(scores):
            selected = select_top(scores[:, 0, :], mask, self.top_k)
            return tf.stack([mask] + [selected] * NUM_HEADS, axis=1)

        # Both at once: the history is read, and its gradient written, once.
        interest = attend(tf.concat([self.search(target), exact], axis=1), keys, choose)
        pooled, heads = tf.split(interest, [1, NUM_HEADS], axis=1)
        return tf.reshape(heads, [-1, width]), tf.squeeze(pooled, axis=1)
