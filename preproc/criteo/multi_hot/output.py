"""Writes parts of a multi-hot data set; each part can be written by any process, and again."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import Chunk, FeatureSpec, smallest_id_dtype
from preproc.criteo.multi_hot.source import MappedColumn, SplitColumns, open_source
from preproc.criteo.multi_hot.tables import Tables
from runtime.files.disk import allocate, sync, write_errors_name

# Bytes of ids in memory at a time, and of a part.
_BLOCK_BYTES, _PART_BYTES = 8 << 20, 1 << 30
_LABEL, _NUMERICAL = "label", "numerical"


class OutputPart(NamedTuple):
    """Samples `start` to `stop` of a column of a split."""

    split: str
    column: str | int  # "label", "numerical", or the position of a categorical feature
    start: int
    stop: int
    file: str  # relative to the data set


@dataclass(frozen=True)
class OutputJob:
    """Paths and numbers that all processes share.

    Attributes:
        input: Folder of the source.
        data: Folder that is written.
        tables: Folder of the tables.
        cardinalities, hotness: Of the categorical features that are written.
        takes_modulo: Whether ids beyond the cardinality are allowed, and taken modulo it.
    """

    input: Path
    data: Path
    tables: Path
    cardinalities: tuple[int, ...]
    hotness: tuple[int, ...]
    takes_modulo: bool


class PartWriter:
    """Writes the parts of a job."""

    def __init__(self, job: OutputJob):
        self.job = job
        self.source = open_source(job.input)
        extends = self.source.hotness != list(job.hotness)
        self._tables = Tables(job.tables, job.cardinalities, job.hotness) if extends else None

    def parts(self) -> list[OutputPart]:
        """Returns all parts, large ones first."""
        parts = []
        for split, columns in self.source.splits.items():
            for column in (_LABEL, _NUMERICAL, *range(len(self.source.categorical))):
                if column == _NUMERICAL and not self.source.numerical:
                    continue
                parts += self._column_parts(split, column, len(columns))
        return sorted(parts, key=lambda part: -(part.stop - part.start) * self._width(part.column))

    def _column_parts(self, split: str, column: str | int, rows: int) -> Iterator[OutputPart]:
        name = f"cat_{column}" if isinstance(column, int) else column
        per_part = max(1, _PART_BYTES // self._row_bytes(column))
        for start in range(0, rows, per_part):
            stop = min(rows, start + per_part)
            yield OutputPart(split, column, start, stop, f"{split}/{name}.bin")

    def create(self, parts: list[OutputPart]) -> None:
        """Creates the files of parts."""
        for part in parts:
            path = self.job.data / part.file
            path.parent.mkdir(parents=True, exist_ok=True)
            allocate(path, len(self.source.splits[part.split]) * self._row_bytes(part.column))

    def write(self, part: OutputPart) -> None:
        path, row_bytes = self.job.data / part.file, self._row_bytes(part.column)
        block = max(1, _BLOCK_BYTES // (8 * self._width(part.column)))
        with write_errors_name(path), path.open("r+b") as file:
            file.seek(part.start * row_bytes)
            for start in range(part.start, part.stop, block):
                stop = min(part.stop, start + block)
                file.write(self._read(part.split, part.column, start, stop).tobytes())
        sync(path)

    def _read(self, split: str, column: str | int, start: int, stop: int) -> np.ndarray:
        """Returns samples of a column in the stored dtype."""
        columns, dtype = self.source.splits[split], self.dtype(column)
        if isinstance(column, int):
            return self._ids(columns.categorical[column], column, start, stop).astype(dtype)
        read = self._numericals if column == _NUMERICAL else self._labels
        return read(columns, start, stop, dtype)

    def _numericals(
        self, columns: SplitColumns, start: int, stop: int, dtype: np.dtype
    ) -> np.ndarray:
        values = [column.read_as(dtype, start, stop) for column in columns.numerical]
        return np.concatenate(values, axis=1)

    def _labels(self, columns: SplitColumns, start: int, stop: int, dtype: np.dtype) -> np.ndarray:
        labels = columns.label.read_as(dtype, start, stop)
        if (bad := (labels != 0) & (labels != 1)).any():
            place = columns.label.place(start + int(np.argmax(bad)))
            raise ValueError(f"{place}: expected 0 or 1, got {labels[bad][0]}")
        return labels

    def _ids(self, column: MappedColumn, feature: int, start: int, stop: int) -> np.ndarray:
        ids = column.read_as(np.int64, start, stop)
        cardinality = self.job.cardinalities[feature]
        if self.job.takes_modulo:
            ids = ids % cardinality
        if (bad := (ids < 0) | (ids >= cardinality)).any():
            row, position = np.argwhere(bad)[0]
            raise ValueError(
                f"{column.place(start + int(row))}: expected an id from 0 to {cardinality - 1}, "
                f"got {ids[row, position]}"
            )
        return ids if self._tables is None else self._tables.extend(feature, ids[:, 0])

    def _row_bytes(self, column: str | int) -> int:
        return self._width(column) * self.dtype(column).itemsize

    def _width(self, column: str | int) -> int:
        if isinstance(column, int):
            return self.job.hotness[column]
        return len(self.source.numerical) if column == _NUMERICAL else 1

    def dtype(self, column: str | int) -> np.dtype:
        """Returns the stored dtype of a column."""
        if isinstance(column, int):
            return smallest_id_dtype(self.job.cardinalities[column])
        if column == _LABEL:
            return np.dtype(bool)
        split = next(iter(self.source.splits.values()))
        return np.result_type(*(part.dtype for part in split.numerical))

    def finish(self, parts: list[OutputPart], metadata: dict) -> list[Path]:
        """Writes the feature spec of the parts; returns its file and theirs, relative to the data
        set."""
        spec = self._feature_spec(parts, metadata)
        spec.validate_files()
        spec.to_yaml(self.job.data / SPEC_FILE)
        return [Path(file) for file in sorted({part.file for part in parts} | {SPEC_FILE})]

    def _feature_spec(self, parts: list[OutputPart], metadata: dict) -> FeatureSpec:
        source, job = self.source, self.job
        features = {"label": {"dtype": self.dtype(_LABEL).name}}
        features |= {name: {"dtype": self.dtype(_NUMERICAL).name} for name in source.numerical}
        names = {_LABEL: ["label"], _NUMERICAL: source.numerical}
        for feature, name in enumerate(source.categorical):
            names[feature] = [name]
            features[name] = {
                "dtype": self.dtype(feature).name,
                "cardinality": job.cardinalities[feature],
                "hotness": job.hotness[feature],
            }
        chunks = {split: {} for split in source.splits}
        for part in sorted(parts, key=lambda part: part.start):
            files = chunks[part.split].setdefault(part.column, [])
            files += [part.file] if part.file not in files else []
        sources = {
            split: [
                Chunk("split_binary", names[column], files) for column, files in by_column.items()
            ]
            for split, by_column in chunks.items()
        }
        channels = {
            fs.NUMERICAL_CHANNEL: source.numerical,
            fs.CATEGORICAL_CHANNEL: source.categorical,
            fs.LABEL_CHANNEL: ["label"],
        }
        return FeatureSpec(features, sources, channels, metadata, base_directory=job.data)
