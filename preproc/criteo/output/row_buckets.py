"""Column files whose rows arrive in random order, written out of core.

A row that is written to a random place of a file larger than the page cache costs reading and
writing a whole page. Rows are therefore first appended to the bucket of their place, in one spill
file; then each bucket is put in order in memory and written in one piece.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from preproc.criteo.output.binary_files import ColumnFiles
from preproc.criteo.output.splits import Split
from runtime.files.disk import allocate

_BUCKET_BYTES = 32 << 20  # of the prepared file; a bucket's rows are in memory, and spilled, too


@contextlib.contextmanager
def in_random_order(files: ColumnFiles, scratch: Path) -> Iterator[ColumnFiles]:
    """Yields the files to write each row to once; on leaving, all rows are in `files`.

    These are `files` themselves where rows keep their order, or where a split is as small as a
    bucket.
    """
    order, split = files.layout.order, None
    if not order.is_sequential:  # of all splits but one rows keep their order
        first, _ = order.runs[0]
        split = next(split for split in files.layout.splits if split.start <= first < split.stop)
    if split is None or split.num_rows * files.row_bytes <= _BUCKET_BYTES:
        yield files
        return
    with _Buckets(files, split, scratch / f"{files.file_name}.spill") as buckets:
        settings = {field.name: getattr(files, field.name) for field in fields(ColumnFiles)}
        yield _BucketedFiles(**settings, buckets=buckets)
        buckets.write_all()


class _Buckets:
    """The rows of one split by place; a context manager.

    A bucket has as many rows as places, so its region of the spill file is known beforehand.
    """

    def __init__(self, files: ColumnFiles, split: Split, spill: Path):
        self.split = split
        self._target = files.path(split)
        self._spill = spill
        self._values = np.dtype((files.dtype, (files.width,)))
        self._record = np.dtype([("place", "<u4"), ("values", self._values)])
        self._shift = max(0, (_BUCKET_BYTES // files.row_bytes).bit_length() - 1)
        self._num_rows = np.zeros(((split.num_rows - 1) >> self._shift) + 1, np.int64)

    def __enter__(self) -> "_Buckets":
        allocate(self._spill, self.split.num_rows * self._record.itemsize)
        self._file = os.open(self._spill, os.O_RDWR)
        return self

    def __exit__(self, *exception) -> None:
        os.close(self._file)
        self._spill.unlink(missing_ok=True)

    def add(self, places: np.ndarray, values: np.ndarray) -> None:
        """Appends rows, values [n, width], to the buckets of places [n] within the split."""
        bucket = (places >> self._shift).astype(np.uint16)
        by_bucket = np.argsort(bucket, kind="stable")  # a radix sort, of 16-bit numbers
        records = np.empty(len(places), self._record)
        records["place"] = (places & ((1 << self._shift) - 1))[by_bucket]
        records["values"] = values[by_bucket]
        counts = np.bincount(bucket, minlength=len(self._num_rows))
        content, start = memoryview(records).cast("B"), 0
        for number in np.flatnonzero(counts).tolist():
            stop = start + int(counts[number]) * self._record.itemsize
            first_row = (number << self._shift) + int(self._num_rows[number])
            _write(self._file, content[start:stop], first_row * self._record.itemsize)
            start = stop
        self._num_rows += counts

    def write_all(self) -> None:
        target = os.open(self._target, os.O_WRONLY)
        try:
            for number in np.flatnonzero(self._num_rows).tolist():
                first = number << self._shift
                places = min(1 << self._shift, self.split.num_rows - first)
                rows = np.zeros(places, self._values)
                count, offset = int(self._num_rows[number]), first * self._record.itemsize
                records = np.fromfile(self._spill, self._record, count, offset=offset)
                rows[records["place"]] = records["values"]
                _write(target, memoryview(rows).cast("B"), first * self._values.itemsize)
        finally:
            os.close(target)


@dataclass(frozen=True)
class _BucketedFiles(ColumnFiles):
    buckets: _Buckets | None = None

    def write_at(self, positions: np.ndarray, values: np.ndarray) -> None:
        split, values = self.buckets.split, values.reshape(-1, self.width)
        inside = (positions >= split.start) & (positions < split.stop)
        if inside.all():
            self.buckets.add(positions - split.start, values)
            return
        self.buckets.add(positions[inside] - split.start, values[inside])
        super().write_at(positions[~inside], values[~inside])


def _write(file: int, content: memoryview, offset: int) -> None:
    while content:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written
