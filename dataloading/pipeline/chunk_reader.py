"""Reading of splits whose features are stored in chunks of files, with a check of every value."""

import bisect
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.gather import Scattered
from dataloading.pipeline.ragged import Ragged, Samples
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.spans import Span


class OpenChunk:
    """The open files of a chunk; the reader of a format makes it of (spec, split, chunk).

    Attributes:
        dtype: of all values: features of other dtypes are other chunks.
        ragged: whether samples differ in length; the chunk then has one feature.
        num_samples: of all files.
        files, starts: files with samples, and the number of the first sample of each, then the end.
    """

    dtype: np.dtype
    ragged = False
    num_samples: int
    files: Sequence[str]
    starts: list[int]

    def read(self, samples: range | Scattered) -> Samples:
        """Returns a copy `[samples, width]` of the samples of a range (of step 1) or of a batch,
        in its order."""
        raise NotImplementedError

    def locate(self, sample: int) -> tuple[str, int]:
        """Returns the file that holds a sample, and the sample's number in it."""
        number = bisect.bisect_right(self.starts, sample) - 1
        return self.files[number], sample - self.starts[number]


def stored_dtype(spec: FeatureSpec, feature: str) -> np.dtype:
    """Returns the dtype to read the values of a feature with."""
    dtype = spec.dtype(feature)
    # A stored bool is a byte; NumPy and TensorFlow trust that it is 0 or 1, so we check it.
    return np.dtype("u1") if dtype.kind == "b" else dtype.newbyteorder("<")


class ChunkReader:
    """Reads and checks the columns of a split; a `SampleReader`.

    Args:
        columns: role and values of each column.
        chunks: number -> open chunk, of those that are read.
        num_samples: samples of the split, at least one.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        columns: Iterable[tuple[Role, Span]],
        chunks: Mapping[int, OpenChunk],
        num_samples: int,
    ):
        if num_samples == 0:
            raise ValueError(f"{spec.origin}: source_spec: split '{split}' has no rows")
        self.num_samples = num_samples
        self._chunks = chunks
        self._origin = f"{spec.origin}: split '{split}'"
        self._spans = {
            _column(spec, role, span, chunks.get(span.chunk)): span for role, span in columns
        }
        self.columns = tuple(self._spans)

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[Samples]:
        # Sorted once for all chunks.
        wanted = samples if isinstance(samples, range) else Scattered.from_batch(samples)
        numbers = sorted({self._spans[column].chunk for column in columns})
        stored = {number: self._chunks[number].read(wanted) for number in numbers}
        arrays = []
        for column in columns:
            span = self._spans[column]
            array = stored[span.chunk]
            if isinstance(array, Ragged):
                values = array.values
            else:
                values = array = array[:, span.begin : span.end]
            column.check(values, functools.partial(self.location, column, samples, array))
            values = values.astype(column.dtype, copy=False)
            arrays.append(array._replace(values=values) if isinstance(array, Ragged) else values)
        return arrays

    def location(
        self, column: Column, samples: range | np.ndarray, array: Samples, invalid: np.ndarray
    ) -> str:
        """Returns the first half of a message: the first invalid value of these samples."""
        span = self._spans[column]
        if isinstance(array, Ragged):
            position = np.flatnonzero(invalid)[0]
            first = np.searchsorted(array.row_splits, position, side="right") - 1
            feature, value = column.feature, array.values[position]
        else:
            first = np.flatnonzero(invalid.any(axis=1))[0]
            position = np.flatnonzero(invalid[first])[0]
            feature, value = span.features[position], array[first, position]
        place = self.place(column, int(samples[first]))
        return f"{self._origin}: feature '{feature}': found {value} in {place}"

    def place(self, column: Column, sample: int) -> str:
        """Returns the row of a sample and its location in the files of a column, for messages."""
        file, row_in_file = self._chunks[self._spans[column].chunk].locate(sample)
        return f"row {sample} (row {row_in_file} of file '{file}', both counted from 0)"


def _column(spec: FeatureSpec, role: Role, span: Span, chunk: OpenChunk | None) -> Column:
    """Returns the column of some values; if the chunk is not read here, from the spec."""
    feature = span.features[0]
    dtype = stored_dtype(spec, feature) if chunk is None else chunk.dtype
    width = None if chunk is not None and chunk.ragged else span.end - span.begin
    if role is not Role.CATEGORICAL:
        return Column(role, feature, dtype, width, features=span.features)
    # Ids stay as they are stored: int64 if the spec has it, int32 if only the file is wider.
    if spec.dtype(feature) == np.int64:
        dtype = np.dtype(np.int64)
    elif dtype.itemsize > 4:
        dtype = np.dtype(np.int32)
    return Column(role, feature, dtype, width, spec.cardinality(feature))
