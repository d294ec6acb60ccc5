"""Index of TFRecord files: where each record is, and which samples it holds."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dataloading.formats.tfrecord.framing import RecordError, is_intact, records


class RecordIndex:
    """The records of several files, numbered consecutively.

    Opening reads the headers of all records once (2 microseconds each). A checksum is verified when
    its record is first read. The files are mapped, not loaded. A map needs a descriptor, of which a
    process often has 1,024 and a data set can have more files: `max_mapped` stay mapped. Mapping
    one again takes microseconds, and its bytes are still in the page cache.

    Args:
        folder: the folder that `names` are relative to.
        names: paths of the files; they must stay as they are.
        where: name of data set and split in messages.
        max_mapped: files that stay mapped.
        inspect: returns `num_facts` integers to keep of each record, from the bytes of a file and
            the start and stop of the record; raises `RecordError`.
        check: checks a record, by its number, after its checksum.

    Attributes:
        content: file number -> its bytes, uint8 `[size]`; raises ValueError if it has changed.
        files, starts, stops: int64 `[records]`; file of each record, and its content there.
        facts: int64 `[num_facts, records]`.
        first_records: int64 `[files + 1]`, number of each file's first record.
        first_samples: int64 `[records + 1]`, number of each record's first sample; see
            `set_num_samples`.
        prebatch: maximum number of samples per record.

    Raises:
        ValueError: a file is truncated or damaged.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        where: str,
        max_mapped: int,
        *,
        inspect: Callable[[memoryview, int, int], Sequence[int]] | None = None,
        num_facts: int = 0,
        check: Callable[[int], None] | None = None,
    ):
        self._names, self._where = names, where
        self._inspect, self._num_facts, self._check = inspect, num_facts, check
        self._paths = [folder / name for name in names]
        self._states = [_state(path) for path in self._paths]
        # Safe where several batches are read at the same time: a map that is dropped while it is
        # read is closed after the reading.
        self.content = functools.lru_cache(max_mapped)(self._map)
        entries = [self._entries(number) for number in range(len(names))]
        sizes = [len(part) for part in entries]
        self.files = np.repeat(np.arange(len(names)), sizes)
        # One contiguous array of each, because a shuffled batch gathers from them.
        columns = np.concatenate(entries).T.copy()
        self.starts, self.stops, self.facts = columns[0], columns[1], columns[2:]
        self.first_records = np.cumsum([0, *sizes])
        self._verified = np.zeros(len(self.files), bool)
        self.prebatch = 1

    def _map(self, file: int) -> np.ndarray:
        path, state = self._paths[file], self._states[file]
        if not path.exists() or _state(path) != state:
            raise ValueError(
                f"{path} was changed or removed while the data set was read; read it again, and "
                "write other data into another folder"
            )
        if not path.stat().st_size:  # an empty file cannot be mapped
            return np.empty(0, np.uint8)
        return np.memmap(path, np.uint8, "r").view(np.ndarray)

    def _entries(self, file: int) -> np.ndarray:
        """Returns int64 `[records, 2 + num_facts]`: start, stop and facts of a file's records."""
        content = self.content(file)
        view = memoryview(content)
        entries = records(content)
        if self._inspect is not None:
            entries = ((*span, *self._inspect(view, *span)) for span in entries)
        width = 2 + self._num_facts
        try:
            return np.fromiter(entries, np.dtype((np.int64, width))).reshape(-1, width)
        except RecordError as error:
            raise ValueError(
                f"{self._where}: file '{self._names[file]}' {error}; write the file again"
            ) from None

    def set_num_samples(self, num_samples: np.ndarray) -> None:
        """Sets the number of samples of each record, `[records]`."""
        self.first_samples = np.concatenate([[0], np.cumsum(num_samples, dtype=np.int64)])
        self.prebatch = int(num_samples.max(initial=1))
        # If all records but the last have the same size, a division finds that of a sample.
        self._is_regular = bool((num_samples[:-1] == self.prebatch).all())

    @property
    def num_samples(self) -> int:
        """Samples of all records."""
        return int(self.first_samples[-1])

    @property
    def num_records(self) -> int:
        """Records of all files."""
        return len(self.files)

    def record_of(self, rows):
        """Returns the records that hold these samples, or the record of one sample."""
        if self._is_regular:
            return rows // self.prebatch
        return np.searchsorted(self.first_samples, rows, side="right") - 1

    def verify(self, numbers: np.ndarray) -> None:
        """Verifies those of these records that are read for the first time; raises ValueError."""
        verified = self._verified[numbers]
        if verified.all():
            return
        for record in np.unique(numbers[~verified]).tolist():
            start, stop = int(self.starts[record]), int(self.stops[record])
            if not is_intact(self.content(int(self.files[record])), start, stop):
                raise ValueError(
                    f"{self.location(record)}: the checksum differs, the file is damaged; write "
                    "the file again"
                )
            if self._check is not None:
                self._check(record)
            self._verified[record] = True

    def read(self, numbers: np.ndarray) -> list[bytes]:
        """Returns the content of each of these records; raises ValueError as `verify`."""
        self.verify(numbers)
        spans = (self.files[numbers], self.starts[numbers], self.stops[numbers])
        spans = zip(*(part.tolist() for part in spans), strict=True)
        return [self.content(file)[start:stop].tobytes() for file, start, stop in spans]

    def locate(self, row: int) -> tuple[str, int]:
        """Returns the file that holds a sample, and the sample's number in it."""
        file = int(self.files[self.record_of(row)])
        return self._names[file], row - int(self.first_samples[self.first_records[file]])

    def location(self, record: int, row: int | None = None) -> str:
        """Returns how messages name a record, or a sample of it, counted within the record."""
        file = int(self.files[record])
        where = f"record {record - self.first_records[file]} of file '{self._names[file]}'"
        if row is not None and self.prebatch > 1:
            where = f"row {row} of {where}"
        return f"{self._where}: {where} (counted from 0)"


def _state(path: Path) -> tuple[int, int, int]:
    """Returns the size, and what differs where the file was written or replaced."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino
