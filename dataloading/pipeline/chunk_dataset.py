"""Stored rows as batches: what the loaders of files share, whatever a file looks like."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.pipeline.checks import check_ids, check_labels, check_numericals
from dataloading.pipeline.ragged import Ragged
from dataloading.pipeline.row_dataset import Columns, RowDataset, check_features
from dataloading.pipeline.shuffle import BlockShuffle, FileOrder
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    Chunk,
    FeatureSpec,
)


class StoredChunk:
    """The files of a chunk, open, as rows of `width` values; a subclass for each type of chunk.

    Attributes:
        num_rows: of all files.
        dtype: of the values.
        ragged: rows differ in length; the chunk then has one feature.
    """

    num_rows: int
    dtype: np.dtype
    ragged: bool = False

    def read(self, rows: slice | np.ndarray) -> np.ndarray | Ragged:
        """A copy `[rows, width]` of the rows of a slice or of an int64 array, or as many ragged
        ones."""
        raise NotImplementedError

    def locate(self, row: int) -> tuple[str, int]:
        """The file that holds a row, and the row's number in it."""
        raise NotImplementedError


class ChunkDataset(RowDataset):
    """The rows of one mapping whose chunks are all of the type that a subclass reads.

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

    Attributes:
        split: the mapping.

    Raises:
        ValueError: the spec lacks something, a file is missing or not whole, there are no rows, or
            an argument is out of range.
    """

    chunk_type: str

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
            f"the {self.chunk_type} loader",
            channels=(NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, *label_channels),
            mappings=(mapping,),
            chunk_types=(self.chunk_type,),
        )
        stored = {
            column.feature: column
            for index, chunk in enumerate(spec.source_spec[mapping])
            for column in columns_of(spec, chunk, index)
        }
        numerical = _side_by_side([stored[f] for f in spec.channel(NUMERICAL_CHANNEL)])
        categorical = [stored[f] for f in spec.channel(CATEGORICAL_CHANNEL)]
        labels = [stored[f] for channel in label_channels for f in spec.channel(channel)]
        if global_features is None:
            read = categorical
        else:
            read = [categorical[f] for f in check_features(global_features, len(categorical))]
        used = sorted({column.chunk for column in (*numerical, *read, *labels)})
        # Where all is read, the files of features in no channel are checked, too.
        self._chunks, num_rows = self._open_chunks(
            spec, mapping, used, everything=with_labels and global_features is None
        )
        if num_rows == 0:
            raise ValueError(f"{spec.origin}: source_spec: mapping '{mapping}' has no rows")
        self._numerical, self._categorical, self._labels = numerical, categorical, labels
        self._cardinalities = spec.cardinalities(CATEGORICAL_CHANNEL)
        self._origin = f"{spec.origin}: mapping '{mapping}'"
        self.split = mapping
        if shuffle:
            self._order = BlockShuffle(num_rows, seed, block_rows, window_rows)
        else:
            self._order = FileOrder()
        super().__init__(
            num_rows,
            batch_size,
            Columns(
                numerical=tuple(map(self._kind, numerical)),
                categorical=tuple(
                    (_id_dtype(dtype, spec.dtype(column.feature)), values)
                    for column in categorical
                    for dtype, values in [self._kind(column)]
                ),
                label=self._kind(labels[0])[0] if labels else None,
            ),
            rank=rank,
            world_size=world_size,
            global_features=global_features,
            prefetch_batches=prefetch_batches,
            parallel_reads=parallel_reads,
        )

    def _open_chunks(
        self, spec: FeatureSpec, mapping: str, used: list[int], everything: bool
    ) -> tuple[dict[int, StoredChunk], int]:
        """The chunks with the numbers `used`, and the mapping's rows, of which all have as many.

        Args:
            everything: whether the other chunks are checked, too.
        """
        raise NotImplementedError

    def _kind(self, column: "Column") -> tuple[np.dtype, int | None]:
        """dtype and values per row; of a chunk that is not read here, what the spec says."""
        chunk = self._chunks.get(column.chunk)
        if chunk is None:
            return column.dtype, column.end - column.begin
        return chunk.dtype, None if chunk.ragged else column.end - column.begin

    def _read(
        self, epoch: int, start: int, stop: int, wanted: Sequence[int]
    ) -> list[np.ndarray | Ragged]:
        rows = self._order.rows(epoch, start, stop)
        columns = [*self._numerical, *self._categorical, *self._labels]
        kinds = self.columns.all()
        first_label = len(columns) - len(self._labels)
        used = {columns[number].chunk for number in wanted}
        chunks = {index: self._chunks[index].read(rows) for index in sorted(used)}
        arrays = []
        for number in wanted:
            column = columns[number]
            found = chunks[column.chunk]
            if not isinstance(found, Ragged):
                found = found[:, column.begin : column.end]
            values = found.values if isinstance(found, Ragged) else found
            where = functools.partial(self._message, column, rows, found)
            if number < len(self._numerical):
                check_numericals(values, where)
            elif number < first_label:
                check_ids(values, self._cardinalities[number - len(self._numerical)], where)
            else:
                check_labels(values, where)
            values = values.astype(kinds[number][0], copy=False)
            arrays.append(found._replace(values=values) if isinstance(found, Ragged) else values)
        return arrays

    def _message(self, column, rows, found, bad: np.ndarray) -> str:
        """Where the first bad value is."""
        if isinstance(found, Ragged):
            position = np.flatnonzero(bad)[0]
            first = np.searchsorted(found.row_splits, position, side="right") - 1
            feature, value = column.feature, found.values[position]
        else:
            first = np.flatnonzero(bad.any(axis=1))[0]
            position = np.flatnonzero(bad[first])[0]
            feature, value = column.features[position], found[first, position]
        row = int(rows.start + first if isinstance(rows, slice) else rows[first])
        file, row_in_file = self._chunks[column.chunk].locate(row)
        return (
            f"{self._origin}: feature '{feature}': found {value} in "
            f"row {row} (row {row_in_file} of file '{file}', both counted from 0)"
        )


