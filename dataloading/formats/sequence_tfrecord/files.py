"""The record files of one mapping of a data set of histories: which record holds which rows.

A record is a tf.train.Example with one int64 list a feature. It holds one row, or a prebatch: those
of some rows one after the other. The records of a file hold equally many, the last one perhaps
fewer.
"""

import numpy as np

from dataloading.formats.sequence_tfrecord.decode import count_values
from dataloading.formats.tfrecord.mapped_files import MappedFiles
from dataloading.formats.tfrecord.wire import Malformed, is_whole, records
from dataloading.pipeline.columns import Column
from dataloading.spec.feature_spec import FeatureSpec

# Of a mapping; those of its training and evaluation are well below the 1,024 of a process.
_MAPPED_FILES = 128


class RecordFiles:
    """The records of all files, numbered through. The files are mapped into memory, not loaded.

    Opening them goes through the heads of all records once (2 microseconds each) and keeps 25 bytes
    of each. How many rows records hold is looked up in the first and the last one of each file;
    the others are checked when they are decoded, and a checksum when its record is first read.

    Args:
        counted: a column of one value per row.

    Attributes:
        prebatch: the most rows that a record holds; 1 where each holds a single row.
        first_rows: int64 `[records + 1]`, the number of each record's first row.

    Raises:
        ValueError: a file is not there, cut off, damaged, or a record is none of this data set.
    """

    def __init__(self, spec: FeatureSpec, mapping: str, counted: Column):
        spec.validate_files(mapping)
        (chunk,) = spec.source_spec[mapping]
        self._where = f"{spec.origin}: mapping '{mapping}'"
        self._names = chunk.files
        self.prebatch = 1  # until the records are counted
        self._contents = MappedFiles(
            [spec.base_directory / file for file in chunk.files], _MAPPED_FILES
        )
        spans = [self._spans_of(number) for number in range(len(self._names))]
        self._first_records = np.cumsum([0, *map(len, spans)])
        self._spans = np.concatenate(spans)
        self._verified = np.zeros(len(self._spans), bool)
        num_rows = np.zeros(len(self._spans), np.int64)  # of each record
        for first, stop in zip(self._first_records, self._first_records[1:], strict=False):
            if first < stop:
                num_rows[first:stop] = self._count(first, counted)
                num_rows[stop - 1] = self._count(stop - 1, counted)
        self.first_rows = np.concatenate([[0], np.cumsum(num_rows)])
        self.prebatch = int(num_rows.max(initial=1))
        # Where all records but the last are of one size, a division finds that of a row.
        self._regular = bool((num_rows[:-1] == self.prebatch).all())

    def _spans_of(self, number: int) -> np.ndarray:
        """int64 `[records, 2]`: where the content of each record of a file starts and stops."""
        try:
            found = np.fromiter(records(self._contents[number]), np.dtype((np.int64, 2)))
        except Malformed as error:
            raise ValueError(
                f"{self._where}: file '{self._names[number]}' {error}; make the file anew"
            ) from None
        return found.reshape(-1, 2)

    def _count(self, record: int, counted: Column) -> int:
        (content,) = self.contents([record])

        def locate(_, row):
            return self.place(record, row)

        rows = count_values(content, counted, locate)
        if rows == 0:
            raise ValueError(
                f"{self.place(record)} has no values of feature '{counted.feature}'; correct the "
                "names in the feature spec, or make the file anew"
            )
        return rows

    @property
    def num_rows(self) -> int:
        return int(self.first_rows[-1])

    @property
    def num_records(self) -> int:
        return len(self._spans)

    def record_of(self, rows: np.ndarray) -> np.ndarray:
        """The records that hold these rows, int64."""
        if self._regular:
            return rows // self.prebatch
        return np.searchsorted(self.first_rows, rows, side="right") - 1

    def contents(self, numbers) -> list[bytes]:
        """The serialized Example of each of these records.

        Raises:
            ValueError: a checksum differs.
        """
        found = []
        content, begin, end = None, 0, 0  # bytes of a file, its first record and the one behind
        for number, (start, stop) in zip(numbers, self._spans[numbers].tolist(), strict=True):
            if not begin <= number < end:
                file = self._file_of(number)
                begin, end = self._first_records[file : file + 2]
                content = self._contents[file]
            if not self._verified[number]:
                if not is_whole(content, start, stop):
                    raise ValueError(
                        f"{self.place(number)}: the checksum differs, the file is damaged; make "
                        "the file anew"
                    )
                self._verified[number] = True
            found.append(content[start:stop].tobytes())
        return found

    def place(self, record: int, row: int | None = None) -> str:
        """How messages call a record, or a row of it."""
        file = self._file_of(record)
        where = f"record {record - self._first_records[file]} of file '{self._names[file]}'"
        if row is not None and self.prebatch > 1:
            where = f"row {row} of {where}"
        return f"{self._where}: {where} (counted from 0)"

    def _file_of(self, record: int) -> int:
        return int(np.searchsorted(self._first_records, record, side="right")) - 1
