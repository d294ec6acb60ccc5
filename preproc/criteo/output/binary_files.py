"""The prepared files: columns that are written by position.

Files are little-endian and row-major without any header. A column file is made at its full size,
all zeros: a full disk shows at once.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preproc.criteo.output.output_order import INPUT_ORDER, OutputOrder
from preproc.criteo.output.splits import Split
from runtime.files.disk import allocate, sync

NUMERICAL_DTYPE = np.dtype("<f2")
LABEL_DTYPE = np.dtype("?")


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

    def write_at(self, positions: np.ndarray, values: np.ndarray) -> None:
        """Writes values[i], [n] or [n, width], at positions[i] of the stored log; in any order, and
        again by a task that is repeated."""
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
