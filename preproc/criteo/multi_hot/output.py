"""Writes parts of a multi-hot data set; each part can be written by any process, and again."""

import itertools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dataloading.formats.split_tfrecords.folder_format import LENGTH_FILE, Format
from dataloading.formats.split_tfrecords.writer import RecordFile
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import Chunk, FeatureSpec, smallest_id_dtype
from preproc.criteo.multi_hot.source import MappedColumn, SourceData, SplitColumns, open_source
from preproc.criteo.multi_hot.tables import Tables
from runtime.files.disk import allocate, sync, write_errors_name

# Bytes of ids in memory at a time, and of a part.
_BLOCK_BYTES, _PART_BYTES = 8 << 20, 1 << 30
_LABEL, _NUMERICAL = "label", "numerical"


class OutputPart(NamedTuple):
    """Samples `start` to `stop` of a column of a split; of all columns for a day of .npz files."""

    split: str
    # "label", "numerical", or the position of a categorical feature; None: all
    column: str | int | None
    start: int
    stop: int
    file: str  # relative to the data set; it has this part only, or holds it from `offset` on
    offset: int = 0


@dataclass(frozen=True)
class OutputJob:
    """Paths and numbers that all processes share.

    Attributes:
        input: Folder of the source.
        data: Folder that is written.
        tables: Folder of the tables.
        format: See `MultiHotOptions`.
        cardinalities, hotness: Of the categorical features that are written.
        takes_modulo: Whether ids beyond the cardinality are allowed, and taken modulo it.
        prebatch_size: Samples of a record.
        days: Days of --format npz.
    """

    input: Path
    data: Path
    tables: Path
    format: str
    cardinalities: tuple[int, ...]
    hotness: tuple[int, ...]
    takes_modulo: bool
    prebatch_size: int
    days: int


