"""Positions of texts in a vocabulary, for batches and for single values.

`pyarrow.compute.index_in` builds its hash table at each call. For 65,536 texts and vocabularies of
100,000 and a million values it takes 26 and 274 ms of one core; this index, which is built once in
20 and 295 ms, takes 6 and 10 ms, and a Python dictionary of the distinct texts 56 and 120 ms.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from preproc.encoding.arrow_columns import FEW_VALUES, utf8

_BITS = (1 << 64) - 1
_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # those of SplitMix64
_LARGEST_COPY = 1 << 28  # bytes of the texts of an index that are copied
_MASKS = np.array([(1 << 8 * num_bytes) - 1 for num_bytes in range(9)], np.uint64)


class TextIndex:
    """Index of distinct texts by a 64-bit hash; what it finds is compared with the text itself.

    Hashes are sorted, and `_starts` has the first position of each prefix of their bits, of which
    there are twice as many as texts: a search starts at most a few positions too low. It takes
    20 to 28 bytes per text.

    Raises:
        ValueError: a text occurs twice.
    """

    def __init__(self, values: pa.StringArray):
        self._values = values
        self._seed = 0
        self._longest = int(np.diff(utf8(values)[0]).max(initial=0))
        hashes, order = self._sorted_hashes()
        while (same := np.flatnonzero(hashes[1:] == hashes[:-1])).size:
            for position in same:
                text, other = (values[int(order[position + i])].as_py() for i in range(2))
                if text == other:
                    raise ValueError(f"expected each value once, got {text!r:.100} twice")
            self._seed += 1
            hashes, order = self._sorted_hashes()
        num_bits = max(1, (2 * len(values)).bit_length())
        self._shift = 64 - num_bits
        prefixes = (hashes >> np.uint64(self._shift)).astype(np.int64)
        counts = np.bincount(prefixes, minlength=1 << num_bits)
        self._starts = (np.cumsum(counts) - counts).astype(np.int32)  # Arrow has fewer texts
        # A last hash that no search passes.
        self._hashes = np.append(hashes, np.uint64(_BITS))
        self._order = np.append(order, 0).astype(np.int32)

    def _sorted_hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        hashes = _hashes(self._values, self._longest, self._seed)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def find(self, texts: pa.StringArray) -> NDArray[np.int64]:
        """Returns the position of each text among the values, [n]; -1 for null and other texts."""
        if not len(self._values):
            return np.full(len(texts), -1)
        if len(texts) <= FEW_VALUES:
            return np.array([self._find_one(text) for text in texts.to_pylist()], np.int64)
        hashes = _hashes(texts, self._longest, self._seed)
        positions = self._starts[hashes >> np.uint64(self._shift)]
        lower = np.flatnonzero(self._hashes[positions] < hashes)
        while lower.size:
            positions[lower] += 1
            lower = lower[self._hashes[positions[lower]] < hashes[lower]]
        ids = self._order[positions]
        is_equal = pc.fill_null(pc.equal(texts, self._values.take(pa.array(ids))), False)
        return np.where(is_equal.to_numpy(zero_copy_only=False), ids.astype(np.int64), -1)

    def _find_one(self, text: str | None) -> int:
        if text is None:
            return -1
        wanted = _hash_one(text, self._seed)
        position = int(self._starts[wanted >> self._shift])
        while (current := int(self._hashes[position])) < wanted:
            position += 1
        index = int(self._order[position])
        return index if current == wanted and self._values[index].as_py() == text else -1


class JointIndex:
    """Indexes of several vocabularies, which are searched in one call.

    26 vocabularies of 100,000 texts take 0.05 ms for a text each, `TextIndex` 0.1 ms. Hashes and
    order of the indexes become parts of its own; it copies the texts.

    Args:
        indexes: see `is_joinable`.
    """

    def __init__(self, indexes: Sequence[TextIndex]):
        self.longest = max(index._longest for index in indexes)
        self._shifts = np.array([index._shift for index in indexes], np.uint64)
        self._starts, self._first_start = _joined([index._starts for index in indexes])
        self._hashes, self._first_hash = _joined([index._hashes for index in indexes])
        self._order, _ = _joined([index._order for index in indexes])
        texts = [utf8(index._values) for index in indexes]
        content, first_byte = _joined([content for _, content in texts])
        self._words = _words(np.append(content, np.zeros(8, np.uint8)))
        offsets = [text[0] + first for text, first in zip(texts, first_byte, strict=True)]
        self._offsets, self._first_offset = _joined(offsets)
        for number, index in enumerate(indexes):
            starts = slice(
                self._first_start[number], self._first_start[number] + len(index._starts)
            )
            hashes = slice(self._first_hash[number], self._first_hash[number] + len(index._hashes))
            index._starts = self._starts[starts]
            index._hashes, index._order = self._hashes[hashes], self._order[hashes]

    @staticmethod
    def is_joinable(index: TextIndex) -> bool:
        """Returns whether an index has texts, few enough to copy them, and the first seed."""
        values = index._values
        return 0 < values.nbytes < _LARGEST_COPY and not index._seed

    def find(
        self,
        vocabulary: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        content: NDArray[np.uint8],
    ) -> NDArray[np.int64]:
        """Returns the position of each text in its vocabulary, [n]; -1 for other texts.

        Args:
            vocabulary: number of the text's vocabulary.
            starts, lengths: bytes of the text in the content, which has 8 more bytes.
        """
        words = _words(content)
        hashes = _hash_words(words, starts, lengths.copy(), self.longest, 0)
        prefixes = (hashes >> self._shifts[vocabulary]).astype(np.int64)
        positions = self._starts[prefixes + self._first_start[vocabulary]]
        positions = positions + self._first_hash[vocabulary]
        (lower,) = (self._hashes[positions] < hashes).nonzero()
        while lower.size:
            positions[lower] += 1
            lower = lower[self._hashes[positions[lower]] < hashes[lower]]
        result = self._order[positions].astype(np.int64)
        values = result + self._first_offset[vocabulary]
        firsts = self._offsets[values]
        is_equal = self._hashes[positions] == hashes
        is_equal &= self._offsets[values + 1] - firsts == lengths
        for first in range(0, int(lengths.max(initial=0)), 8):
            (rows,) = (is_equal & (lengths > first) if first else is_equal).nonzero()
            if not rows.size:
                break
            different = words[starts[rows] + first] ^ self._words[firsts[rows] + first]
            different &= _MASKS[np.minimum(lengths[rows] - first, 8)]
            is_equal[rows[different != 0]] = False
        result[~is_equal] = -1
        return result


def _joined(arrays: Sequence[NDArray]) -> tuple[NDArray, NDArray[np.int64]]:
    """Returns the concatenated arrays, and the position of each."""
    lengths = np.array([len(array) for array in arrays], np.int64)
    return np.concatenate(arrays), np.cumsum(lengths) - lengths


def _hashes(texts: pa.StringArray, longest: int, seed: int) -> NDArray[np.uint64]:
    """Returns hashes of texts; those of texts with more than `longest` bytes are arbitrary."""
    offsets, content = utf8(texts)
    words = _words(np.append(content, np.zeros(8, np.uint8)))
    return _hash_words(words, offsets[:-1], np.diff(offsets), longest, seed)


def _words(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Returns the 8 bytes from each position on, of content with 8 bytes at its end."""
    return np.ndarray(len(content) - 7, "<u8", content, strides=(1,))


