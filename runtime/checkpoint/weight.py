"""Content of a checkpoint: named arrays, split into boxes of rows and columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from distributed_embeddings.box import Box
from numpy.typing import NDArray

# Read, checked and written at a time: small compared with a table, large compared with the cost of
# a call.
BLOCK_BYTES = 4 * 2**20


class NonFiniteWeight(Exception):
    """A weight to be saved contains NaN or infinity; the text is its name."""


class Weight(Protocol):
    """A named array that is read and written in boxes, on any rank and device.

    As a matrix it has `shape[0]` rows and the product of the other dimensions as columns; a scalar
    is 1 x 1.

    Attributes:
        name: unique; the part before the first slash is its folder in the checkpoint.
        shape: its shape.
        dtype: its numpy dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def saved_by(self, rank: int) -> Sequence[Box]:
        """Returns the boxes that `rank` saves; all ranks together save all of it once."""

    def local_boxes(self) -> Sequence[Box]:
        """Returns the boxes that this rank restores from a checkpoint."""

    def read(self, box: Box) -> NDArray[Any]:
        """Returns a part [rows, columns], C-contiguous, of a box that this rank saves."""

    def write(self, row: int, values: NDArray[Any], column: int = 0) -> None:
        """Sets this rank's part of the rows and columns from there on to `values` [r, c]."""


def matrix_of(shape: Sequence[int]) -> Box:
    """Returns the box that covers a weight of this shape."""
    rows = shape[0] if len(shape) else 1
    return Box(0, rows, 0, int(np.prod(shape[1:], dtype=np.int64)))


@dataclass(frozen=True)
class VariableWeight:
    """A TensorFlow variable that is replicated on all ranks; for small weights."""

    name: str
    variable: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.variable.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.variable.dtype.as_numpy_dtype)
        return dtype

    def saved_by(self, rank: int) -> list[Box]:
        return [matrix_of(self.shape)] if rank == 0 else []

    def local_boxes(self) -> list[Box]:
        return [matrix_of(self.shape)]

    def read(self, box: Box) -> NDArray[Any]:
        values = self._matrix()
        return np.ascontiguousarray(values[box.row : box.row_end, box.column : box.column_end])

    def write(self, row: int, values: NDArray[Any], column: int = 0) -> None:
        whole = self._matrix()
        whole[row : row + len(values), column : column + values.shape[1]] = values
        self.variable.assign(whole.reshape(self.shape))

    def _matrix(self) -> NDArray[Any]:
        box = matrix_of(self.shape)
        values: NDArray[Any] = self.variable.numpy().reshape(box.rows, box.columns)
        return values
