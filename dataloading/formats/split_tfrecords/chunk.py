"""Open chunks of split TFRecords: the values of rows, from the bytes of records."""

from pathlib import Path

import numpy as np

from dataloading.formats.split_tfrecords.folder_format import read_format
from dataloading.formats.split_tfrecords.gather import gather, gather_rows
from dataloading.formats.tfrecord.framing import RecordError, is_intact
from dataloading.formats.tfrecord.index import RecordIndex
from dataloading.formats.tfrecord.wire import DTYPES, Tensor, tensors_of
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import Chunk, FeatureSpec

# Of a split; those of training and evaluation, and other open files, are at most 1,024.
_MAPPED_FILES = 256


class RecordChunk:
    """The files of a `tfrecord` chunk, mapped into memory where they are read; see `OpenChunk`.

    Opening it parses the heads of all records once and keeps 65 bytes of each. A record's checksum
    and row splits are verified when a row of it is read for the first time. Rows are independent of
    record boundaries.

    Raises:
        ValueError: a file is missing, truncated, damaged, or contradicts `format.json`.
    """

    def __init__(self, spec: FeatureSpec, split: str, chunk: Chunk):
        where = f"{spec.origin}: mapping '{split}': feature '{chunk.features[0]}'"
        self._chunk = chunk
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
        self._hotness = [spec.hotness(feature) for feature in chunk.features]
        self._check_format(folders[0])
        self.ragged = self.format.multihot and self.format.hotness is None
        self._width = None if self.ragged else sum(self._hotness)
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
        num_rows, self._begins, self._num_values, self._splits_begin = self._index.facts
        self._index.set_num_rows(num_rows)

    def _check_format(self, folder: Path) -> None:
        features, stated = self._chunk.features, self.format
        if stated.multihot and len(features) > 1:
            raise ValueError(
                f"{folder}: multihot is true and the chunk has the features {', '.join(features)}; "
                "expected one multi-hot feature per folder"
            )
        stored = stated.hotness if stated.multihot else stated.num_features
        if stored is not None and stored != sum(self._hotness):
            raise ValueError(
                f"{folder}: {stored} values per row; the feature spec has {sum(self._hotness)} "
                f"(features {', '.join(features)}): correct the features or their hotness there"
            )
        if self.dtype not in DTYPES.values():
            raise ValueError(
                f"{folder}: dtype is {stated.dtype}; the loader reads "
                f"{', '.join(sorted({dtype.name for dtype in DTYPES.values()}))}"
            )

    def _inspect(self, content: memoryview, start: int, stop: int) -> tuple[int, int, int, int]:
        """Returns rows, offset and number of values, and offset of the row splits of a record."""
        try:
            tensors = tensors_of(content, start, stop, self.format.feature_name)
            num_rows = self._rows_of(tensors)
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
        return num_rows, values.offset, values.size, splits.offset

    def _rows_of(self, tensors: list[Tensor]) -> int:
        """Returns the rows of a record, whose tensors must match `format.json`."""
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
    def num_rows(self) -> int:
        """Rows of all files."""
        return self._index.num_rows

    @property
    def num_prebatches(self) -> int:
        """Records of all files."""
        return self._index.num_records

    @property
    def num_values(self) -> int:
        """Values of all rows."""
        return int(self._num_values.sum())

    def locate(self, row: int) -> tuple[str, int]:
        """See `OpenChunk`."""
        return self._index.locate(row)

    def read(self, rows: slice | np.ndarray) -> np.ndarray | Ragged:
        """See `OpenChunk`."""
        read = self._read_run if isinstance(rows, slice) else self._read_scattered
        values = read(rows)
        return values if self.ragged else values.reshape(-1, self._width)

    def _read_run(self, rows: slice) -> np.ndarray | Ragged:
        """Returns the values of neighboring rows."""
        index, start, size = self._index, rows.start, self.dtype.itemsize
        row_splits, num_values = _aligned(4 * (rows.stop - start + 1)).view(np.int32), 0
        row_splits[0] = 0
        runs = []  # of each record: its number, first and last value + 1
        while start < rows.stop:
            record = int(index.record_of(start))
            index.verify(np.array([record]))
            first = int(index.first_rows[record])
            stop = min(rows.stop, int(index.first_rows[record + 1]))
            if self.ragged:
                splits = self._row_splits(record, start - first, stop - first)
                low, high = int(splits[0]), int(splits[-1])
                target = row_splits[start - rows.start + 1 : stop - rows.start + 1]
                np.add(splits[1:], num_values - low, out=target, casting="unsafe")
            else:
                low, high = (start - first) * self._width, (stop - first) * self._width
            runs.append((record, low, high))
            num_values += high - low
            start = stop
        # Bytes are copied one by one, because the numbers begin anywhere in a file; and record by
        # record, because what is not a copy keeps its file open.
        buffer, end = _aligned(num_values * size), 0
        for record, low, high in runs:
            begin = int(self._begins[record])
            part = index.contents[index.files[record]][begin + low * size : begin + high * size]
            buffer[end : end + len(part)] = part
            end += len(part)
        values = buffer.view(self.dtype)
        return Ragged(values, row_splits) if self.ragged else values

    def _read_scattered(self, rows: np.ndarray) -> np.ndarray | Ragged:
        """Returns the values of any rows."""
        index = self._index
        record = index.record_of(rows)
        index.verify(record)
        file = index.files[record] if len(index.contents) > 1 else None
        in_record = rows - index.first_rows[record]
        size = self.dtype.itemsize
        if not self.ragged:
            width = self._width * size
            offsets = self._begins[record] + in_record * width
            return gather(index.contents, file, offsets, width).view(self.dtype)
        splits_dtype = self._splits_dtype or np.dtype(np.int32)
        offsets = self._splits_begin[record] + in_record * splits_dtype.itemsize
        ends = gather(index.contents, file, offsets, 2 * splits_dtype.itemsize).view(splits_dtype)
        lengths = ends[1::2] - ends[::2]
        offsets = self._begins[record] + ends[::2].astype(np.int64) * size
        values = gather_rows(index.contents, file, offsets, lengths, size)
        return Ragged.from_lengths(values.view(self.dtype), lengths)

    def _row_splits(self, record: int, start: int, stop: int) -> np.ndarray:
        """Returns the row splits `start` to `stop`, including the last one, of a record."""
        step, begin = self._splits_dtype.itemsize, int(self._splits_begin[record])
        content = self._index.contents[self._index.files[record]]
        part = content[begin + start * step : begin + (stop + 1) * step]
        return part.copy().view(self._splits_dtype)

    def _check_lengths(self, record: int) -> None:
        """Raises ValueError for row splits that are not those of a record's values."""
        num_values = int(self._num_values[record])
        first, end = self._index.first_rows[record : record + 2].tolist()
        splits = self._row_splits(record, 0, end - first)
        lengths = np.diff(splits)
        if splits[0] != 0 or splits[-1] != num_values or (lengths < 0).any():
            raise ValueError(
                f"{self._index.location(record)}: its row splits do not lead from 0 to the "
                f"{num_values} ids that it has; write the file again"
            )
        (hotness,) = self._hotness
        invalid = lengths > hotness if self.ragged else lengths != hotness
        if invalid.any():
            row = int(np.flatnonzero(invalid)[0])
            rule = (
                f"the feature's hotness {hotness} in the feature spec is the maximum: raise it"
                if self.ragged
                else f"format.json states {hotness} for every row: write the file again, or set "
                "hotness to null there"
            )
            raise ValueError(f"{self._index.location(record, row)} has {lengths[row]} ids; {rule}")


def _aligned(num_bytes: int) -> np.ndarray:
    """uint8 [num_bytes] at an address that TensorFlow takes over without a copy."""
    buffer = np.empty(num_bytes + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + num_bytes]
