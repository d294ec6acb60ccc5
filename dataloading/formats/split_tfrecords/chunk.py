"""Open chunks of split TFRecords: the values of samples, from the bytes of records."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dataloading.formats.split_tfrecords.folder_format import read_format
from dataloading.formats.tfrecord.framing import RecordError, is_intact
from dataloading.formats.tfrecord.index import RecordIndex
from dataloading.formats.tfrecord.wire import Tensor, tensors_of
from dataloading.pipeline.gather import (
    Located,
    Scattered,
    aligned,
    are_row_splits,
    gather,
    gather_ragged,
    locate,
    read_splits,
)
from dataloading.pipeline.ragged import Ragged, Samples, row_splits_of
from dataloading.spec.feature_spec import Chunk, FeatureSpec

# Of a split; those of training and evaluation, and other open files, are at most 1,024.
_MAPPED_FILES = 256


class RecordChunk:
    """The files of a `tfrecord` chunk, mapped into memory where they are read; see `OpenChunk`.

    Opening it parses the heads of all records once and keeps 73 bytes of each. A record's checksum
    and row splits are verified when a sample of it is read for the first time. Samples are
    independent of record boundaries.

    Raises:
        ValueError: a file is missing, truncated, damaged, or contradicts `format.json`.
    """

    def __init__(self, spec: FeatureSpec, split: str, chunk: Chunk):
        where = f"{spec.origin}: split '{split}': feature '{chunk.features[0]}'"
        folders = sorted({(spec.base_directory / file).parent for file in chunk.files})
        if len(folders) > 1:
            raise ValueError(
                f"{where}: expected files in one folder, whose format.json describes all of them; "
                f"got {', '.join(map(str, folders))}"
            )
        self.format = read_format(folders[0])
        self.dtype = np.dtype(self.format.dtype).newbyteorder("<")
        if self.dtype.kind == "b":
            self.dtype = np.dtype("u1")
        self._hotness = sum(spec.hotness(feature) for feature in chunk.features)
        self._check_format(folders[0], chunk.features)
        self.ragged = self.format.multihot and self.format.hotness is None
        self._width = None if self.ragged else self._hotness
        self._splits_dtype: np.dtype | None = None
        self._index = RecordIndex(
            spec.base_directory,
            chunk.files,
            where,
            _MAPPED_FILES // len(spec.source_spec[split]),
            inspect=self._inspect,
            num_facts=4,
            check=self._check_lengths if self.format.multihot else None,
        )
        num_samples, self._begins, self._num_values, self._splits_begin = self._index.facts
        self._index.set_num_samples(num_samples)
        # Sample n's values, or its row split where ragged, are at its record's origin + n * step.
        if self.ragged:
            begins, self._step = self._splits_begin, (self._splits_dtype or np.dtype("i4")).itemsize
        else:
            begins, self._step = self._begins, self._width * self.dtype.itemsize
        self._origins = begins - self._index.first_samples[:-1] * self._step

    def _check_format(self, folder: Path, features: tuple[str, ...]) -> None:
        stated = self.format
        if stated.multihot and len(features) > 1:
            raise ValueError(
                f"{folder}: multihot is true and the chunk has the features {', '.join(features)}; "
                "expected one multi-hot feature per folder"
            )
        stored = stated.hotness if stated.multihot else stated.num_features
        if stored not in (None, self._hotness):
            raise ValueError(
                f"{folder}: {stored} values per row; the feature spec has {self._hotness} "
                f"(features {', '.join(features)}): correct the features or their hotness there"
            )

    def _inspect(self, content: memoryview, start: int, stop: int) -> tuple[int, int, int, int]:
        """Returns samples, offset and number of values, and offset of the row splits."""
        try:
            tensors = tensors_of(content, start, stop, self.format.feature_name)
            num_samples = self._num_samples_of(tensors)
        except RecordError:
            # A record that cannot be read is most likely a damaged one.
            if not is_intact(np.asarray(content), start, stop):
                raise RecordError("is damaged: the checksum of a record differs") from None
            raise
        values, splits = tensors[0], tensors[-1]
        if self.format.multihot:
            self._splits_dtype = self._splits_dtype or splits.dtype
            if splits.dtype != self._splits_dtype:
                raise RecordError("has row splits of int32 and of int64; expected one dtype")
        return num_samples, values.offset, values.size, splits.offset

    def _num_samples_of(self, tensors: list[Tensor]) -> int:
        """Returns the samples of a record, whose tensors must match `format.json`."""
        values = tensors[0]
        if len(tensors) != 1 + self.format.multihot:
            kind = "multi-hot" if self.format.multihot else "plain"
            raise RecordError(
                f"holds {len(tensors)} tensors in a record, not those of a {kind} one"
            )
        if values.dtype != self.dtype:
            raise RecordError(f"holds {values.dtype}, expected {self.format.dtype} (format.json)")
        if not self.format.multihot:
            shape = (values.size // self._width, self._width)
            if values.shape != shape and (self._width != 1 or values.shape != shape[:1]):
                raise RecordError(f"holds a prebatch of shape {list(values.shape)}, not {shape}")
            return shape[0]
        splits = tensors[1]
        if splits.dtype.name not in ("int32", "int64") or len(splits.shape) != 1 or not splits.size:
            raise RecordError(f"holds row splits of shape {list(splits.shape)} and {splits.dtype}")
        return splits.size - 1

    @property
    def num_samples(self) -> int:
        """Samples of all files."""
        return self._index.num_samples

    @property
    def num_prebatches(self) -> int:
        """Records of all files."""
        return self._index.num_records

    @property
    def num_values(self) -> int:
        """Values of all samples."""
        return int(self._num_values.sum())

    def locate(self, sample: int) -> tuple[str, int]:
        return self._index.locate(sample)

    def read(self, samples: range | Scattered) -> Samples:
        read = self._read_run if isinstance(samples, range) else self._read_scattered
        content, row_splits = read(samples)
        values = content.view(self.dtype)
        if row_splits is not None:
            return Ragged(values, row_splits)
        return values.reshape(-1, self._width)

    def _read_run(self, samples: range) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns bytes and row splits of neighboring samples, copied record by record."""
        index, size = self._index, self.dtype.itemsize
        runs, lengths = [], [np.empty(0, np.int64)]
        last = int(index.record_of(samples.stop - 1))
        for record in range(int(index.record_of(samples.start)), last + 1):
            index.verify(np.array([record]))
            first, end = index.first_samples[record : record + 2].tolist()
            start, stop = max(samples.start, first) - first, min(samples.stop, end) - first
            if self.ragged:
                splits = self._row_splits(record, start, stop)
                lengths.append(np.diff(splits))
                low, high = int(splits[0]), int(splits[-1])
            else:
                low, high = start * self._width, stop * self._width
            begin = int(self._begins[record])
            runs.append((int(index.files[record]), begin + low * size, begin + high * size))
        values, end = aligned(sum(stop - start for _, start, stop in runs)), 0
        for file, start, stop in runs:  # copied one by one: a view would keep its file mapped
            begin, end = end, end + stop - start
            values[begin:end] = index.content(file)[start:stop]
        return values, row_splits_of(np.concatenate(lengths)) if self.ragged else None

    def _read_scattered(self, scattered: Scattered) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns bytes and row splits of any samples."""
        samples, places = scattered
        records = (self._index.first_samples, self._origins, self._step)
        located = locate(samples, *records, self._begins if self.ragged else None)
        self._index.verify(located.records)
        parts, offsets = list(self._parts(located)), located.offsets
        if not self.ragged:
            values = aligned(len(samples) * self._step)
            for file, part in parts:
                content = self._index.content(file)
                gather(content, offsets[part], places[part], self._step, values)
            return values, None
        begins, lengths = located.begins, np.empty(len(samples), np.int64)
        dtype, size = self._splits_dtype, self.dtype.itemsize
        for file, part in parts:
            content = self._index.content(file)
            read_splits(content, offsets[part], places[part], dtype, size, begins[part], lengths)
        row_splits = row_splits_of(lengths)
        values = aligned(int(row_splits[-1]) * size)
        for file, part in parts:
            content = self._index.content(file)
            gather_ragged(content, begins[part], places[part], size, row_splits, values)
        return values, row_splits

    def _parts(self, located: Located) -> Iterator[tuple[int, slice]]:
        """Yields each file of samples, ascending, and the slice of its samples."""
        runs = np.searchsorted(located.records, self._index.first_records)
        bounds = located.run_starts[runs].tolist()
        for file, (start, stop) in enumerate(itertools.pairwise(bounds)):
            if start < stop:
                yield file, slice(start, stop)

    def _row_splits(self, record: int, start: int, stop: int) -> np.ndarray:
        """Returns the row splits `start` to `stop`, including the last one, of a record."""
        step, begin = self._splits_dtype.itemsize, int(self._splits_begin[record])
        content = self._index.content(int(self._index.files[record]))
        return content[begin + start * step : begin + (stop + 1) * step].view(self._splits_dtype)

    def _check_lengths(self, record: int) -> None:
        """Raises ValueError for row splits that are not those of a record's values."""
        num_values = int(self._num_values[record])
        first, end = self._index.first_samples[record : record + 2].tolist()
        splits, hotness = self._row_splits(record, 0, end - first), self._hotness
        if are_row_splits(splits, num_values, hotness, self.ragged):
            return
        lengths = np.diff(splits)
        if splits[0] != 0 or splits[-1] != num_values or (lengths < 0).any():
            raise ValueError(
                f"{self._index.location(record)}: its row splits do not lead from 0 to the "
                f"{num_values} ids that it has; write the file again"
            )
        invalid = lengths > hotness if self.ragged else lengths != hotness
        if invalid.any():
            sample = int(np.flatnonzero(invalid)[0])
            rule = (
                f"the feature's hotness {hotness} in the feature spec is the maximum: raise it"
                if self.ragged
                else f"format.json states {hotness} for every row: write the file again, or set "
                "hotness to null there"
            )
            raise ValueError(
                f"{self._index.location(record, sample)} has {lengths[sample]} ids; {rule}"
            )
