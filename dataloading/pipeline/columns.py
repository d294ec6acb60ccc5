"""Columns of a batch with the checks of their values, and the readers that fill them."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dataloading.pipeline.ragged import Samples


class Role(enum.Enum):
    """Part of a batch that a column belongs to."""

    NUMERICAL = enum.auto()
    CATEGORICAL = enum.auto()
    LABEL = enum.auto()


@dataclass(frozen=True)
class Column:
    """One array of a batch."""

    role: Role
    feature: str  # of neighboring numerical features, the first one
    dtype: np.dtype
    width: int | None  # values per sample; None where samples differ (`Ragged`)
    cardinality: int | None = None  # number of different ids; None for other values
    features: tuple[str, ...] = ()  # feature of each value; empty: all are of `feature`

    def check(self, values: np.ndarray, where: Callable[[np.ndarray], str]) -> None:
        """Checks values of any shape.

        Args:
            where: returns the first half of the message, the location, from a mask of the invalid
                values.

        Raises:
            ValueError: a numerical feature is not finite as float32, an id is not in
                [0, cardinality), or a label is not 0 or 1.
        """
        if self.role is Role.NUMERICAL:
            finite = _finite(values)
            if not finite.all():
                raise ValueError(
                    where(~finite) + "; numerical features must be finite, a NaN silently corrupts "
                    "the weights. Write 0 or a mean for a missing value when preparing the data"
                )
        elif self.role is Role.LABEL:
            invalid = (values != 0) & (values != 1)
            if invalid.any():
                raise ValueError(
                    where(invalid)
                    + "; labels are 0 or 1 (bool is a byte of 0 or 1). Prepare the file again"
                )
        # One pass: seen as unsigned, negative ids are the largest.
        elif values.size and int(values.view(f"u{values.itemsize}").max()) >= self.cardinality:
            raise ValueError(
                where((values < 0) | (values >= self.cardinality))
                + f"; ids lie in [0, {self.cardinality}). Raise the feature's cardinality in the "
                "feature spec, or give such values a known id when preparing the data"
            )


def _finite(values: np.ndarray) -> np.ndarray:
    """Returns a mask of the values that are finite as float32."""
    if values.dtype == np.float16:  # by the exponent bits: NumPy converts it one value at a time
        exponent = np.uint16(0x7C00)
        return (values.view(np.uint16) & exponent) != exponent
    return np.abs(values.astype(np.float64, copy=False)) <= np.finfo(np.float32).max


class SampleReader(Protocol):
    """Reads the samples of a split by their numbers, in any order."""

    columns: tuple[Column, ...]  # all that can be read, in the order of the channels
    num_samples: int

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[Samples]:
        """Returns a copy of some columns, `[len(samples), width]` each.

        Raises:
            ValueError: a value is invalid; the message names the file and the row.
        """


class ArrayReader:
    """A `SampleReader` of arrays, `[samples, width]` each, in memory or mapped into it."""

    def __init__(self, arrays: Mapping[Column, np.ndarray]):
        self.columns = tuple(arrays)
        self.num_samples = len(arrays[self.columns[0]])
        self._arrays = arrays

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        """See `SampleReader`."""
        arrays = [self._arrays[column] for column in columns]
        if isinstance(samples, range):
            return [array[samples.start : samples.stop].copy() for array in arrays]
        return [array.take(samples, axis=0) for array in arrays]
