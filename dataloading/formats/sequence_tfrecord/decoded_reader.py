"""Samples of histories, decoded once into temporary files."""

from collections.abc import Sequence

from dataloading.formats.records import Spool, read_records
from dataloading.formats.sequence_tfrecord.decode import count_values, decode
from dataloading.pipeline.columns import ArrayReader, Column
from dataloading.spec.feature_spec import FeatureSpec

# Decoded at a time, so that TensorFlow's int64 numbers take little memory.
_SAMPLES_AT_A_TIME = 16_384


class DecodedReader(ArrayReader):
    """Reads samples of a split by their numbers. Safe for several threads.

    Args:
        columns: features that are decoded; others of the records are skipped.
        counted: a column of one value per sample: as many samples has a record.

    Attributes:
        num_samples: samples of the split.
        num_records: records of all files.
        prebatch: maximum number of samples per record, at least 1.

    Raises:
        ValueError: a file is missing or damaged, or a record is invalid (`decode`).
    """

    def __init__(self, spec: FeatureSpec, split: str, columns: Sequence[Column], counted: Column):
        spec.validate_files(split)
        self.num_records, self.prebatch = 0, 1
        self._where = f"{spec.origin}: split '{split}'"
        self._decoded = [counted, *(column for column in columns if column != counted)]
        spools = {column: Spool(column.dtype) for column in self._decoded}
        for file in spec.source_spec[split][0].files:
            self._read_file(spec, file, spools)
        super().__init__({c: spool.array().reshape(-1, c.width) for c, spool in spools.items()})
        self.columns = tuple(columns)

    def _read_file(self, spec: FeatureSpec, file: str, spools: dict[Column, Spool]) -> None:
        source, start = (spec.base_directory, file, self._where), 0

        def locate(number, row):
            where = f"record {start + number} of file '{file}' (counted from 0)"
            return f"{self._where}: {where if row is None else f'row {row} of {where}'}"

        first = next(read_records(*source), None)
        if first is None:
            return
        size = count_values(first[0], self._decoded[0], locate)
        for records in read_records(*source, max(1, _SAMPLES_AT_A_TIME // max(1, size))):
            num_samples, arrays = decode(records, self._decoded, locate)
            for column, array in zip(self._decoded, arrays, strict=True):
                spools[column].add(array)
            self.prebatch = max(self.prebatch, int(num_samples.max()))
            start += len(records)
        self.num_records += start
