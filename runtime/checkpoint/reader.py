"""Reading checkpoints: each rank its own parts, block by block, every block checked."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed_embeddings.box import Box
from distributed_embeddings.collectives import World
from numpy.typing import NDArray

from runtime.checkpoint.files import (
    INDEX,
    ArrayEntry,
    DamagedCheckpoint,
    Index,
    WeightEntry,
    check_attached,
    copy_attached,
    read_blocks,
    read_index,
    rows_of_block,
)
from runtime.checkpoint.nvidia import ctr_layout, neumf
from runtime.checkpoint.nvidia.folders import is_original, original_config, original_entries
from runtime.checkpoint.weight import Weight, matrix_of
from runtime.cluster.heartbeat import StragglerBarrier

# Table -> rows of a checkpoint that are the first rows of the table now, ascending.
KeptRows = Mapping[str, NDArray[Any]]

_OTHER_IDS = (
    ": a training restores tables that have grown, not smaller ones; give the data set of the "
    "checkpoint, or one that `preproc.transcode --grow` made from it"
)


class RowChange(NamedTuple):
    """Rows of a table that differ from those of a checkpoint."""

    new: int  # not in the checkpoint
    evicted: int  # only in the checkpoint
    rows: int  # now


def describe(path: str | os.PathLike[str]) -> Index:
    """Reads the index of a checkpoint, or of NCF's `model.pth`; one in the original's layout has
    no weights."""
    path = Path(path)
    if is_original(path):
        return Index({"original_layout": original_config(path)}, {}, {}, {})
    return neumf.read_neumf(path) if path.is_file() else read_index(path)


def restore(
    path: str | os.PathLike[str],
    weights: Sequence[Weight],
    world: World = World(),
    everything: bool = False,
    kept_rows: KeptRows | None = None,
) -> dict[str, RowChange]:
    """Reads weights from a checkpoint that was saved with any number of ranks and any placement.

    All ranks call it together and wait for each other; the caller passes errors on to other ranks.
    Every block is checked before it is used; extra memory is one block. After an error some weights
    may have been set already. With `everything` the checkpoint may contain no other weights.

    Args:
        kept_rows: tables may have more rows than the checkpoint has; these keep their values.
            Table -> rows of the checkpoint that are its first rows, ascending; absent: all. None:
            tables must have equal numbers of rows.

    Returns:
        Table -> changed rows, where there are any.

    Raises:
        DamagedCheckpoint: a file is missing, cut or changed.
        ValueError: weights are missing, of another shape or dtype, or too many.
    """
    path = Path(path)
    with StragglerBarrier(world, "checkpoint.restore") as barrier:
        if is_original(path):
            entries = original_entries(path, {w.name: tuple(w.shape) for w in weights})
            weights, kept_rows = [w for w in weights if w.name in entries], None
        else:
            entries = describe(path).weights
            _check_names(path, entries, weights, everything)
            _check_shapes(path, entries, weights, kept_rows)
        for weight in weights:
            rows = (kept_rows or {}).get(_table_of(weight.name))
            for local in weight.local_boxes():
                for row, values, column in _rows_of_box(path, entries[weight.name], local, rows):
                    weight.write(row, values, column)
                    barrier.keepalive()
    return _row_changes(entries, weights, kept_rows or {})


def _row_changes(
    entries: Mapping[str, WeightEntry], weights: Sequence[Weight], kept_rows: KeptRows
) -> dict[str, RowChange]:
    changes = {}
    for weight in weights:
        if weight.name.startswith("sparse/"):
            table, before = _table_of(weight.name), entries[weight.name].shape[0]
            kept = len(kept_rows[table]) if table in kept_rows else before
            change = RowChange(weight.shape[0] - kept, before - kept, weight.shape[0])
            if change.new or change.evicted:
                changes[table] = change
    return changes


def _table_of(name: str) -> str:
    """Returns the table of a weight or of its optimizer's state; "" for other weights."""
    kind, _, table = name.partition("/")
    return table if kind.partition(".")[0] == "sparse" and kind != "sparse.scalars" else ""


def _rows_of_box(
    path: Path, entry: WeightEntry, local: Box, kept: NDArray[Any] | None
) -> Iterator[tuple[int, NDArray[Any], int]]:
    """Yields (row, values, column) of the part of a box that the checkpoint has.

    Args:
        local: box of the weight as it is now.
        kept: rows of the checkpoint that are its first rows, ascending; None: all.
    """
    if kept is None:
        stored = local.overlap(matrix_of(entry.shape))
        for box, values in _parts_of(path, entry, stored) if stored else ():
            yield box.row, values, box.column
        return
    last = min(local.row_end, len(kept)) - 1
    if last < local.row:
        return
    stored = local._replace(row=int(kept[local.row]), row_end=int(kept[last]) + 1)
    for box, values in _parts_of(path, entry, stored):
        begin, end = map(int, np.searchsorted(kept, [box.row, box.row_end]))
        if begin < end:
            yield begin, values[kept[begin:end] - box.row], box.column


