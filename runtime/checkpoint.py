"""Saved models: weights and configuration in one folder.

    <path>/checkpoint.json      format, configuration, and of each weight: file, shape, dtype
    <path>/dense/*.npy          weights of the MLPs and the interaction
    <path>/sparse/FEATURE.npy   whole embedding tables, whatever variable held them

The folder appears under its name only when it is whole. Weights are read and written in pieces,
so that a table never exists twice in memory. With several processes rank 0 writes what all read
together; each rank restores its own part from the files, which every rank must see.
"""

import contextlib
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
from runtime.distributed import AgreedError, World

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

    def read(self, first: int, last: int) -> np.ndarray | None:
        """Rows first..last-1, on rank 0; a call that all ranks make together."""

    def write(self, first: int, values: np.ndarray) -> None:
        """Sets the rows from `first` on, as far as this rank holds them."""

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(first, last) of consecutive runs that are small enough to be copied."""

    def local_pieces(self) -> Iterator[tuple[int, int]]:
        """Those of `pieces` of which this rank holds anything."""


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

    local_pieces = pieces  # every rank has a copy


def save(
    path: str | os.PathLike,
    weights: Sequence[Weight],
    description: Mapping[str, Any],
    world: World = World(),
) -> int:
    """Writes a checkpoint; an older one of that name is replaced once the new one is whole.

    All ranks call it together; rank 0 writes. A fault of its is raised on every rank.

    Args:
      path: folder to make.
      weights: what to save.
      description: JSON-able configuration, given back by `describe`.
      world: the ranks.

    Returns:
      Bytes of weights written.

    Raises:
      ValueError: `path` exists and is no checkpoint, or cannot be written (disk full).
      NonFiniteWeight: a weight holds NaN or infinity; nothing is saved, an older one stays.
    """
    writer = _Writer(path, description) if world.is_chief else None
    try:
        _together(world, lambda: writer.open())
        for weight in weights:
            _together(world, lambda weight=weight: writer.begin(weight))
            for first, last in weight.pieces():
                values = weight.read(first, last)
                if writer is not None:
                    writer.add(values)
            _together(world, lambda: writer.end())
        _together(world, lambda: writer.commit())
    finally:
        if writer is not None:
            writer.close()
    return sum(int(np.prod(w.shape, dtype=np.int64)) * w.dtype.itemsize for w in weights)


def _together(world: World, action) -> None:
    """Does `action` on rank 0 and raises what it raises on every rank."""
    fault = None
    if world.is_chief:
        try:
            action()
        except NonFiniteWeight as error:
            fault = ("weight", str(error))
        except (ValueError, OSError) as error:
            fault = ("error", str(error))
        except Exception as error:  # the others would wait for ever
            if world.size == 1:
                raise
            fault = ("error", f"{type(error).__name__}: {error}")
    if world.size > 1:
        fault = world.gather_objects(fault, "checkpoint.fault")[0]
    if fault is not None:
        kind, text = fault
        raise NonFiniteWeight(text) if kind == "weight" else AgreedError(text)


class _Writer:
    """The files of one checkpoint, beside its place until all are there.

    A fault within a weight is kept until its end, so that reading goes on on all ranks.
    """

    def __init__(self, path: str | os.PathLike, description: Mapping[str, Any]):
        self.path = _real(path)
        self._description = dict(description)
        self._entries: dict[str, Any] = {}
        self._staging: Path | None = None
        self._stream = self._weight = self._fault = None

    def open(self) -> None:
        """Makes the folder."""
        _check_replaceable(self.path)
        with self._saying_where():
            self._staging = _staging_folder(self.path)

    def begin(self, weight: Weight) -> None:
        """Starts a weight's .npy file."""
        file = _file_of(weight.name)
        with self._saying_where():
            (self._staging / file).parent.mkdir(parents=True, exist_ok=True)
            self._stream = open(self._staging / file, "wb")  # noqa: SIM115 closed by end()
            header = {
                "descr": np.lib.format.dtype_to_descr(weight.dtype),
                "fortran_order": False,
                "shape": tuple(weight.shape),
            }
            np.lib.format.write_array_header_2_0(self._stream, header)
        self._weight = weight
        self._entries[weight.name] = {
            "file": str(file),
            "shape": list(weight.shape),
            "dtype": weight.dtype.name,
        }

    def add(self, values: np.ndarray) -> None:
        """Writes the weight's next rows."""
        if self._fault is not None:
            return
        try:
            if not np.isfinite(values).all():
                raise NonFiniteWeight(self._weight.name)
            with self._saying_where():
                self._stream.write(np.ascontiguousarray(values).data)
        except (NonFiniteWeight, ValueError) as error:
            self._fault = error

    def end(self) -> None:
        """Ends the weight; raises what was wrong with it."""
        if self._fault is not None:
            raise self._fault
        with self._saying_where():
            _sync(self._stream)
            self._stream.close()

    def commit(self) -> None:
        """Writes the index and puts the folder in its place."""
        index = {"format": FORMAT, "description": self._description, "weights": self._entries}
        with self._saying_where():
            with open(self._staging / _INDEX, "w") as stream:
                json.dump(index, stream, indent=1)
                _sync(stream)
            if self.path.exists():
                _exchange(self._staging, self.path)
            else:
                os.rename(self._staging, self.path)

    def close(self) -> None:
        """Removes what is left: a failed checkpoint, or the replaced one."""
        if self._stream is not None:
            with contextlib.suppress(OSError):  # a full disk, said before
                self._stream.close()
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)

    @contextlib.contextmanager
    def _saying_where(self):
        try:
            yield
        except OSError as error:
            raise ValueError(
                f"--save_checkpoint_path {self.path}: {error.strerror}; the model was not saved"
            ) from None


