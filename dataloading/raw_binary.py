"""Split binaries through `tf.data`, a whole batch at a time: no Python per row."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    Chunk,
    FeatureSpec,
)
from dataloading.row_dataset import Columns, RowDataset, check_features
from dataloading.row_order import BlockShuffle, FileOrder


class RawBinaryDataset(RowDataset):
    """The rows of one mapping of split_binary chunks.

    Without `shuffle` the rows come in file order. With it the order is new in each epoch and a
    function of (seed, epoch) alone: blocks of `block_rows` neighbouring rows are permuted, then
    the rows within windows of `window_rows`. Data of up to one window (524,288 rows) is shuffled
    fully. The files are mapped into memory, not loaded: what stays in memory is page cache.

    Every batch is checked: ids must lie in [0, cardinality), numericals be finite and labels be 0
    or 1. Another row ends the iteration with `tf.errors.InvalidArgumentError`, whose message names
    the feature, the file, the row and the way out; `failure` holds it, too.

    Args:
        spec: with the channels `numerical`, `categorical` (each may be empty) and `label`.
        mapping: e.g. `train`.
        with_labels: False reads no labels: `Batch.labels` is None, and the channel `label`, its
            feature's chunk and the chunk's files may be absent.
        batch_size, rank, world_size, prefetch_batches, parallel_reads: see `RowDataset`.
        global_features: see `RowDataset`. Only the files of these categorical features, of the
            numericals and of the label are opened, and only they must be there; where this rank
            reads none of them, the files of one chunk, to count its rows.
        block_rows: rows that are neighbours on the disk and read together while shuffling.
        window_rows: a multiple of `block_rows`; larger mixes better and needs more page cache.

    Raises:
        ValueError: the spec lacks something, a file is missing or not whole, there are no rows, or
            an argument is out of range.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        mapping: str,
        batch_size: int,
        *,
        with_labels: bool = True,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        global_features: Sequence[int] | None = None,
        prefetch_batches: int = 2,
        parallel_reads: int = 2,
        block_rows: int = 8192,
        window_rows: int = 524_288,
    ):
        label_channels = (LABEL_CHANNEL,) if with_labels else ()
        spec.require(
            "the split_binary loader",
            channels=(NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, *label_channels),
            mappings=(mapping,),
            chunk_types=("split_binary",),
        )
        chunks = spec.source_spec[mapping]
        stored = {
            c.feature: c for index, chunk in enumerate(chunks) for c in _columns(spec, chunk, index)
        }
        numerical = _side_by_side([stored[f] for f in spec.channel(NUMERICAL_CHANNEL)])
        categorical = [stored[f] for f in spec.channel(CATEGORICAL_CHANNEL)]
        labels = [stored[f] for channel in label_channels for f in spec.channel(channel)]
        if global_features is None:
            read = categorical
        else:
            read = [categorical[f] for f in check_features(global_features, len(categorical))]
        used = sorted({column.chunk for column in (*numerical, *read, *labels)})
        if with_labels and global_features is None:
            num_rows = spec.num_rows(mapping)  # checks the files of unused features, too
        else:
            num_rows = spec.num_rows(mapping, used or [_any_chunk(spec, mapping)])
        if num_rows == 0:
            raise ValueError(f"{spec.origin}: source_spec: mapping '{mapping}' has no rows")
        self._chunks = {index: _StoredChunk(spec, chunks[index], index) for index in used}
        self._numerical, self._categorical, self._labels = numerical, categorical, labels
        self._cardinalities = spec.cardinalities(CATEGORICAL_CHANNEL)
        self._origin = f"{spec.origin}: mapping '{mapping}'"
        if shuffle:
            self._order = BlockShuffle(num_rows, seed, block_rows, window_rows)
        else:
            self._order = FileOrder()
        super().__init__(
            num_rows,
            batch_size,
            Columns(
                numerical=tuple(column.kind() for column in numerical),
                categorical=tuple(column.kind() for column in categorical),
                label=labels[0].dtype if labels else None,
            ),
            rank=rank,
            world_size=world_size,
            global_features=global_features,
            prefetch_batches=prefetch_batches,
            parallel_reads=parallel_reads,
        )

    def _read(self, epoch: int, start: int, stop: int, wanted: Sequence[int]) -> list[np.ndarray]:
        rows = self._order.rows(epoch, start, stop)
        columns = [*self._numerical, *self._categorical, *self._labels]
        first_label = len(columns) - len(self._labels)
        used = {columns[number].chunk for number in wanted}
        chunks = {index: self._chunks[index].read(rows) for index in sorted(used)}
        arrays = []
        for number in wanted:
            column = columns[number]
            values = chunks[column.chunk][:, column.begin : column.end]
            if number < len(self._numerical):
                self._check_numericals(column, rows, values)
            elif number < first_label:
                cardinality = self._cardinalities[number - len(self._numerical)]
                self._check_ids(column, cardinality, rows, values)
            else:
                self._check_labels(column, rows, values)
            arrays.append(values)
        return arrays

    def _check_numericals(self, column, rows, values) -> None:
        if _has_non_finite(values):
            raise ValueError(
                self._message(column, rows, values, ~_finite(values))
                + "; numericals must be finite, a NaN kills weights without a word. Write 0 or "
                "a mean for a missing value when preparing the data"
            )

    def _check_ids(self, column, cardinality: int, rows, ids) -> None:
        # One pass: seen as unsigned, negative ids are the largest.
        if ids.size and int(ids.view(f"u{ids.itemsize}").max()) >= cardinality:
            raise ValueError(
                self._message(column, rows, ids, (ids < 0) | (ids >= cardinality))
                + f"; ids lie in [0, {cardinality}). Raise the feature's cardinality in the "
                "feature spec, or give such values a known id (say 0) when preparing the data"
            )

    def _check_labels(self, column, rows, labels) -> None:
        bad = (labels != 0) & (labels != 1)
        if bad.any():
            raise ValueError(
                self._message(column, rows, labels, bad)
                + "; labels are 0 or 1 (bool is a byte of 0 or 1). Prepare the file anew"
            )

    def _message(self, column, rows, values, bad) -> str:
        """Where the first bad value is."""
        first = np.flatnonzero(bad.any(axis=1))[0]
        row = int(rows.start + first if isinstance(rows, slice) else rows[first])
        chunk = self._chunks[column.chunk]
        file, row_in_file = chunk.locate(row)
        position = np.flatnonzero(bad[first])[0]
        feature = chunk.feature_at(column.begin + position)
        return (
            f"{self._origin}: feature '{feature}': found {values[first, position]} in "
            f"row {row} (row {row_in_file} of file '{file}', both counted from 0)"
        )


