"""Reading checkpoints: each rank its own parts, block by block, every block checked."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from distributed_embeddings.box import Box
from distributed_embeddings.collectives import World
from numpy.typing import NDArray

from runtime.checkpoint.files import (
    INDEX,
    DamagedCheckpoint,
    Index,
    WeightEntry,
    read_blocks,
    read_index,
    rows_of_block,
)
from runtime.checkpoint.nvidia import ctr, neumf
from runtime.checkpoint.nvidia.ctr import CONFIG, has_dense_weights, read_dense_weights
from runtime.checkpoint.weight import Weight, matrix_of
from runtime.cluster.heartbeat import StragglerBarrier


def describe(path: str | os.PathLike[str]) -> Index:
    """Reads the index of a checkpoint, or of NCF's `model.pth`; one in the original's layout has
    no weights."""
    path = Path(path)
    if is_original(path):
        return Index({"original_layout": original_config(path)}, {}, {})
    return neumf.read_neumf(path) if path.is_file() else read_index(path)


def restore(
    path: str | os.PathLike[str],
    weights: Sequence[Weight],
    world: World = World(),
    everything: bool = False,
) -> None:
    """Reads weights from a checkpoint that was saved with any number of ranks and any placement.

    All ranks call it together and wait for each other; the caller passes errors on to other ranks.
    Every block is checked before it is used; extra memory is one block. After an error some weights
    may have been set already. With `everything` the checkpoint may contain no other weights.

    Raises:
        DamagedCheckpoint: a file is missing, cut or changed.
        ValueError: a weight is missing, has another shape or dtype, or is not requested although
            its folder is.
    """
    path = Path(path)
    with StragglerBarrier(world, "checkpoint.restore") as barrier:
        entries = describe(path).weights
        _check_model(path, entries, weights, everything)
        for weight in weights:
            for local in weight.held():
                for box, values in _parts_of(path, entries[weight.name], local):
                    weight.write(box.row, values, box.column)
                    barrier.keepalive()


def _check_model(
    path: Path, entries: Mapping[str, WeightEntry], weights: Sequence[Weight], everything: bool
) -> None:
    """Raises ValueError unless the names, shapes and dtypes are those of the model."""
    wanted = {weight.name for weight in weights}
    folders = {name.partition("/")[0] for name in wanted}
    stored = {name for name in entries if everything or name.partition("/")[0] in folders}
    missing, extra = sorted(wanted - stored), sorted(stored - wanted)
    if missing or extra:
        theirs, ours = _features(entries), _features(wanted)
        if theirs and ours and theirs != ours:
            raise ValueError(
                f"checkpoint {path} was trained on the features {_list(theirs)}; the data set has "
                f"{_list(ours)}: give the --dataset_path of its training, or another checkpoint"
            )
        raise ValueError(
            f"checkpoint {path} is of another model: it lacks {missing or 'nothing'} and has "
            f"{extra or 'nothing'} too many"
        )
    for weight in weights:
        entry = entries[weight.name]
        if entry.shape != tuple(weight.shape) or entry.dtype != weight.dtype:
            raise ValueError(
                f"checkpoint {path}: {weight.name} is {entry.dtype.name} {list(entry.shape)}, the "
                f"model needs {weight.dtype.name} {list(weight.shape)}"
            )


def _features(names: Iterable[str]) -> list[str]:
    return sorted(name.removeprefix("sparse/") for name in names if name.startswith("sparse/"))


def _list(names: Sequence[str], limit: int = 6) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _parts_of(path: Path, entry: WeightEntry, wanted: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
    """Yields (position, values) of all of a box of a weight, block by block, checked."""
    if isinstance(entry, neumf.TensorEntry):
        yield from entry.blocks(wanted)
        return
    for piece in entry.pieces:
        if piece.box.overlap(wanted) is None:
            continue
        for box, values in read_blocks(path, piece, entry.dtype, wanted):
            if common := box.overlap(wanted):
                yield common, _cut(values, box, common)


def _cut(values: NDArray[Any], box: Box, part: Box) -> NDArray[Any]:
    """Returns the values of `part` from those of `box`, which contains it."""
    rows = slice(part.row - box.row, part.row_end - box.row)
    return values[rows, part.column - box.column : part.column_end - box.column]


def rows_of(path: Path, entry: WeightEntry) -> Iterator[NDArray[Any]]:
    """Yields a whole weight as runs of rows [n, columns], in order; every block is checked."""
    whole = matrix_of(entry.shape)
    # Few blocks are read twice.
    rows_each = max((piece.block_rows for piece in entry.pieces), default=1)
    for run in whole.blocks(rows_each):
        values = np.empty((run.rows, run.columns), entry.dtype)
        for box, part in _parts_of(path, entry, run):
            _cut(values, run, box)[:] = part
        yield values


def export_neumf(path: Path, output: Path) -> list[str]:
    """Writes the weights of a NeuMF's checkpoint as `model.pth`; see `neumf.write_neumf`."""
    entries = read_index(path).weights
    values = {name: rows_of(path, entry) for name, entry in entries.items()}
    return neumf.write_neumf(output, entries, values)


