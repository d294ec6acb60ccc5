"""Saved models: weights and configuration in one folder.

    <path>/checkpoint.json      format, configuration, and of each weight: file, shape, dtype
    <path>/dense/*.npy          weights of the MLPs and the interaction
    <path>/sparse/FEATURE.npy   whole embedding tables, whatever variable held them

The folder appears under its name only when it is whole. Weights are read and written in pieces,
so that a table never exists twice in memory.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

FORMAT = 1
_INDEX = "checkpoint.json"


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
    """
    path = Path(path)
    if path.exists() and not (path / _INDEX).exists():
        raise ValueError(
            f"--save_checkpoint_path {path} exists and is no checkpoint: it is left as it is; give "
            "another folder"
        )
    staging = path.with_name(path.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        size_bytes = _write(staging, weights, description)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    old = path.with_name(path.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.rename(path, old)
    os.rename(staging, path)
    shutil.rmtree(old, ignore_errors=True)
    return size_bytes


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
            stream.write(np.ascontiguousarray(weight.read(first, last)).data)
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
    if index.get("format") != FORMAT:
        raise ValueError(
            f"{path / _INDEX} has format {index.get('format')}, this version reads {FORMAT}"
        )
    return index


def describe(path: str | os.PathLike) -> dict[str, Any]:
    """The configuration that was saved. Raises ValueError if `path` is no checkpoint."""
    return _index(path)["description"]


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
        file = path / entries[weight.name]["file"]
        try:
            array = np.load(file, mmap_mode="r")
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
