"""Data sets whose features are extended, or that are already multi-hot.

- A prepared data set: `feature_spec.yaml` with split binaries and one id per feature.
- The files of MLPerf's reference: `day_N_labels.npy` int32 [samples, 1], `day_N_dense.npy` float32
  [samples, 13] and `day_N_sparse.npy` int32 [samples, 26], or for multi-hot ids
  `day_N_sparse_multi_hot.npz` with int32 [samples, hotness] per feature. The first half of the last
  day is the validation split, the second half the test split, all other days train.
"""

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dataloading.spec import feature_spec as fs
from dataloading.spec.casts import cast_exactly
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec

_DAY = re.compile(r"day_(\d+)_sparse(_multi_hot\.npz|\.npy)$")


@dataclass(frozen=True)
class StoredArray:
    """Some rows and columns of an array in a file."""

    path: Path
    dtype: np.dtype
    offset: int  # of the array in the file, in bytes
    shape: tuple[int, int]
    rows: range
    columns: slice

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return len(range(*self.columns.indices(self.shape[1])))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns rows `start` to `stop`; read rows do not stay in the memory of the process."""
        if start == stop:
            return np.empty([0, self.width], self.dtype)
        array = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        rows = self.rows[start:stop]
        return np.array(array[rows.start : rows.stop, self.columns])


class MappedColumn:
    """Values [samples, width] of one split, in pieces; `name` is that of the feature."""

    def __init__(self, pieces: list[StoredArray], name: str):
        self._pieces, self._name = pieces, name
        self._ends = np.cumsum([len(piece) for piece in pieces])
        self.dtype, self.width = pieces[0].dtype, pieces[0].width

    def __len__(self) -> int:
        return int(self._ends[-1])

    def place(self, row: int) -> str:
        """Returns file, feature and row of a sample, for messages."""
        piece = int(np.searchsorted(self._ends, row, side="right"))
        own = self._pieces[piece]
        number = own.rows[row - int(self._ends[piece]) + len(own)]
        return f"{own.path}: {self._name}: row {number} (counted from 0)"

    def read_as(self, dtype: np.dtype, start: int, stop: int) -> np.ndarray:
        """Returns samples in another dtype; ValueError for one that it does not hold."""
        return cast_exactly(self.read(start, stop), dtype, lambda row, _: self.place(start + row))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns the samples `start` to `stop`, [stop - start, width]."""
        parts = []
        for piece, end in zip(self._pieces, self._ends, strict=True):
            first = end - len(piece)
            low, high = max(start, first), min(stop, end)
            if low < high:
                parts.append(piece.read(low - first, high - first))
        return np.concatenate(parts) if parts else np.empty([0, self.width], self.dtype)


@dataclass(frozen=True)
class SplitColumns:
    """Columns of a split."""

    # One per feature: [samples, 1], or [samples, hotness] of a multi-hot source
    categorical: list[MappedColumn]
    numerical: list[MappedColumn]  # Some columns, whose widths add up to the numerical features
    label: MappedColumn  # [samples, 1]

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class SourceData:
    """A data set on the disk.

    Attributes:
        splits: By name.
        categorical: Names of the categorical features.
        numerical: Names of the numerical features.
        cardinalities: Of the categorical features; None: the files do not state them.
        hotness: Of the stored ids.
        files: All files, for messages and fingerprints.
    """

    splits: dict[str, SplitColumns]
    categorical: list[str]
    numerical: list[str]
    cardinalities: list[int] | None
    hotness: list[int]
    files: list[Path]


def open_source(folder: Path) -> SourceData:
    """Opens a data set; nothing is loaded.

    Raises:
        ValueError: The folder has no data set, or its files contradict each other.
    """
    if (folder / SPEC_FILE).is_file():
        return _open_prepared(folder)
    days = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _DAY.match(path.name):
            days.setdefault(int(match[1]), []).append(path)
    if not days:
        raise ValueError(
            f"--input {folder}: expected a prepared data set with {SPEC_FILE}, or day_N_sparse.npy "
            "or day_N_sparse_multi_hot.npz, day_N_dense.npy and day_N_labels.npy of MLPerf's "
            "reference; found neither"
        )
    return _open_days(folder, days)