def _id_dtype(stored: np.dtype, wanted: np.dtype) -> np.dtype:
    """In which dtype ids are handed on: as they are stored, int64 where the spec says so, and int32
    where only the files are wider."""
    if wanted == np.int64:
        return np.dtype(np.int64)
    return stored if stored.itemsize <= 4 else np.dtype(np.int32)


class Column(NamedTuple):
    """The values `begin` to `end - 1` of each row of a chunk: one feature, or neighbouring ones.

    features: that of each value.
    dtype: of the feature spec.
    """

    features: tuple[str, ...]
    chunk: int
    dtype: np.dtype
    begin: int
    end: int

    @property
    def feature(self) -> str:
        return self.features[0]


def columns_of(spec: FeatureSpec, chunk: Chunk, index: int) -> list[Column]:
    """One per feature of the chunk at `index`; reads no file."""
    stored = spec.dtype(chunk.features[0])
    # A stored bool is a byte; NumPy and TensorFlow trust that it is 0 or 1, we look.
    dtype = np.dtype("u1") if stored.kind == "b" else stored.newbyteorder("<")
    columns, begin = [], 0
    for feature in chunk.features:
        end = begin + spec.hotness(feature)
        columns.append(Column((feature,) * (end - begin), index, dtype, begin, end))
        begin = end
    return columns


def any_chunk(spec: FeatureSpec, mapping: str) -> int:
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


def _side_by_side(columns: list[Column]) -> list[Column]:
    """Joins columns that follow each other in their chunk, so that they are copied at once."""
    joined = []
    for column in columns:
        last = joined[-1] if joined else None
        if last and (last.chunk, last.end) == (column.chunk, column.begin):
            features = last.features + column.features
            joined[-1] = last._replace(features=features, end=column.end)
        else:
            joined.append(column)
    return joined