class PartWriter:
    """Writes the parts of a job."""

    def __init__(self, job: OutputJob):
        self.job = job
        self.source = open_source(job.input)
        extends = self.source.hotness != list(job.hotness)
        self._tables = Tables(job.tables, job.cardinalities, job.hotness) if extends else None

    def parts(self) -> list[OutputPart]:
        """Returns all parts, large ones first."""
        if self.job.format == "npz":
            return _day_parts(self.source, self.job.days)
        parts = []
        for split, columns in self.source.splits.items():
            for column in (_LABEL, _NUMERICAL, *range(len(self.source.categorical))):
                if column == _NUMERICAL and not self.source.numerical:
                    continue
                parts += self._column_parts(split, column, len(columns))
        return sorted(parts, key=lambda part: -(part.stop - part.start) * self._width(part.column))

    def _column_parts(self, split: str, column: str | int, rows: int) -> Iterator[OutputPart]:
        is_binary = self.job.format == "tf_raw"
        name = f"cat_{column}" if isinstance(column, int) else column
        row_bytes = self._row_bytes(column)
        per_part = max(1, _PART_BYTES // row_bytes)
        if not is_binary:
            name = f"categorical_{column}" if isinstance(column, int) else column
            size = self.job.prebatch_size
            per_part = max(size, per_part // size * size)
        for number, start in enumerate(range(0, rows, per_part)):
            file = f"{name}.bin" if is_binary else f"{name}/data_{number}.tfrecords"
            stop = min(rows, start + per_part)
            yield OutputPart(split, column, start, stop, f"{split}/{file}", start * row_bytes)

    def create(self, parts: list[OutputPart]) -> None:
        """Creates the folders of parts, and files that several parts may share."""
        for part in parts:
            path = self.job.data / part.file
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.job.format == "tf_raw":
                rows = len(self.source.splits[part.split])
                allocate(path, rows * self._row_bytes(part.column))

    def write(self, part: OutputPart) -> None:
        path = self.job.data / part.file
        with write_errors_name(path):
            if part.column is None:
                self._write_day(path, part)
            elif self.job.format == "tf_raw":
                with path.open("r+b") as file:
                    file.seek(part.offset)
                    for span in _ranges(part.start, part.stop, 8 * self._width(part.column)):
                        file.write(self._read(part.split, part.column, *span).tobytes())
                sync(path)
            else:
                size = self.job.prebatch_size
                with RecordFile(path, self.format_of(part.column)) as file:
                    for start in range(part.start, part.stop, size):
                        stop = min(part.stop, start + size)
                        file.write(self._read(part.split, part.column, start, stop))
                sync(path)

    def _write_day(self, path: Path, part: OutputPart) -> None:
        split, prefix = self._days_of(part.split), path.name.split("_sparse")[0]
        rows = part.stop - part.start
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for feature in range(len(self.source.categorical)):
                width = self._width(feature)
                with archive.open(f"{feature}.npy", "w", force_zip64=True) as member:
                    _write_header(member, np.dtype(np.int32), (rows, width))
                    for start, stop in _ranges(part.start, part.stop, 4 * width):
                        block = self._ids(split.categorical[feature], feature, start, stop)
                        member.write(block.astype(np.int32, copy=False).tobytes())
        for name, read, width, dtype in (
            ("dense", self._numericals, self._width(_NUMERICAL), np.float32),
            ("labels", self._labels, 1, np.int32),
        ):
            values_file = path.parent / f"{prefix}_{name}.npy"
            with values_file.open("wb") as file:
                _write_header(file, np.dtype(dtype), (rows, width))
                for start, stop in _ranges(part.start, part.stop, 4 * width):
                    file.write(read(split, start, stop, np.dtype(dtype)).tobytes())
            sync(values_file)
        sync(path)

    def _days_of(self, split: str) -> SplitColumns:
        """Returns a split; the last day's is the validation split followed by the test split."""
        splits = self.source.splits
        if split == fs.TRAIN:
            return splits[split]
        first, second = splits[fs.VALIDATION], splits[fs.TEST]
        return SplitColumns(
            [a + b for a, b in zip(first.categorical, second.categorical, strict=True)],
            [a + b for a, b in zip(first.numerical, second.numerical, strict=True)],
            first.label + second.label,
        )

    def _read(self, split: str, column: str | int, start: int, stop: int) -> np.ndarray:
        """Returns samples of a column in the stored dtype."""
        columns, dtype = self.source.splits[split], self.dtype(column)
        if isinstance(column, int):
            # Of the cardinality's dtype, or int32, which holds all cardinalities.
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
        is_binary = self.job.format == "tf_raw"
        if isinstance(column, int):
            cardinality = self.job.cardinalities[column]
            return smallest_id_dtype(cardinality) if is_binary else np.dtype(np.int32)
        if column == _LABEL:
            return np.dtype(bool if is_binary else np.int8)
        split = next(iter(self.source.splits.values()))
        return np.result_type(*(part.dtype for part in split.numerical))

    def format_of(self, column: str | int) -> Format:
        """Returns the `format.json` of a column of split TFRecords."""
        width = self._width(column)
        is_multi_hot = isinstance(column, int) and width > 1
        return Format(
            format="tfrecords",
            dtype=self.dtype(column).name,
            multihot=is_multi_hot,
            feature_name="data",
            num_features=1 if is_multi_hot else width,
            prebatch=self.job.prebatch_size,
            hotness=width if is_multi_hot else None,
        )

    def finish(self, parts: list[OutputPart], metadata: dict) -> list[Path]:
        """Writes what describes the parts; returns all files, relative to the data set."""
        if self.job.format == "npz":
            stems = [part.file.removesuffix("_sparse_multi_hot.npz") for part in parts]
            names = ("sparse_multi_hot.npz", "dense.npy", "labels.npy")
            return [Path(f"{stem}_{name}") for stem in stems for name in names]
        files = {part.file for part in parts}
        for part in parts if self.job.format == "split_tfrecords" else ():
            folder = (self.job.data / part.file).parent
            self.format_of(part.column).write(folder)
            records = -(-len(self.source.splits[part.split]) // self.job.prebatch_size)
            (folder.parent / LENGTH_FILE).write_text(str(records))
            files |= {f"{Path(part.file).parent}/format.json", f"{part.split}/{LENGTH_FILE}"}
        spec = self._feature_spec(parts, metadata)
        spec.validate_files()
        spec.to_yaml(self.job.data / "feature_spec.yaml")
        return [Path(file) for file in sorted(files | {"feature_spec.yaml"})]

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
        kind = "split_binary" if job.format == "tf_raw" else "tfrecord"
        chunks = {split: {} for split in source.splits}
        for part in sorted(parts, key=lambda part: part.start):
            files = chunks[part.split].setdefault(part.column, [])
            files += [part.file] if part.file not in files else []
        sources = {
            split: [Chunk(kind, names[column], files) for column, files in by_column.items()]
            for split, by_column in chunks.items()
        }
        channels = {
            fs.NUMERICAL_CHANNEL: source.numerical,
            fs.CATEGORICAL_CHANNEL: source.categorical,
            fs.LABEL_CHANNEL: ["label"],
        }
        return FeatureSpec(features, sources, channels, metadata, base_directory=job.data)


def _day_parts(source: SourceData, days: int) -> list[OutputPart]:
    rows = {split: len(columns) for split, columns in source.splits.items()}
    if set(rows) != {fs.TRAIN, fs.VALIDATION, fs.TEST}:
        raise ValueError(
            "--format npz: expected the splits train, validation and test, of which the last two "
            f"are the halves of the last day; got {', '.join(rows)}"
        )
    last = rows[fs.VALIDATION] + rows[fs.TEST]
    if rows[fs.VALIDATION] != -(-last // 2):
        raise ValueError(
            "--format npz: the reference validates on the first half of the last day: expected "
            f"{-(-last // 2)} of {last} held-out samples in the validation split, got "
            f"{rows[fs.VALIDATION]}"
        )
    bounds = np.linspace(0, rows[fs.TRAIN], days).astype(int).tolist()
    ends = [(fs.TRAIN, *span) for span in itertools.pairwise(bounds)] + [(fs.TEST, 0, last)]
    return [
        OutputPart(split, None, start, stop, f"day_{day}_sparse_multi_hot.npz")
        for day, (split, start, stop) in enumerate(ends)
    ]


def _ranges(start: int, stop: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    rows = max(1, _BLOCK_BYTES // max(1, row_bytes))
    for first in range(start, stop, rows):
        yield first, min(stop, first + rows)


def _write_header(file, dtype: np.dtype, shape: tuple[int, int]) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