def _open_prepared(folder: Path) -> SourceData:
    spec = FeatureSpec.from_yaml(folder / SPEC_FILE)
    spec.validate_files()
    channels = (fs.CATEGORICAL_CHANNEL, fs.NUMERICAL_CHANNEL, fs.LABEL_CHANNEL)
    categorical, numerical, label = (list(spec.channel(channel)) for channel in channels)
    for name in categorical:
        if spec.hotness(name) != 1:
            raise ValueError(
                f"{spec.origin}: feature '{name}' has {spec.hotness(name)} ids per sample; "
                "expected one id, which is extended"
            )
    if len(label) != 1:
        raise ValueError(f"{spec.origin}: expected one label, got {len(label)}")
    splits, files = {}, []
    for split, chunks in spec.source_spec.items():
        columns = {}
        for chunk in chunks:
            if chunk.type != "split_binary":
                raise ValueError(
                    f"{spec.origin}: {split}: expected chunks of type split_binary, got "
                    f"{chunk.type}; convert them: python -m dataloading.transcribe"
                )
            paths = [spec.base_directory / file for file in chunk.files]
            dtype = spec.dtype(chunk.features[0])
            row = spec.sample_bytes(chunk) // dtype.itemsize
            sizes = [path.stat().st_size // (row * dtype.itemsize) for path in paths]
            first = 0
            for name in chunk.features:
                own = slice(first, first + spec.hotness(name))
                columns[name] = MappedColumn(
                    [
                        StoredArray(path, dtype, 0, (rows, row), range(rows), own)
                        for path, rows in zip(paths, sizes, strict=True)
                    ],
                    f"feature '{name}'",
                )
                first = own.stop
            files += paths
        if missing := [name for name in label if name not in columns]:
            raise ValueError(f"{spec.origin}: {split}: expected the label {missing[0]}, got none")
        splits[split] = SplitColumns(
            [columns[name] for name in categorical],
            [columns[name] for name in numerical],
            columns[label[0]],
        )
    cardinalities = [spec.cardinality(name) for name in categorical]
    return SourceData(splits, categorical, numerical, cardinalities, [1] * len(categorical), files)


def _open_days(folder: Path, days: dict[int, list[Path]]) -> SourceData:
    numbers = sorted(days)
    if len(numbers) < 2 or any(len(paths) > 1 for paths in days.values()):
        raise ValueError(
            f"--input {folder}: expected at least two days, and one file of ids for each, got "
            + ", ".join(sorted(path.name for paths in days.values() for path in paths))
        )
    sparse, dense, labels, files = [], [], [], []
    for number in numbers:
        (path,) = days[number]
        sparse.append(_ids_of_day(path))
        others = [folder / f"day_{number}_{part}.npy" for part in ("dense", "labels")]
        files += [path, *others]
        for arrays, file in zip((dense, labels), others, strict=True):
            arrays.append(_array(file))
        rows = {len(a) for a in (*sparse[-1], dense[-1], labels[-1])}
        widths = [array.width for array in (*sparse[-1], dense[-1], labels[-1])]
        if len(rows) > 1 or widths != [a.width for a in (*sparse[0], dense[0], labels[0])]:
            raise ValueError(
                f"{path}: samples, features or hotness differ from those of its dense features, "
                "labels or of the other days"
            )
    hotness = [array.width for array in sparse[0]]
    splits = {
        split: SplitColumns(
            [
                _of_split(days, split, f"feature 'cat_{number}'")
                for number, days in enumerate(zip(*sparse, strict=True))
            ],
            [_of_split(dense, split, "dense features")],
            _of_split(labels, split, "label"),
        )
        for split in (fs.TRAIN, fs.VALIDATION, fs.TEST)
    }
    categorical = [f"cat_{i}" for i in range(len(hotness))]
    numerical = [f"num_{i}" for i in range(dense[0].width)]
    return SourceData(splits, categorical, numerical, None, hotness, files)


def _of_split(days: Sequence[StoredArray], split: str, name: str) -> MappedColumn:
    """Returns the samples of a split from the arrays of all days."""
    *others, last = days
    if split == fs.TRAIN:
        return MappedColumn(others, name)
    half = -(-len(last) // 2)
    rows = last.rows[:half] if split == fs.VALIDATION else last.rows[half:]
    return MappedColumn([replace(last, rows=rows)], name)


def _array(path: Path) -> StoredArray:
    try:
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise ValueError(f"{path}: the file of this day is missing") from None
    except ValueError as error:
        raise ValueError(f"{path}: expected an array of NumPy: {error}") from None
    if array.ndim != 2 or not array.flags.c_contiguous:
        raise ValueError(
            f"{path}: expected [samples, columns] in C order, got shape {array.shape}"
            + (" in Fortran order" if array.ndim == 2 else "")
        )
    rows = range(len(array))
    return StoredArray(path, array.dtype, array.offset, array.shape, rows, slice(None))


def _ids_of_day(path: Path) -> list[StoredArray]:
    """Returns the columns of an .npy file, or the arrays "0", "1", ... of an uncompressed .npz."""
    if path.suffix == ".npy":
        ids = _array(path)
        return [replace(ids, columns=slice(i, i + 1)) for i in range(ids.shape[1])]
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: expected an .npz file: {error}") from None
    names = [str(feature) for feature in range(len(members))]
    if sorted(members) != sorted(names) or any(
        info.compress_type != zipfile.ZIP_STORED for info in members.values()
    ):
        raise ValueError(
            f"{path}: expected uncompressed arrays 0, 1, ... as numpy.savez writes them, got "
            f"{', '.join(sorted(members))}"
        )
    return [_member(path, members[name]) for name in names]


def _member(path: Path, info: zipfile.ZipInfo) -> StoredArray:
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = np.frombuffer(file.read(4), "<u2")  # of the name and of the extra field
        file.seek(int(lengths.sum()), 1)
        version = np.lib.format.read_magic(file)
        reader = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, is_fortran, dtype = reader(file)
        if len(shape) != 2 or is_fortran or dtype != np.int32:
            raise ValueError(
                f"{path}: {info.filename}: expected int32 [samples, hotness] in C order, got "
                f"{dtype} {list(shape)}"
            )
        return StoredArray(path, dtype, file.tell(), shape, range(shape[0]), slice(None))
