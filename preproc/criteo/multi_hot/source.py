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
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION, FeatureSpec
from dataloading.spec.spans import spans_of

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

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns rows `start` to `stop`; read rows do not stay in the memory of the process."""
        array = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        rows = self.rows[start:stop]
        return np.array(array[rows.start : rows.stop, self.columns])


class FeatureValues:
    """Values [samples, width] of a feature in one split, in pieces."""

    def __init__(self, feature: str, pieces: Sequence[StoredArray]):
        self._feature, self._pieces = feature, pieces
        self._ends = np.cumsum([len(piece.rows) for piece in pieces])
        self.dtype = pieces[0].dtype
        self.width = len(range(*pieces[0].columns.indices(pieces[0].shape[1])))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def place(self, sample: int) -> str:
        """Returns file, feature and row of a sample, for messages."""
        number = int(np.searchsorted(self._ends, sample, side="right"))
        piece = self._pieces[number]
        row = piece.rows[sample - int(self._ends[number]) + len(piece.rows)]
        return f"{piece.path}: feature '{self._feature}': row {row} (counted from 0)"

    def read(self, dtype: np.dtype, start: int, stop: int) -> np.ndarray:
        """Returns samples [stop - start, width] in a dtype; ValueError for one it does not hold."""
        parts = [np.empty([0, self.width], self.dtype)]
        for piece, end in zip(self._pieces, self._ends.tolist(), strict=True):
            first = end - len(piece.rows)
            low, high = max(start, first), min(stop, end)
            if low < high:
                parts.append(piece.read(low - first, high - first))
        return cast_exactly(np.concatenate(parts), dtype, lambda row, _: self.place(start + row))


@dataclass(frozen=True)
class SourceData:
    """A data set on the disk.

    Attributes:
        splits: name -> feature -> its values.
        numerical, categorical, label: names of the features.
        cardinalities: of the categorical features; None: the files do not state them.
        files: all files, for fingerprints.
    """

    splits: dict[str, dict[str, FeatureValues]]
    numerical: list[str]
    categorical: list[str]
    label: str
    cardinalities: list[int] | None
    files: list[Path]

    @property
    def hotness(self) -> list[int]:
        """Stored ids per sample of the categorical features."""
        values = next(iter(self.splits.values()))
        return [values[name].width for name in self.categorical]

    def num_samples(self, split: str) -> int:
        return len(self.splits[split][self.label])


def open_source(folder: Path) -> SourceData:
    """Opens a data set; nothing is loaded.

    Raises:
        ValueError: The folder has no data set, or its files contradict each other.
    """
    if (folder / SPEC_FILE).is_file():
        return _open_prepared(folder)
    days: dict[int, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _DAY.match(path.name):
            days.setdefault(int(match[1]), []).append(path)
    if not days:
        raise ValueError(
            f"--input {folder}: expected a prepared data set with {SPEC_FILE}, or day_N_sparse.npy "
            "or day_N_sparse_multi_hot.npz, day_N_dense.npy and day_N_labels.npy of MLPerf's "
            "reference; found neither"
        )
    if len(days) < 2 or any(len(paths) > 1 for paths in days.values()):
        raise ValueError(
            f"--input {folder}: expected at least two days, and one file of ids for each, got "
            + ", ".join(sorted(path.name for paths in days.values() for path in paths))
        )
    return _open_days({number: path for number, (path,) in sorted(days.items())})


def _open_prepared(folder: Path) -> SourceData:
    spec = FeatureSpec.from_yaml(folder / SPEC_FILE)
    channels = (fs.NUMERICAL_CHANNEL, fs.CATEGORICAL_CHANNEL, fs.LABEL_CHANNEL)
    spec.require(
        "this command",
        channels=channels,
        splits=tuple(spec.source_spec),
        chunk_types=("split_binary",),
    )
    spec.validate_files()
    numerical, categorical, (label,) = (list(spec.channel(channel)) for channel in channels)
    for name in categorical:
        if spec.hotness(name) != 1:
            raise ValueError(
                f"{spec.origin}: feature '{name}' has {spec.hotness(name)} ids per sample; "
                "expected one id, which is extended"
            )
    splits, files = {}, []
    for split, chunks in spec.source_spec.items():
        splits[split] = {}
        for name, span in spans_of(spec, chunks).items():
            dtype, row_bytes = spec.dtype(name), spec.sample_bytes(chunks[span.chunk])
            pieces, columns = [], slice(span.begin, span.end)
            for file in chunks[span.chunk].files:
                path = spec.base_directory / file
                shape = (path.stat().st_size // row_bytes, row_bytes // dtype.itemsize)
                pieces.append(StoredArray(path, dtype, 0, shape, range(shape[0]), columns))
            splits[split][name] = FeatureValues(name, pieces)
        files += [spec.base_directory / file for chunk in chunks for file in chunk.files]
    cardinalities = spec.cardinalities(fs.CATEGORICAL_CHANNEL)
    return SourceData(splits, numerical, categorical, label, cardinalities, files)


def _open_days(days: dict[int, Path]) -> SourceData:
    arrays: dict[str, list[StoredArray]] = {}
    files, shapes = [], set()
    for number, path in days.items():
        dense, labels = (path.parent / f"day_{number}_{part}.npy" for part in ("dense", "labels"))
        own = {f"cat_{i}": array for i, array in enumerate(_ids_of_day(path))}
        own |= {f"num_{i}": array for i, array in enumerate(_columns(_array(dense)))}
        own["label"] = _array(labels)
        shapes.add(tuple((name, array.shape[1]) for name, array in own.items()))
        if len({len(array.rows) for array in own.values()}) > 1 or len(shapes) > 1:
            raise ValueError(
                f"{path}: samples, features or hotness differ from those of its dense features, "
                "labels or of the other days"
            )
        for name, array in own.items():
            arrays.setdefault(name, []).append(array)
        files += [path, dense, labels]
    splits: dict[str, dict[str, FeatureValues]] = {TRAIN: {}, VALIDATION: {}, TEST: {}}
    for name, (*others, last) in arrays.items():
        half = -(-len(last.rows) // 2)
        splits[TRAIN][name] = FeatureValues(name, others)
        for split, rows in ((VALIDATION, last.rows[:half]), (TEST, last.rows[half:])):
            splits[split][name] = FeatureValues(name, [replace(last, rows=rows)])
    numerical, categorical = ([n for n in arrays if n.startswith(p)] for p in ("num_", "cat_"))
    return SourceData(splits, numerical, categorical, "label", None, files)


def _array(path: Path) -> StoredArray:
    try:
        array = np.load(path, mmap_mode="r")
    except ValueError as error:
        raise ValueError(f"{path}: expected an array of NumPy: {error}") from None
    if array.ndim != 2 or not array.flags.c_contiguous:
        raise ValueError(
            f"{path}: expected [samples, columns] in C order, got shape {array.shape}, strides "
            f"{array.strides}"
        )
    rows = range(len(array))
    return StoredArray(path, array.dtype, array.offset, array.shape, rows, slice(None))


def _columns(array: StoredArray) -> list[StoredArray]:
    return [replace(array, columns=slice(i, i + 1)) for i in range(array.shape[1])]


def _ids_of_day(path: Path) -> list[StoredArray]:
    """Returns the columns of an .npy file, or the arrays "0", "1", ... of an uncompressed .npz."""
    if path.suffix == ".npy":
        return _columns(_array(path))
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