def _hash_words(
    words: NDArray[np.uint64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    longest: int,
    seed: int,
) -> NDArray[np.uint64]:
    """Returns hashes; changes `lengths`."""
    lengths[lengths > longest] = 0
    hashes = lengths.astype(np.uint64) * np.uint64(_FACTORS[0]) + np.uint64(seed)
    rows = slice(None)  # with bytes left
    for first in range(0, max(longest, 1), 8):
        if first:
            rows = np.flatnonzero(lengths > first)
            if not rows.size:
                break
        left = np.minimum(lengths[rows] - first, 8)
        word = words[starts[rows] + first] & _MASKS[left]
        mixed = (hashes[rows] ^ word) * np.uint64(_FACTORS[1])
        hashes[rows] = mixed ^ (mixed >> np.uint64(32))
    hashes *= np.uint64(_FACTORS[2])
    return hashes ^ (hashes >> np.uint64(29))


def _hash_one(text: str, seed: int) -> int:
    """Returns the hash that `_hashes` gives a text."""
    content = text.encode()
    result = (len(content) * _FACTORS[0] + seed) & _BITS
    for first in range(0, max(len(content), 1), 8):
        word = int.from_bytes(content[first : first + 8], "little")
        result = ((result ^ word) * _FACTORS[1]) & _BITS
        result ^= result >> 32
    result = (result * _FACTORS[2]) & _BITS
    return result ^ (result >> 29)
