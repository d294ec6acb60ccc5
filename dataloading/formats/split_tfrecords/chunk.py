"""One chunk of split TFRecords, open: which record has which row, and the rows' bytes."""

import numpy as np

from dataloading.formats.split_tfrecords.folder_format import read_format
from dataloading.formats.split_tfrecords.gather import gather, gather_rows
from dataloading.formats.tfrecord.mapped_files import MappedFiles
from dataloading.formats.tfrecord.wire import (
    DTYPES,
    Malformed,
    Tensor,
    is_whole,
    records,
    tensors_of,
)
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import Chunk, FeatureSpec

# Of a mapping; those of its training and evaluation, and what else is open, are 1,024 at most.
_MAPPED_FILES = 256


class RecordChunk:
    """The files of a `tfrecord` chunk, mapped into memory where they are read; any number of them.

    Opening it goes through the heads of all records once and keeps 57 bytes of each. A record's
    checksum is verified when a row of it is read for the first time. Which rows are together in a
    record is of no account to the reader.

    Raises:
        ValueError: a file is not there, cut off, damaged, or not what `format.json` says.
    """

    def __init__(self, spec: FeatureSpec, mapping: str, chunk: Chunk):
        self._where = f"{spec.origin}: mapping '{mapping}'"
        self._chunk = chunk
        folders = sorted({(spec.base_directory / file).parent for file in chunk.files})
        if len(folders) > 1:
            raise ValueError(
                f"{self._where}: the files of feature '{chunk.features[0]}' are in "
                f"{', '.join(map(str, folders))}; allowed: one folder, whose format.json holds for "
                "all of them"
            )
        self.format = read_format(folders[0])
        self.dtype = np.dtype(self.format.dtype).newbyteorder("<")
        if self.dtype.kind == "b":
            self.dtype = np.dtype("u1")
        self._hotness = [spec.hotness(feature) for feature in chunk.features]
        self._check_format(folders[0])
        self.ragged = self.format.multihot and self.format.hotness is None
        self._width = None if self.ragged else sum(self._hotness)
        self._contents = MappedFiles(
            [spec.base_directory / file for file in chunk.files],
            _MAPPED_FILES // len(spec.source_spec[mapping]),
        )
        self._index()

    def _check_format(self, folder) -> None:
        features, said = self._chunk.features, self.format
        if said.multihot and len(features) > 1:
            raise ValueError(
                f"{folder}: multihot is true and the chunk has the features {', '.join(features)}; "
                "allowed: one multi-hot feature a folder"
            )
        stored = said.hotness if said.multihot else said.num_features
        if stored is not None and stored != sum(self._hotness):
            raise ValueError(
                f"{folder}: {stored} values per row; the feature spec has {sum(self._hotness)} "
                f"(features {', '.join(features)}): correct the features or their hotness there"
            )
        if self.dtype not in DTYPES.values():
            raise ValueError(
                f"{folder}: dtype is {said.dtype}; the loader reads "
                f"{', '.join(sorted({dtype.name for dtype in DTYPES.values()}))}"
            )

    def _index(self) -> None:
        """Finds where each record and its tensors are: file, start and stop of the content, offset
        and number of values, offset of the row splits."""
        found, num_rows, splits_dtypes = [], [], set()
        for number, content in enumerate(self._contents):
            view = memoryview(content)
            try:
                for start, stop in records(content):
                    tensors = self._tensors(view, start, stop)
                    num_rows.append(self._rows_of(tensors))
                    values = tensors[0]
                    found.append(
                        (number, start, stop, values.offset, values.size, tensors[-1].offset)
                    )
                    splits_dtypes |= {tensor.dtype for tensor in tensors[1:]}
            except Malformed as error:
                raise ValueError(
                    f"{self._where}: file '{self._chunk.files[number]}' {error} (feature "
                    f"'{self._chunk.features[0]}', prebatch {len(found)}); make the file anew"
                ) from None
        # One contiguous array of each, because a shuffled batch gathers from them.
        columns = np.array(found, np.int64).reshape(-1, 6).T.copy()
        self._files, self._starts, self._stops = columns[:3]
        self._begins, self._num_values, self._splits_begin = columns[3:]
        self._first_rows = np.concatenate([[0], np.cumsum(num_rows, dtype=np.int64)])
        # Where all prebatches but the last are of one size, a division finds the record.
        sizes = set(num_rows[:-1])
        regular = len(sizes) == 1 and num_rows[-1] <= num_rows[0] and 0 not in num_rows
        self._prebatch = num_rows[0] if regular or len(num_rows) == 1 else 0
        self._verified = np.zeros(len(found), bool)
        self._splits_dtype = splits_dtypes.pop() if splits_dtypes else np.dtype(np.int32)
        if splits_dtypes:
            raise ValueError(
                f"{self._where}: feature '{self._chunk.features[0]}': row splits of int32 in some "
                "prebatches and of int64 in others; allowed: one dtype"
            )

    def _tensors(self, view: memoryview, start: int, stop: int) -> list[Tensor]:
        """The tensors of a record. A record that cannot be read is first of all a damaged one."""
        try:
            tensors = tensors_of(view, start, stop, self.format.feature_name)
            self._rows_of(tensors)
        except Malformed:
            if not is_whole(np.asarray(view), start, stop):
                raise Malformed("is damaged: the checksum of a record differs") from None
            raise
        return tensors

    def _rows_of(self, tensors: list[Tensor]) -> int:
        """Rows of a prebatch, whose tensors must be what `format.json` says."""
        values = tensors[0]
        if len(tensors) != 1 + self.format.multihot:
            kind = "multi-hot" if self.format.multihot else "plain"
            raise Malformed(f"holds {len(tensors)} tensors in a record, not those of a {kind} one")
        if values.dtype != self.dtype:
            raise Malformed(f"holds {values.dtype}, and format.json says {self.format.dtype}")
        if not self.format.multihot:
            shape = (values.size // self._width, self._width)
            if values.shape != shape and (self._width != 1 or values.shape != shape[:1]):
                raise Malformed(f"holds a prebatch of shape {list(values.shape)}, not {shape}")
            return shape[0]
        splits = tensors[1]
        if splits.dtype.name not in ("int32", "int64") or len(splits.shape) != 1 or not splits.size:
            raise Malformed(f"holds row splits of shape {list(splits.shape)} and {splits.dtype}")
        return splits.size - 1

    @property
    def num_rows(self) -> int:
        return int(self._first_rows[-1])

    @property
    def num_prebatches(self) -> int:
        """Records of all files."""
        return len(self._files)

    @property
    def num_values(self) -> int:
        """Values of all rows."""
        return int(self._num_values.sum())

    def locate(self, row: int) -> tuple[str, int]:
        number = int(self._files[self._record_of(row)])
        first = np.searchsorted(self._files, number)
        return self._chunk.files[number], row - int(self._first_rows[first])

    def read(self, rows: slice | np.ndarray) -> np.ndarray | Ragged:
        read = self._read_run if isinstance(rows, slice) else self._read_scattered
        found = read(rows)
        return found if self.ragged else found.reshape(-1, self._width)

    def _read_run(self, rows: slice) -> np.ndarray | Ragged:
        """The values of neighbouring rows."""
        start, size = rows.start, self.dtype.itemsize
        row_splits, num_values = _aligned(4 * (rows.stop - start + 1)).view(np.int32), 0
        row_splits[0] = 0
        runs = []  # of each record: its number, first and last value + 1
        while start < rows.stop:
            record = int(self._record_of(start))
            self._verify(record)
            first = int(self._first_rows[record])
            stop = min(rows.stop, int(self._first_rows[record + 1]))
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
        found, end = _aligned(num_values * size), 0
        for record, low, high in runs:
            begin = int(self._begins[record])
            part = self._contents[self._files[record]][begin + low * size : begin + high * size]
            found[end : end + len(part)] = part
            end += len(part)
        values = found.view(self.dtype)
        return Ragged(values, row_splits) if self.ragged else values

    def _read_scattered(self, rows: np.ndarray) -> np.ndarray | Ragged:
        """The values of any rows."""
        record = self._record_of(rows)
        if not self._verified[record].all():
            for needed in np.unique(record):
                self._verify(int(needed))
        file = self._files[record] if len(self._contents) > 1 else None
        in_record = rows - self._first_rows[record]
        size, step = self.dtype.itemsize, self._splits_dtype.itemsize
        if not self.ragged:
            width = self._width * size
            offsets = self._begins[record] + in_record * width
            return gather(self._contents, file, offsets, width).view(self.dtype)
        offsets = self._splits_begin[record] + in_record * step
        ends = gather(self._contents, file, offsets, 2 * step).view(self._splits_dtype)
        lengths = ends[1::2] - ends[::2]
        offsets = self._begins[record] + ends[::2].astype(np.int64) * size
        found = gather_rows(self._contents, file, offsets, lengths, size)
        return Ragged.from_lengths(found.view(self.dtype), lengths)

    def _record_of(self, rows):
        if self._prebatch:
            return rows // self._prebatch
        return np.searchsorted(self._first_rows, rows, side="right") - 1

    def _row_splits(self, record: int, start: int, stop: int) -> np.ndarray:
        """The row splits `start` to `stop`, the last one included, of a record."""
        step, begin = self._splits_dtype.itemsize, int(self._splits_begin[record])
        content = self._contents[self._files[record]]
        return (
            content[begin + start * step : begin + (stop + 1) * step]
            .copy()
            .view(self._splits_dtype)
        )

    def _verify(self, record: int) -> None:
        """Checks a record's checksum and its row splits, once."""
        if self._verified[record]:
            return
        content = self._contents[self._files[record]]
        if not is_whole(content, int(self._starts[record]), int(self._stops[record])):
            raise ValueError(
                self._message(record)
                + ": the checksum differs, the file is damaged; make the file anew"
            )
        if self.format.multihot:
            self._verify_lengths(record)
        self._verified[record] = True

    def _verify_lengths(self, record: int) -> None:
        num_values = int(self._num_values[record])
        first, end = self._first_rows[record : record + 2].tolist()
        splits = self._row_splits(record, 0, end - first)
        lengths = np.diff(splits)
        if splits[0] != 0 or splits[-1] != num_values or (lengths < 0).any():
            raise ValueError(
                self._message(record) + f": its row splits do not lead from 0 to the {num_values} "
                "ids that it has; make the file anew"
            )
        (hotness,) = self._hotness
        bad = lengths > hotness if self.ragged else lengths != hotness
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            rule = (
                f"the feature's hotness {hotness} in the feature spec is the most that a row may "
                "have: raise it there"
                if self.ragged
                else f"format.json says that every row has {hotness}: make the file anew, or set "
                "hotness to null there"
            )
            raise ValueError(
                self._message(record, first + row) + f" has {lengths[row]} ids; {rule}"
            )

    def _message(self, record: int, row: int | None = None) -> str:
        """Where a prebatch, or one of its rows, is."""
        first = int(self._first_rows[record])
        file, row_in_file = self.locate(first if row is None else row)
        what = f"the prebatch from row {first} on" if row is None else f"row {row}"
        return (
            f"{self._where}: feature '{self._chunk.features[0]}': {what} (row {row_in_file} of "
            f"file '{file}', both counted from 0)"
        )


def _aligned(num_bytes: int) -> np.ndarray:
    """uint8 [num_bytes] at an address that TensorFlow takes over without a copy."""
    buffer = np.empty(num_bytes + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + num_bytes]
