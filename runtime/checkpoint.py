"""Saved models: weights and configuration in one folder.

    <path>/checkpoint.json      format, configuration, and of each weight: file, shape, dtype
    <path>/dense/*.npy          weights of the MLPs and the interaction
    <path>/sparse/FEATURE.npy   whole embedding tables, whatever variable held them

The folder appears under its name only when it is whole. Weights are read and written in pieces,
so that a table never exists twice in memory.
"""

import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from config import Config

FORMAT = 1
_INDEX = "checkpoint.json"


class NonFiniteWeight(Exception):
    """A weight that should be saved holds NaN or infinity; the text is its name."""


class Weight(Protocol):
    """A named array that is read and written in runs of rows.

    Attributes:
      name: unique name, used as the file's path below the checkpoint.
      shape: its shape.
      dtype: its numpy dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1."""

    def write(self, first: int, values: np.ndarray) -> None:
        """Sets the rows from `first` on."""

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(first, last) of consecutive runs that are small enough to be copied."""


@dataclass(frozen=True)
class VariableWeight:
    """A whole TensorFlow variable as one piece; for weights that are small."""

    name: str
    variable: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the variable."""
        return tuple(self.variable.shape)

    @property
    def dtype(self) -> np.dtype:
        """numpy dtype of the variable."""
        return np.dtype(self.variable.dtype.as_numpy_dtype)

    def read(self, first: int, last: int) -> np.ndarray:
        """The rows first..last-1."""
        return self.variable.numpy()[first:last]

    def write(self, first: int, values: np.ndarray) -> None:
        """Sets the variable; `values` is all of it."""
        self.variable.assign(values)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """One piece."""
        yield 0, self.shape[0]


def save(path: str | os.PathLike, weights: Sequence[Weight], description: Mapping[str, Any]) -> int:
    """Writes a checkpoint; an older one of that name is replaced once the new one is whole.

    Args:
      path: folder to make.
      weights: what to save.
      description: JSON-able configuration, given back by `describe`.

    Returns:
      Bytes of weights written.

    Raises:
      ValueError: `path` exists and is no checkpoint.
      NonFiniteWeight: a weight holds NaN or infinity; nothing is saved, an older one stays.
    """
    path = _real(path)
    _check_replaceable(path)
    staging = _staging_folder(path)
    try:
        size_bytes = _write(staging, weights, description)
        if path.exists():
            _exchange(staging, path)
        else:
            os.rename(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # what is left: a failed one, or the old one
    return size_bytes


def check_writable(path: str | os.PathLike) -> None:
    """Finds out before a training whether `save` could write to `path` after it.

    Raises:
      ValueError: `path` is something else than a checkpoint, or nothing can be written there.
    """
    path = _real(path)
    _check_replaceable(path)
    try:
        _staging_folder(path).rmdir()
    except OSError as error:
        raise ValueError(
            f"--save_checkpoint_path {path} cannot be written: {error.strerror}"
        ) from None


def _real(path: str | os.PathLike) -> Path:
    """What a link stands for: a rename would replace the link itself."""
    return Path(os.path.realpath(path))


def _check_replaceable(path: Path) -> None:
    if path.exists() and not (path / _INDEX).exists():
        raise ValueError(
            f"--save_checkpoint_path {path} exists and is no checkpoint: it is left as it is; give "
            "another folder"
        )


def _staging_folder(path: Path) -> Path:
    """A new folder beside `path`, so that a rename suffices to put it in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)  # mkdtemp makes folders for the owner alone
    return folder


def _exchange(first: Path, second: Path) -> None:
    """Swaps two folders, in one step where the system can (Linux): at any moment one checkpoint
    stands under its name."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        renameat2 = None
    current, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = (os.fsencode(first), os.fsencode(second))
    if renameat2 and renameat2(current, names[0], current, names[1], exchange) == 0:
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{second.name}.", dir=second.parent))
    os.rename(second, aside)
    os.rename(first, second)
    os.rename(aside, first)


def _write(staging: Path, weights: Sequence[Weight], description: Mapping[str, Any]) -> int:
    """Writes all files of a checkpoint; returns the bytes of weights."""
    entries, size_bytes = {}, 0
    for weight in weights:
        file = _file_of(weight.name)
        (staging / file).parent.mkdir(parents=True, exist_ok=True)
        _write_array(staging / file, weight)
        entries[weight.name] = {
            "file": str(file),
            "shape": list(weight.shape),
            "dtype": weight.dtype.name,
        }
        size_bytes += int(np.prod(weight.shape, dtype=np.int64)) * weight.dtype.itemsize
    index = {"format": FORMAT, "description": dict(description), "weights": entries}
    with open(staging / _INDEX, "w") as stream:
        json.dump(index, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    return size_bytes


def _file_of(name: str) -> Path:
    """File of a weight: the part before the first slash is the folder, the rest is escaped, because
    tables have the names of features, which are free text."""
    kind, _, rest = name.partition("/")
    return Path(kind) / f"{quote(rest, safe='')}.npy"


def _write_array(file: Path, weight: Weight) -> None:
    """Writes a weight as .npy, piece by piece."""
    with open(file, "wb") as stream:
        header = {
            "descr": np.lib.format.dtype_to_descr(weight.dtype),
            "fortran_order": False,
            "shape": tuple(weight.shape),
        }
        np.lib.format.write_array_header_2_0(stream, header)
        for first, last in weight.pieces():
            values = np.ascontiguousarray(weight.read(first, last))
            if not np.isfinite(values).all():
                raise NonFiniteWeight(weight.name)
            stream.write(values.data)
        stream.flush()
        os.fsync(stream.fileno())


def _index(path: str | os.PathLike) -> dict[str, Any]:
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"--restore_checkpoint_path {path}: there is no such folder")
    try:
        index = json.loads((path / _INDEX).read_text())
    except FileNotFoundError:
        raise ValueError(
            f"--restore_checkpoint_path {path} is no checkpoint: it has no {_INDEX}"
        ) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path / _INDEX} is damaged ({error})") from None
    found = index.get("format") if isinstance(index, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path / _INDEX} has format {found}, this version reads {FORMAT}")
    for key in ("description", "weights"):
        if not isinstance(index.get(key), dict):
            raise ValueError(f"{path / _INDEX} is damaged ({key} is missing)")
    return index


