"""Random orders and draws that are computed, not stored: functions of keys and a sample's number.

TensorFlow operations on int64 that hold numbers below 2^32 between them, so that no product
overflows; element by element, without loops, on a CPU or a GPU.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

_BITS = 32
_LOW = (1 << _BITS) - 1
# Multipliers of MurmurHash3's finalizer, less 2^32: the product's low 32 bits are the same, and it
# stays within int64.
_FIRST = 0x85EBCA6B - (1 << _BITS)
_SECOND = 0xC2B2AE35 - (1 << _BITS)
_ROUNDS = 6  # 4 leave rows a whole width apart not quite independent
# How far from the square root widths are tried, to find one that fits.
_MOST_WIDTHS = 1 << 16

NUM_ORDER_KEYS = _ROUNDS
NUM_DRAW_KEYS = 2


def key_words(seed: int, count: int) -> np.ndarray:
    """Returns random words below 2^32 for `count` keys of `keys_of_epoch`, int64 [count + 1]."""
    return np.random.SeedSequence(seed).generate_state(count + 1, np.uint32).astype(np.int64)


def keys_of_epoch(words: np.ndarray, epoch: tf.Tensor) -> list[tf.Tensor]:
    """Returns an int64 scalar below 2^32 for each word but the first; others in every epoch."""
    import tensorflow as tf

    epoch = _hash(words[0] ^ (epoch & _LOW))
    return tf.unstack(_hash(words[1:] ^ epoch), num=len(words) - 1)


class KeyedOrder:
    """Permutations of 0 to `size` - 1 (2^62 at most), one for each key.

    A Feistel network on pairs (left, right) of numbers of about the square root of `size`: one
    half moves, modulo its width, by a hash of the other, in turns. There are a few more pairs than
    numbers. A number that the network sends to a surplus pair continues to where that pair is sent,
    until it is a number: still a permutation.
    """

    def __init__(self, size: int):
        self._size = size
        self._widths = _widths(size)
        self._surplus = math.prod(self._widths) - size

    def permuted(self, numbers: tf.Tensor, keys: list[tf.Tensor]) -> tf.Tensor:
        """Returns the permuted numbers, int64 [n], with `NUM_ORDER_KEYS` keys of an epoch."""
        import tensorflow as tf

        if not self._surplus:
            return self._network(numbers, keys)
        # The surplus pairs travel along: where they go is what a number sent to them looks up.
        surplus = tf.range(self._size, self._size + self._surplus, dtype=tf.int64)
        targets = self._network(tf.concat([numbers, surplus], 0), keys)
        targets, onward = targets[: -self._surplus], targets[-self._surplus :]
        for _ in range((self._surplus - 1).bit_length()):  # each time twice as far
            onward = self._follow(onward, onward)
        return self._follow(targets, onward)

    def _follow(self, targets: tf.Tensor, onward: tf.Tensor) -> tf.Tensor:
        """Returns `targets` with surplus pairs replaced by their targets, `onward` [surplus]."""
        import tensorflow as tf

        surplus = targets - self._size
        return tf.where(surplus < 0, targets, tf.gather(onward, tf.maximum(surplus, 0)))

    def _network(self, pairs: tf.Tensor, keys: list[tf.Tensor]) -> tf.Tensor:
        left_width, right_width = self._widths
        left = pairs // right_width
        right = pairs - left * right_width
        for number, key in enumerate(keys):
            if number % 2 == 0:
                left = _add_modulo(
                    left, _below(left_width, _hash_high_bits(right, key)), left_width
                )
            else:
                right = _add_modulo(
                    right, _below(right_width, _hash_high_bits(left, key)), right_width
                )
        return left * right_width + right


def drawn_below(limit: int, numbers: tf.Tensor, largest: int, keys: list[tf.Tensor]) -> tf.Tensor:
    """Returns a random number in [0, limit) for each of `numbers`, int64 [n].

    Uniform to 2^-32 of a probability, and independent of the other numbers' draws.

    Args:
        limit: 1 to 2^31.
        numbers: int64 [n].
        largest: the largest that `numbers` may hold, up to 2^62.
        keys: `NUM_DRAW_KEYS` keys of an epoch.
    """
    first, second = keys
    low = numbers
    if largest > _LOW:
        low = (numbers & _LOW) ^ _hash(right_shift(numbers, _BITS) ^ second)
    # Two words of a random number of 64 bits, scaled by its high bits; one word would be too coarse
    # for millions of items.
    low_word = _hash(low ^ first)
    high_word = _hash_high_bits(low_word, second)
    return right_shift(high_word * limit + _below(limit, low_word), _BITS)


def right_shift(numbers: tf.Tensor, bits: int) -> tf.Tensor:
    """Returns `numbers >> bits` of int64, which keeps the sign."""
    import tensorflow as tf

    return tf.bitwise.right_shift(numbers, tf.constant(bits, tf.int64))


def _widths(size: int) -> tuple[int, int]:
    """Returns widths, from about the square root to half as much again, of least surplus."""
    root = math.isqrt(size - 1) + 1
    lefts = root + np.arange(min(root // 2 + 1, _MOST_WIDTHS), dtype=np.int64)
    left = int(lefts[np.argmin(-size % lefts)])
    return left, -(-size // left)


def _add_modulo(half: tf.Tensor, distance: tf.Tensor, width: int) -> tf.Tensor:
    """Returns (half + distance) mod width, of numbers below it."""
    moved = half + distance - width
    return moved + (right_shift(moved, 63) & width)  # a negative number, shifted, is all ones


def _below(limit: int, words: tf.Tensor) -> tf.Tensor:
    """Returns numbers below 2^32, scaled to [0, limit) by their high bits."""
    return right_shift(words * limit, _BITS)


def _hash_high_bits(words: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Maps numbers below 2^32 one to one; the high bits depend on all bits."""
    words = ((words ^ key) * _FIRST) & _LOW
    return ((words ^ right_shift(words, 15)) * _SECOND) & _LOW


def _hash(words: tf.Tensor) -> tf.Tensor:
    """Maps numbers below 2^32 one to one; each bit depends on all bits."""
    words = ((words ^ right_shift(words, 16)) * _FIRST) & _LOW
    words = ((words ^ right_shift(words, 13)) * _SECOND) & _LOW
    return words ^ right_shift(words, 16)
