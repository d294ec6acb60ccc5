"""Reading of splits whose features are stored in chunks of files, with a check of every value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dataloading.pipeline.checks import check_ids, check_labels, check_numericals
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.ragged import Ragged
from dataloading.pipeline.sample_dataset import StoredOptions, check_features
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    Chunk,
    FeatureSpec,
)


class OpenChunk(Protocol):
    """The open files of a chunk.

    Attributes:
        dtype: dtype of the values.
        ragged: rows differ in length; the chunk then has one feature.
    """

    dtype: np.dtype
    ragged: bool

    def read(self, rows: slice | np.ndarray) -> np.ndarray | Ragged:
        """Returns a copy `[rows, width]` of the rows of a slice or of an int64 array, which is
        ascending unless the chunk is ragged."""

    def locate(self, row: int) -> tuple[str, int]:
        """Returns the file that holds a row, and the row's number in it."""


class Span(NamedTuple):
    """Neighboring values of each row of a chunk: those of a feature, or of several.

    Attributes:
        chunk: number of the chunk in the split.
        begin, end: the values `begin` to `end - 1` of a row.
        features: feature of each of these values.
    """

    chunk: int
    begin: int
    end: int
    features: tuple[str, ...]


def spans_of(spec: FeatureSpec, chunk: Chunk, number: int) -> dict[str, Span]:
    """Returns the values of each feature of the chunk with this number; reads no file."""
    spans, begin = {}, 0
    for feature in chunk.features:
        end = begin + spec.hotness(feature)
        spans[feature] = Span(number, begin, end, (feature,) * (end - begin))
        begin = end
    return spans


def stored_dtype(spec: FeatureSpec, feature: str) -> np.dtype:
    """Returns the dtype to read the values of a feature with."""
    dtype = spec.dtype(feature)
    # A stored bool is a byte; NumPy and TensorFlow trust that it is 0 or 1, so we check it.
    return np.dtype("u1") if dtype.kind == "b" else dtype.newbyteorder("<")


class ChunkLayout:
    """The columns of a split, and the chunks that store them.

    Args:
        spec: with the channels `numerical`, `categorical` (each may be empty) and `label`.
        split: e.g. `train`.
        chunk_type: type that all chunks of the split must have.
        options: with `global_features`, only the files of these categorical features, of the
            numerical features and of the label must exist; if this rank reads none of them, the
            files of one chunk, to count its rows.

    Attributes:
        chunks: the chunks of the split.
        spans: values of each column, in the order of the channels; neighboring numerical features
            are one column.
        used: numbers of the chunks that are read.
        checked: numbers of the chunks whose files must be complete.

    Raises:
        ValueError: the spec does not meet these requirements.
    """

    def __init__(self, spec: FeatureSpec, split: str, chunk_type: str, options: StoredOptions):
        labels = (LABEL_CHANNEL,) if options.with_labels else ()
        spec.require(
            f"the {chunk_type} loader",
            channels=(NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, *labels),
            mappings=(split,),
            chunk_types=(chunk_type,),
        )
        self.spec, self.split = spec, split
        self.chunks = spec.source_spec[split]
        spans = {}
        for number, chunk in enumerate(self.chunks):
            spans |= spans_of(spec, chunk, number)
        numerical = _joined(spans[feature] for feature in spec.channel(NUMERICAL_CHANNEL))
        categorical = [spans[feature] for feature in spec.channel(CATEGORICAL_CHANNEL)]
        label = [spans[feature] for channel in labels for feature in spec.channel(channel)]
        self.spans = [
            *((Role.NUMERICAL, span) for span in numerical),
            *((Role.CATEGORICAL, span) for span in categorical),
            *((Role.LABEL, span) for span in label),
        ]
        reads_all = options.global_features is None
        if not reads_all:
            numbers = check_features(options.global_features, len(categorical))
            categorical = [categorical[number] for number in numbers]
        self.used = sorted({span.chunk for span in (*numerical, *categorical, *label)})
        if reads_all and options.with_labels:
            # Includes the files of features that are in no channel.
            self.checked = list(range(len(self.chunks)))
        else:
            self.checked = self.used or [self._any_chunk()]

    def _any_chunk(self) -> int:
        """Returns the number of a chunk whose files exist: enough to count rows."""
        for number, chunk in enumerate(self.chunks):
            if all((self.spec.base_directory / file).is_file() for file in chunk.files):
                return number
        raise ValueError(
            f"{self.spec.origin}: source_spec: mapping '{self.split}': nothing of a row is read "
            f"here, and no chunk has all its files in {self.spec.base_directory} to count the "
            f"rows; put those of one chunk there, e.g. {', '.join(self.chunks[0].files)}"
        )