def describe(path: str | os.PathLike) -> dict[str, Any]:
    """The configuration that was saved. Raises ValueError if `path` is no checkpoint."""
    return _index(path)["description"]


# Of the generated rows' flags, those that say how many there are, not what they are.
_SIZES = {"synthetic_dataset_train_batches", "synthetic_dataset_valid_batches"}


def adopt_flags(config: Config, saved: Mapping[str, Any]) -> Config:
    """The model of a checkpoint, where the command line does not say otherwise; of generated rows
    also their seed and features, for only the same teacher's rows can be predicted.

    Raises:
      ValueError: the command line asks for another model, or the checkpoint is of another version.
    """
    wanted = config.flat()
    adopted = {}
    remembered, flags = saved.get("model_flags"), saved.get("flags")
    if not isinstance(remembered, dict) or not isinstance(flags, dict):
        raise ValueError(
            f"--restore_checkpoint_path {config.run.restore_checkpoint_path}: the checkpoint does "
            "not say which model it is of (model_flags)"
        )
    if config.data.dataset_type == "synthetic" == flags.get("dataset_type"):
        teacher = [name for name in flags if name.startswith("synthetic_dataset_")]
        for name in ({"seed", *teacher} & set(flags)) - config.given - _SIZES:
            adopted[name] = flags[name]
        if adopted.get("synthetic_dataset_use_feature_spec"):
            raise ValueError(
                "the checkpoint's generated rows follow a feature spec: give --dataset_path and "
                "--synthetic_dataset_use_feature_spec, as in training"
            )
    if unknown := sorted((set(remembered) | set(adopted)) - set(wanted)):
        raise ValueError(
            f"checkpoint {config.run.restore_checkpoint_path} was made by another version: there "
            f"is no flag --{unknown[0]}"
        )
    adopted |= remembered
    for name, value in adopted.items():
        value = adopted[name] = tuple(value) if isinstance(value, list) else value
        expected = int if wanted[name] is None else type(wanted[name])  # no default: the seed
        if type(value) is not expected:
            raise ValueError(
                f"checkpoint {config.run.restore_checkpoint_path} is damaged: --{name} is {value!r}"
            )
        if name in config.given and wanted[name] != value:
            raise ValueError(
                f"--{name} {wanted[name]} differs from the checkpoint's {value} "
                f"({config.run.restore_checkpoint_path}): leave the flag out to take the "
                "checkpoint's value"
            )
    return config.replace(**adopted)


def restore(path: str | os.PathLike, weights: Sequence[Weight]) -> None:
    """Reads every weight from a checkpoint.

    Raises:
      ValueError: a weight is missing or left over, has another shape or dtype, or its file is
        damaged. Nothing is written to any weight before all have been checked.
    """
    path = Path(path)
    entries = _index(path)["weights"]
    wanted = {weight.name for weight in weights}
    missing, extra = sorted(wanted - set(entries)), sorted(set(entries) - wanted)
    if missing or extra:
        raise ValueError(
            f"checkpoint {path} is of another model: it lacks {missing or 'nothing'} and has "
            f"{extra or 'nothing'} too many"
        )
    arrays = {}
    for weight in weights:
        file = path / _file_of(weight.name)
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"checkpoint file {file} is missing or damaged ({error})") from None
        if array.shape != tuple(weight.shape) or array.dtype != weight.dtype:
            raise ValueError(
                f"checkpoint file {file} is {array.dtype.name} {list(array.shape)}, the model "
                f"needs {weight.dtype.name} {list(weight.shape)}"
            )
        arrays[weight.name] = array
    for weight in weights:
        for first, last in weight.pieces():
            weight.write(first, np.asarray(arrays[weight.name][first:last]))
