"""Columns of a batch, and the interface of the readers that fill them."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dataloading.pipeline.ragged import Ragged


class Role(enum.Enum):
    """Part of a batch that a column belongs to."""

    NUMERICAL = enum.auto()
    CATEGORICAL = enum.auto()
    LABEL = enum.auto()


@dataclass(frozen=True)
class Column:
    """One array of a batch.

    Attributes:
        role: the part of the batch.
        feature: name of the feature; of neighboring numerical features, of the first one.
        dtype: dtype of the array.
        width: values per sample; None where samples differ (`Ragged`).
        cardinality: number of different ids; None for other values.
    """

    role: Role
    feature: str
    dtype: np.dtype
    width: int | None
    cardinality: int | None = None


class SampleReader(Protocol):
    """Reads the samples of a split by their numbers, in any order.

    Attributes:
        columns: all that can be read, in the order of the channels.
        num_samples: samples of the split.
    """

    columns: tuple[Column, ...]
    num_samples: int

    def read(
        self, samples: slice | np.ndarray, columns: Sequence[Column]
    ) -> list[np.ndarray | Ragged]:
        """Returns a copy of some columns, `[len(samples), width]` each.

        Raises:
            ValueError: a value is invalid; the message names the file and the row.
        """


class ArrayReader:
    """Reads samples that are in memory.

    Args:
        arrays: column -> its values, `[samples, width]`.
    """

    def __init__(self, arrays: dict[Column, np.ndarray]):
        self.columns = tuple(arrays)
        self.num_samples = len(next(iter(arrays.values())))
        self._arrays = arrays

    def read(self, samples: slice | np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        """See `SampleReader`."""
        return [self._arrays[column][samples] for column in columns]