class ChunkReader:
    """Reads and checks the columns of a split; a `SampleReader`.

    Ids must be in [0, cardinality), numerical values finite, and labels 0 or 1. The message for
    any other value names the feature, the file, the row and the solution.

    Args:
        layout: the columns.
        chunks: number -> open chunk, of `layout.used`.
        num_samples: samples of the split.

    Raises:
        ValueError: the split has no samples.
    """

    def __init__(self, layout: ChunkLayout, chunks: Mapping[int, OpenChunk], num_samples: int):
        spec = layout.spec
        if num_samples == 0:
            raise ValueError(f"{spec.origin}: source_spec: mapping '{layout.split}' has no rows")
        self.num_samples = num_samples
        self._chunks = chunks
        self._origin = f"{spec.origin}: mapping '{layout.split}'"
        self._spans = {_column(spec, role, span, chunks): span for role, span in layout.spans}
        self.columns = tuple(self._spans)

    def read(
        self, samples: slice | np.ndarray, columns: Sequence[Column]
    ) -> list[np.ndarray | Ragged]:
        """See `SampleReader`."""
        rows = self._rows_of_chunks(samples, {self._spans[column].chunk for column in columns})
        arrays = []
        for column in columns:
            span = self._spans[column]
            array = rows[span.chunk]
            if not isinstance(array, Ragged):
                array = array[:, span.begin : span.end]
            values = self._checked(column, span, samples, array)
            values = values.astype(column.dtype, copy=False)
            arrays.append(array._replace(values=values) if isinstance(array, Ragged) else values)
        return arrays

    def _rows_of_chunks(self, samples, numbers: set[int]) -> dict[int, np.ndarray | Ragged]:
        """Returns the rows of these samples, by the number of the chunk."""
        if isinstance(samples, slice):
            return {number: self._chunks[number].read(samples) for number in sorted(numbers)}
        # In ascending order a chunk is read once through, which is faster than jumping in it: the
        # jumps are then within a batch, which fits into the caches.
        order = np.argsort(samples)
        ascending, position = samples[order], np.empty_like(order)
        position[order] = np.arange(len(order))
        rows = {}
        for number in sorted(numbers):
            chunk = self._chunks[number]
            if chunk.ragged:
                rows[number] = chunk.read(samples)
            else:
                rows[number] = _taken(chunk.read(ascending), position)
        return rows

    def _checked(self, column: Column, span: Span, samples, array) -> np.ndarray:
        """Returns the values of an array of a column."""
        values = array.values if isinstance(array, Ragged) else array

        def where(invalid: np.ndarray) -> str:
            return self._location(span, samples, array, invalid)

        if column.role is Role.NUMERICAL:
            check_numericals(values, where)
        elif column.role is Role.LABEL:
            check_labels(values, where)
        else:
            check_ids(values, column.cardinality, where)
        return values

    def _location(self, span: Span, samples, array, invalid: np.ndarray) -> str:
        """Returns the first half of a message: the first invalid value and its location."""
        if isinstance(array, Ragged):
            position = np.flatnonzero(invalid)[0]
            first = np.searchsorted(array.row_splits, position, side="right") - 1
            feature, value = span.features[0], array.values[position]
        else:
            first = np.flatnonzero(invalid.any(axis=1))[0]
            position = np.flatnonzero(invalid[first])[0]
            feature, value = span.features[position], array[first, position]
        row = int(samples.start + first if isinstance(samples, slice) else samples[first])
        file, row_in_file = self._chunks[span.chunk].locate(row)
        return (
            f"{self._origin}: feature '{feature}': found {value} in "
            f"row {row} (row {row_in_file} of file '{file}', both counted from 0)"
        )


def _column(spec: FeatureSpec, role: Role, span: Span, chunks: Mapping[int, OpenChunk]) -> Column:
    """Returns the column of some values; if the chunk is not read here, from the spec."""
    feature = span.features[0]
    chunk = chunks.get(span.chunk)
    dtype = stored_dtype(spec, feature) if chunk is None else chunk.dtype
    width = None if chunk is not None and chunk.ragged else span.end - span.begin
    if role is not Role.CATEGORICAL:
        return Column(role, feature, dtype, width)
    # Ids stay as they are stored: int64 if the spec has it, int32 if only the file is wider.
    if spec.dtype(feature) == np.int64:
        dtype = np.dtype(np.int64)
    elif dtype.itemsize > 4:
        dtype = np.dtype(np.int32)
    return Column(role, feature, dtype, width, spec.cardinality(feature))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Joins values that follow each other in their chunk, so that they are copied at once."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and (last.chunk, last.end) == (span.chunk, span.begin):
            features = last.features + span.features
            joined[-1] = last._replace(features=features, end=span.end)
        else:
            joined.append(span)
    return joined


def _taken(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Returns rows `[n, width]` by their numbers; each is copied as one value."""
    whole = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * rows.itemsize}").reshape(-1)
    return whole.take(index).view(rows.dtype).reshape(-1, rows.shape[1])