def export_nvidia(path: Path, output: Path) -> list[str]:
    """Writes a checkpoint of DLRM or DCNv2 in NVIDIA's layout; see `ctr.write`."""
    index = read_index(path)
    values = {name: rows_of(path, entry) for name, entry in index.weights.items()}
    return ctr.write(output, index, values)


def verify(path: str | os.PathLike[str]) -> Iterator[tuple[str, str | None]]:
    """Yields (file, error message or None) of every file; all bytes are read and checked."""
    path = Path(path)
    try:
        index = read_index(path)
    except ValueError as error:
        yield INDEX, str(error)
        return
    yield INDEX, None
    known = {INDEX}
    for entry in index.weights.values():
        for piece in entry.pieces:
            known.add(piece.file)
            fault = None
            try:
                for _ in read_blocks(path, piece, entry.dtype, piece.box):
                    continue
            except DamagedCheckpoint as error:
                fault = str(error)
            yield piece.file, fault
    for file in sorted(f for f in path.rglob("*") if f.is_file()):
        name = str(file.relative_to(path))
        if name not in known:
            yield name, f"{file} is not part of the checkpoint"


def is_original(path: Path) -> bool:
    """Returns whether this is a folder that NVIDIA's recipe saved (`sparse/config.json`)."""
    return not (path / INDEX).exists() and (path / "sparse" / "config.json").exists()


def original_config(path: Path) -> dict[str, Any]:
    """Reads `sparse/config.json` of such a folder: cardinalities and dims of its tables.

    Under "dense" it has `dense/config.json`, the shape of the model, where that exists.
    """
    config = _original_json(path / "sparse" / "config.json")
    if has_dense_weights(path):
        config["dense"] = _original_json(path / CONFIG)
    return config


def _original_json(file: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(file.read_text())
        config["categorical_cardinalities"] = list(map(int, config["categorical_cardinalities"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is not what NVIDIA's recipe saves: expected JSON with a list "
            f"categorical_cardinalities ({type(error).__name__}: {error})"
        ) from None
    return config


def restore_original(
    path: str | os.PathLike[str], weights: Sequence[Weight], world: World = World()
) -> None:
    """Reads the weights of NVIDIA's layout: `sparse/feature_{i}.npy` is table number i.

    All ranks call it together. The layout has no checksums: only sizes are checked, and that values
    are finite. A folder without `dense/` leaves the dense weights as they are.

    Raises:
        ValueError: another number of tables, another shape or dtype, a value that is not finite.
    """
    path = Path(path)
    tables = [weight for weight in weights if weight.name.startswith("sparse/")]
    dense = {weight.name: weight for weight in weights if weight.name.startswith("dense/")}
    with StragglerBarrier(world, "checkpoint.restore") as barrier:
        rows = original_config(path)["categorical_cardinalities"]
        ours = [weight.shape[0] for weight in tables]
        if rows != ours:
            raise ValueError(
                f"checkpoint {path} has tables of {rows} rows, the data set's features have "
                f"{ours}: it is of another data set"
            )
        for number, weight in enumerate(tables):
            file = path / "sparse" / f"feature_{number}.npy"
            try:
                _restore_original_table(file, weight, barrier)
            except (OSError, ValueError) as error:
                text = getattr(error, "strerror", None) or error
                raise ValueError(f"checkpoint file {file} cannot be used: {text}") from None
        if has_dense_weights(path):
            shapes = {name: tuple(weight.shape) for name, weight in dense.items()}
            for name, values in read_dense_weights(path, shapes):
                box = matrix_of(values.shape)
                dense[name].write(0, values.reshape(box.rows, box.columns))


def _restore_original_table(file: Path, weight: Weight, barrier: StragglerBarrier) -> None:
    stored = np.load(file, mmap_mode="r")
    if stored.shape != tuple(weight.shape) or stored.dtype != weight.dtype:
        raise ValueError(
            f"it is {stored.dtype.name} {list(stored.shape)}, the model needs {weight.dtype.name} "
            f"{list(weight.shape)}"
        )
    for box in weight.held():
        for block in box.blocks(rows_of_block(weight.shape[1], weight.dtype)):
            # Mapped again for each block: mapped pages count as this process's memory.
            stored = np.load(file, mmap_mode="r")
            values = np.array(stored[block.row : block.row_end, block.column : block.column_end])
            if not np.isfinite(values).all():
                raise ValueError(f"not finite in rows {block.row} to {block.row_end - 1}")
            weight.write(block.row, values, block.column)
            barrier.keepalive()