def _check_names(
    path: Path, entries: Mapping[str, WeightEntry], weights: Sequence[Weight], everything: bool
) -> None:
    wanted = {weight.name for weight in weights}
    folders = {name.partition("/")[0] for name in wanted}
    stored = {name for name in entries if everything or name.partition("/")[0] in folders}
    missing, extra = sorted(wanted - stored), sorted(stored - wanted)
    if missing or extra:
        theirs, ours = _features(entries), _features(wanted)
        if theirs and ours and theirs != ours:
            raise ValueError(
                f"checkpoint {path}: expected a data set with the features of its training, "
                f"{_list(theirs)}, got {_list(ours)}: pass another --dataset_path or checkpoint"
            )
        raise ValueError(
            f"checkpoint {path} is of another model: it lacks {missing or 'nothing'} and has "
            f"{extra or 'nothing'} too many"
        )


def _check_shapes(
    path: Path,
    entries: Mapping[str, WeightEntry],
    weights: Sequence[Weight],
    kept_rows: KeptRows | None,
) -> None:
    for weight in weights:
        entry, shape = entries[weight.name], tuple(weight.shape)
        kept = None if kept_rows is None else kept_rows.get(_table_of(weight.name))
        is_table = _table_of(weight.name) and entry.shape[1:] == shape[1:]
        if is_table and kept is not None:
            fits = len(kept) <= shape[0] and kept[-1] < entry.shape[0]
        elif is_table and kept_rows is not None:
            fits = entry.shape[0] <= shape[0]
        else:
            fits = entry.shape == shape
        if not fits or entry.dtype != weight.dtype:
            raise ValueError(
                f"checkpoint {path}: {weight.name} is {entry.dtype.name} {list(entry.shape)}, the "
                f"model needs {weight.dtype.name} {list(weight.shape)}"
                + (_OTHER_IDS if is_table and entry.dtype == weight.dtype else "")
            )


def _features(names: Iterable[str]) -> list[str]:
    return sorted(name.removeprefix("sparse/") for name in names if name.startswith("sparse/"))


def _list(names: Sequence[str], limit: int = 6) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _parts_of(path: Path, entry: WeightEntry, wanted: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
    """Yields (position, values) of all of a box of a weight, block by block, checked."""
    if isinstance(entry, ArrayEntry):
        yield from entry.blocks(wanted)
        return
    for piece in entry.pieces:
        if piece.box.overlap(wanted) is None:
            continue
        for box, values in read_blocks(path, piece, entry.dtype, wanted):
            if common := box.overlap(wanted):
                yield common, _cut(values, box, common)


def _cut(values: NDArray[Any], box: Box, part: Box) -> NDArray[Any]:
    rows = slice(part.row - box.row, part.row_end - box.row)
    return values[rows, part.column - box.column : part.column_end - box.column]


def rows_of(path: Path, entry: WeightEntry) -> Iterator[NDArray[Any]]:
    """Yields a whole weight as runs of rows [n, columns], in order; every block is checked."""
    whole = matrix_of(entry.shape)
    rows_each = rows_of_block(whole.columns, entry.dtype)
    if isinstance(entry, WeightEntry):  # few blocks are read twice
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


def export_nvidia(path: Path, folder: Path) -> list[str]:
    """Writes a checkpoint of DLRM or DCNv2 in NVIDIA's layout; see `ctr.write`."""
    index = read_index(path)
    values = {name: rows_of(path, entry) for name, entry in index.weights.items()}
    return [*ctr_layout.write(folder, index, values), *copy_attached(path, index, folder)]


def verify(path: str | os.PathLike[str]) -> Iterator[tuple[str, str | None]]:
    """Yields (file, error message or None) of every file; all bytes are read and checked."""
    path = Path(path)
    try:
        index = read_index(path)
    except ValueError as error:
        yield INDEX, str(error)
        return
    yield INDEX, None
    entries = index.weights.values()
    pieces = {piece.file: (piece, entry.dtype) for entry in entries for piece in entry.pieces}
    for name in (*pieces, *index.files):
        fault = None
        try:
            if name in pieces:
                piece, dtype = pieces[name]
                for _ in read_blocks(path, piece, dtype, piece.box):
                    pass
            else:
                check_attached(path, index, name)
        except DamagedCheckpoint as error:
            fault = str(error)
        yield name, fault
    known = {INDEX, *pieces, *index.files}
    for file in sorted(f for f in path.rglob("*") if f.is_file()):
        name = str(file.relative_to(path))
        if name not in known:
            yield name, f"{file} is not part of the checkpoint"