def _has_non_finite(values: np.ndarray) -> bool:
    """Whether a float array holds NaN or infinity; float16 by its exponent bits, because NumPy
    converts it one value at a time."""
    if values.dtype == np.float16:
        exponent = np.uint16(0x7C00)
        return bool(((values.view(np.uint16) & exponent) == exponent).any())
    return not _finite(values).all()


def _finite(values: np.ndarray) -> np.ndarray:
    """Which values are finite, also as the float32 that the model gets."""
    return np.abs(values.astype(np.float64, copy=False)) <= np.finfo(np.float32).max


class _Column(NamedTuple):
    """The values `begin` to `end - 1` of each row of a chunk: one feature, or neighbouring ones."""

    feature: str
    chunk: int
    dtype: np.dtype
    begin: int
    end: int

    def kind(self) -> tuple[np.dtype, int]:
        return self.dtype, self.end - self.begin


def _columns(spec: FeatureSpec, chunk: Chunk, index: int) -> list[_Column]:
    """One per feature of the chunk at `index`; reads no file."""
    stored = spec.dtype(chunk.features[0])
    # A stored bool is a byte; NumPy and TensorFlow trust that it is 0 or 1, we look.
    dtype = np.dtype("u1") if stored.kind == "b" else stored.newbyteorder("<")
    columns, begin = [], 0
    for feature in chunk.features:
        end = begin + spec.hotness(feature)
        columns.append(_Column(feature, index, dtype, begin, end))
        begin = end
    return columns


def _any_chunk(spec: FeatureSpec, mapping: str) -> int:
    """The number of a chunk whose files are there: enough to count rows of which none is read."""
    chunks = spec.source_spec[mapping]
    for index, chunk in enumerate(chunks):
        if all((spec.base_directory / file).is_file() for file in chunk.files):
            return index
    raise ValueError(
        f"{spec.origin}: source_spec: mapping '{mapping}': nothing of a row is read here, and no "
        f"chunk has all its files in {spec.base_directory} to count the rows; put those of one "
        f"chunk there, e.g. {', '.join(chunks[0].files)}"
    )


class _StoredChunk:
    """The files of a chunk, mapped into memory, as one array [rows, values per row]."""

    def __init__(self, spec: FeatureSpec, chunk: Chunk, index: int):
        self._columns = _columns(spec, chunk, index)
        self._dtype, self._values = self._columns[-1].dtype, self._columns[-1].end
        self._parts, self._first_rows, self._files = [], [0], []
        for file in chunk.files:
            path = spec.base_directory / file
            if path.stat().st_size:  # an empty file cannot be mapped
                part = np.memmap(path, self._dtype, "r").reshape(-1, self._values)
                self._parts.append(part.view(np.ndarray))
                self._first_rows.append(self._first_rows[-1] + len(part))
                self._files.append(file)

    def feature_at(self, position: int) -> str:
        """The feature that a row's value at `position` belongs to."""
        return next(c.feature for c in self._columns if c.begin <= position < c.end)

    def read(self, rows) -> np.ndarray:
        """A copy of the rows of a slice or of an int64 array."""
        if len(self._parts) == 1:
            part = self._parts[0]
            return part[rows].copy() if isinstance(rows, slice) else part.take(rows, axis=0)
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        values = np.empty((len(rows), self._values), self._dtype)
        part_of_row = np.searchsorted(self._first_rows, rows, side="right") - 1
        for index in np.unique(part_of_row):
            chosen = np.flatnonzero(part_of_row == index)
            in_part = rows[chosen] - self._first_rows[index]
            values[chosen] = self._parts[index].take(in_part, axis=0)
        return values

    def locate(self, row: int) -> tuple[str, int]:
        """The file that holds a row, and the row's number in it."""
        part = bisect.bisect_right(self._first_rows, row) - 1
        return self._files[part], row - self._first_rows[part]


def _side_by_side(columns: list[_Column]) -> list[_Column]:
    """Joins columns that follow each other in their chunk, so that they are copied at once."""
    joined = []
    for column in columns:
        last = joined[-1] if joined else None
        if last and (last.chunk, last.end) == (column.chunk, column.begin):
            joined[-1] = last._replace(end=column.end)
        else:
            joined.append(column)
    return joined