def _sync(stream) -> None:
    stream.flush()
    os.fsync(stream.fileno())


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


def _file_of(name: str) -> Path:
    """File of a weight: the part before the first slash is the folder, the rest is escaped, because
    tables have the names of features, which are free text."""
    kind, _, rest = name.partition("/")
    return Path(kind) / f"{quote(rest, safe='')}.npy"


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
    for weight in weights:
        _check_file(path / _file_of(weight.name), weight)
    for weight in weights:
        with open(path / _file_of(weight.name), "rb") as stream:
            shape, dtype, start = _read_header(stream)
            row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
            for first, last in weight.local_pieces():
                # Not mapped: mapped pages count as this process's memory.
                stream.seek(start + first * row_bytes)
                count = (last - first) * row_bytes // dtype.itemsize
                values = np.fromfile(stream, dtype, count)
                weight.write(first, values.reshape(last - first, *shape[1:]))


def _read_header(stream) -> tuple[tuple[int, ...], np.dtype, int]:
    """(shape, dtype, byte at which the values start) of a .npy file."""
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)
    if version not in read:
        raise ValueError(f"version {version} of .npy")
    shape, fortran_order, dtype = read[version](stream)
    if fortran_order:
        raise ValueError("in Fortran order")
    return shape, dtype, stream.tell()


def _check_file(file: Path, weight: Weight) -> None:
    try:
        with open(file, "rb") as stream:
            shape, dtype, start = _read_header(stream)
            expected = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            size_bytes = os.fstat(stream.fileno()).st_size
            if size_bytes != expected:
                raise ValueError(f"{size_bytes} bytes instead of {expected}")
    except (OSError, ValueError) as error:
        raise ValueError(f"checkpoint file {file} is missing or damaged ({error})") from None
    if shape != tuple(weight.shape) or dtype != weight.dtype:
        raise ValueError(
            f"checkpoint file {file} is {dtype.name} {list(shape)}, the model needs "
            f"{weight.dtype.name} {list(weight.shape)}"
        )
