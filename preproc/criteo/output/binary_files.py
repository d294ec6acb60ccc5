"""The prepared files: a number's stored form, and columns that are written by row number.

Files are little-endian and row-major without any header. A column file is made at its full size,
all zeros: a full disk shows at once, and a categorical value without an id needs no writing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preproc.criteo.output.output_order import INPUT_ORDER, OutputOrder
from preproc.criteo.output.splits import Split
from runtime.files.disk import allocate, sync

NUMERICAL_DTYPE = np.dtype("<f2")
LABEL_DTYPE = np.dtype("?")
MIN_NUMERICAL = -2  # log(x + 3) is undefined below
NUM_BINS = 89  # ids of bin_ids: 1 + floor(2 * log(2^63 + 2)) = 88 is the largest of any int64


def encode_numericals(shifted: np.ndarray) -> np.ndarray:
    """float16(log(x + 3)), and 0 where x is missing or below -2.

    The logarithm is taken in float64 and rounded once, so that every engine gets the same bits.

    Args:
        shifted: integers x + 3; 0 or less stands for missing or undefined.
    """
    defined = shifted > 0
    # log(1) = 0 fills the rest.
    return np.log(np.where(defined, shifted, 1).astype(np.float64)).astype(NUMERICAL_DTYPE)


def bin_ids(shifted: np.ndarray) -> np.ndarray:
    """1 + floor(2 log(x + 3)) as int8, and 0 where x is missing or below -2.

    Args:
        shifted: integers x + 3; 0 or less stands for missing or undefined.
    """
    defined = shifted > 0
    bins = 1 + np.floor(2 * np.log(np.where(defined, shifted, 1).astype(np.float64)))
    return np.where(defined, bins, 0).astype(np.int8)


@dataclass(frozen=True)
class SplitLayout:
    """Location of rows: a folder with one for each split, and the order of rows of a split."""

    folder: Path
    splits: tuple[Split, ...]
    order: OutputOrder = INPUT_ORDER


@dataclass(frozen=True)
class ColumnFiles:
    """One file `file_name` per split, each row `width` values of `dtype`, written by number."""

    layout: SplitLayout
    file_name: str
    dtype: np.dtype
    width: int = 1

    @property
    def row_bytes(self) -> int:
        return self.width * self.dtype.itemsize

    def path(self, split: Split) -> Path:
        return self.layout.folder / split.name / self.file_name

    @property
    def paths(self) -> list[Path]:
        return [self.path(split) for split in self.layout.splits]

    def create(self) -> None:
        """Creates every file at its full size, all zeros; raises OSError without space."""
        for split, path in zip(self.layout.splits, self.paths, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            allocate(path, split.num_rows * self.row_bytes)

    def write(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Writes values[i], [n] or [n, width], as row rows[i] of the log; in any order, and again
        by a task that is repeated."""
        self.write_at(self.layout.order.positions(rows), values)

    def write_at(self, positions: np.ndarray, values: np.ndarray) -> None:
        """Writes rows by position, where the order has been applied already."""
        for split in self.layout.splits:
            inside = (positions >= split.start) & (positions < split.stop)
            count = np.count_nonzero(inside)
            if not count:
                continue
            # Mapped again each time: written data does not stay in this process's memory.
            file = np.memmap(self.path(split), self.dtype, "r+").reshape(-1, self.width)
            if count == len(positions):
                file[positions - split.start] = values.reshape(-1, self.width)
            else:
                file[positions[inside] - split.start] = values[inside].reshape(-1, self.width)

    def sync(self) -> None:
        for path in self.paths:
            sync(path)


@dataclass(frozen=True)
class NumericalWriter:
    """Writes labels (None if the log has none), numerical features and any bins of these."""

    labels: ColumnFiles | None
    numericals: ColumnFiles
    bins: tuple[ColumnFiles, ...] = ()

    @property
    def files(self) -> list[ColumnFiles]:
        return [*([] if self.labels is None else [self.labels]), self.numericals, *self.bins]

    def with_files(self, files: Sequence[ColumnFiles]) -> "NumericalWriter":
        """Returns a writer of others in place of `files`."""
        labels = [None] if self.labels is None else files[:1]
        numericals, *bins = files if self.labels is None else files[1:]
        return NumericalWriter(*labels, numericals, tuple(bins))

    def values(self, label: np.ndarray, shifted: np.ndarray) -> Iterator[np.ndarray]:
        """Yields what is stored of rows, [n] or [n, width], for each of `files`.

        Args:
            label: [n], 0 or 1.
            shifted: [n, 13] integers x + 3; 0 or less stands for missing or undefined.
        """
        if self.labels is not None:
            yield label.astype(LABEL_DTYPE)
        yield encode_numericals(shifted)
        for i in range(len(self.bins)):
            yield bin_ids(shifted[:, i])

    def __call__(self, rows: np.ndarray, label: np.ndarray, shifted: np.ndarray) -> dict[str, int]:
        """Writes a block of `values`; returns the clicks of each split among its rows.

        rows: [n] row numbers in the whole log.
        """
        positions = self.numericals.layout.order.positions(rows)
        for files, values in zip(self.files, self.values(label, shifted), strict=True):
            files.write_at(positions, values)
        return {
            split.name: int(
                np.sum(label, where=(rows >= split.start) & (rows < split.stop), dtype=np.int64)
            )
            for split in self.numericals.layout.splits
        }
