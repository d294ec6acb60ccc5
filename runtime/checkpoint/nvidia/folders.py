"""Folders that NVIDIA's DLRM and DCNv2 of 2023 saved."""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runtime.checkpoint.files import INDEX, ArrayEntry
from runtime.checkpoint.nvidia import ctr_layout

# Half precision is that of a model exported with --fp16.
_STORED = (np.dtype("f4"), np.dtype("f2"))


def is_original(path: Path) -> bool:
    """Returns whether this is a folder that NVIDIA's DLRM or DCNv2 saved."""
    return (path / "sparse" / "config.json").exists() and not (path / INDEX).exists()


def original_config(path: Path) -> dict[str, Any]:
    """Reads the cardinalities and dims of the tables of such a folder.

    Under "dense" it has the shape of the model, where the folder has dense weights.
    """
    config = _read_json(path / "sparse" / "config.json")
    if (path / ctr_layout.CONFIG).exists():
        config["dense"] = _read_json(path / ctr_layout.CONFIG)
    return config


def _read_json(file: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(file.read_text())
        config["categorical_cardinalities"] = list(map(int, config["categorical_cardinalities"]))
    except (OSError, TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"{file} is not what NVIDIA's recipe saves: expected JSON with a list "
            f"categorical_cardinalities ({type(error).__name__}: {error})"
        ) from None
    return config


def table_entry(path: Path, number: int, shape: tuple[int, ...]) -> ArrayEntry:
    """Returns the entry of table number `number`.

    Raises ValueError if the file is missing, damaged, or not of this shape in float32 or float16.
    """
    file = table_file(path, number)
    try:
        stored = np.load(file, mmap_mode="r")
        if stored.shape != tuple(shape) or stored.dtype not in _STORED:
            raise ValueError(
                f"it is {stored.dtype.name} {list(stored.shape)}, the model needs float32 "
                f"{list(shape)}"
            )
    except (OSError, ValueError, EOFError) as error:
        text = getattr(error, "strerror", None) or error
        raise ValueError(f"checkpoint file {file} cannot be used: {text}") from None
    # Mapped again for each block: mapped pages count as this process's memory.
    load = functools.partial(np.load, file, mmap_mode="r")
    return ArrayEntry(stored.shape, load, f"checkpoint file {file} cannot be used")


def table_file(path: Path, number: int) -> Path:
    """Returns the file of table number `number`."""
    return path / "sparse" / f"feature_{number}.npy"


def original_entries(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Returns the entries of weights by name; table number i is that of feature i.

    The layout has no checksums: only sizes are checked, and that values are finite. A folder
    without dense weights has no entries of them.

    Raises:
        ValueError: another number of tables, another shape or dtype, a value that is not finite.
    """
    tables = [name for name in shapes if name.startswith("sparse/")]
    dense = {name: shape for name, shape in shapes.items() if name.startswith("dense/")}
    if tables:
        check_cardinalities(path, [shapes[name][0] for name in tables])
    entries: dict[str, Any] = {
        name: table_entry(path, number, shapes[name]) for number, name in enumerate(tables)
    }
    if dense and (path / ctr_layout.CONFIG).exists():
        stored = ctr_layout.read_dense_weights(path)
        for name, values in ctr_layout.checked(path / "dense", stored, dense):
            entries[name] = ArrayEntry(values.shape, functools.partial(np.asarray, values), name)
    return entries


def check_cardinalities(path: Path, cardinalities: Sequence[int]) -> None:
    """Raises ValueError unless a folder's tables are those of features of these sizes."""
    rows = original_config(path)["categorical_cardinalities"]
    if rows != list(cardinalities):
        raise ValueError(
            f"checkpoint {path} has tables of {rows} rows, the data set's features have "
            f"{list(cardinalities)}: it is of another data set"
        )
