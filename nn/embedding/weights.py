"""Whole tables in pieces: reading, writing and filling them without a second copy in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

PIECE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class TableWeight:
    """One whole table, wherever its rows live.

    Reads and writes go through gather and scatter: once a variable was gathered from, TensorFlow
    copies all of it for a plain read, however small the slice that is wanted.

    Attributes:
      name: name of the table.
      shape: (rows, dim).
      variable: float32 [at least offset + rows, dim].
      offset: row of `variable` at which the table starts.
    """

    name: str
    shape: tuple[int, int]
    variable: tf.Variable
    offset: int = 0

    @property
    def dtype(self) -> np.dtype:
        """dtype of the table."""
        return np.dtype(self.variable.dtype.as_numpy_dtype)

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1 as [last - first, dim]."""
        return tf.gather(self.variable, self._rows(first, last)).numpy()

    def write(self, first: int, values) -> None:
        """Sets the rows from `first` on to `values`, [any, dim]."""
        rows = self._rows(first, first + len(values))
        self.variable.scatter_update(tf.IndexedSlices(tf.convert_to_tensor(values), rows))

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(first, last) of consecutive runs of rows of at most `PIECE_BYTES` each."""
        return pieces(self.shape, self.dtype.itemsize)

    def _rows(self, first: int, last: int) -> tf.Tensor:
        return tf.range(self.offset + first, self.offset + last, dtype=tf.int64)


def pieces(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[int, int]]:
    """(first, last) of consecutive runs along axis 0 of at most `PIECE_BYTES` each."""
    row_bytes = max(1, int(np.prod(shape[1:], dtype=np.int64)) * itemsize)
    step = max(1, PIECE_BYTES // row_bytes)
    for first in range(0, shape[0], step):
        yield first, min(first + step, shape[0])


def fill_uniform(weight: TableWeight, seed: int) -> None:
    """Draws a table's initial values, uniform in +-sqrt(1 / rows).

    Values depend on the seed and the row alone, not on the size of the pieces that they are drawn
    in: blocks of 4,096 rows have a random stream each.
    """
    rows, dim = weight.shape
    limit = np.sqrt(1.0 / rows)
    block = 4096
    for first in range(0, rows, block):
        last = min(first + block, rows)
        values = tf.random.stateless_uniform(
            [block, dim], seed=[seed, first // block], minval=-limit, maxval=limit
        )
        weight.write(first, values[: last - first])
