"""Rows of memory-mapped tables by the ids of a request, summed where a feature has many ids.

All processes that map a file share one copy of it in memory.

Left to itself Linux reads what the disk's read-ahead says around each row, mostly 128 KiB, perhaps
MiB: 2,000 rows of 256 bytes brought all of 1 GB into memory, and meanwhile one in a hundred took 5
ms or more. So it is told: read all of it now, or, where there is no memory for it, pages of rows
that are asked for and no more.
"""

import itertools
import mmap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deployment.serving.interface import TABLES_FOLDER, Interface, ServedLookup, ServedTable
from deployment.serving.memory import available_bytes
from deployment.serving.widening import widen

# Rows that are summed, widened or moved are worked on in pieces that stay in a core's cache.
_PIECE_BYTES = 1 << 20

# So many bytes of float32 rows are worth one more thread, which takes 50 us to wake.
_BYTES_PER_THREAD = 2 << 20

# Of the memory that there is, tables take at most so much where all of them are to be in it: the
# rest is for other models, and for what comes to the machine later.
_COMFORTABLE_SHARE = 0.5


class MappedTables:
    """The tables of a served model.

    Args:
      folder: its version folder.
      interface: what it looks up.
      threads: that share the rows of a large batch.
      preload: whether the files are read now, in the background, if there is memory for all of
        them: for many requests to come. Else their rows are, when they are asked for.

    Attributes:
      size_bytes: of the files.
      fits: whether there is memory for all of them.

    Raises:
      ValueError: a file is missing, or is not what the interface says.
    """

    def __init__(
        self, folder: str | Path, interface: Interface, threads: int = 1, preload: bool = False
    ):
        self._width = interface.width
        self._files = _files(Path(folder) / TABLES_FOLDER, interface)
        arrays = [array for file in self._files for array in file.arrays]
        self.size_bytes = sum(array.nbytes for array in arrays)
        self.fits = self.size_bytes <= _COMFORTABLE_SHARE * available_bytes()
        if preload or not self.fits:
            for array in arrays:
                _map_of(array).madvise(mmap.MADV_WILLNEED if self.fits else mmap.MADV_RANDOM)
        self._bytes_per_row = sum(file.bytes_per_row for file in self._files)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "look_up") if threads > 1 else None

    def lookup(self, arrays: Mapping[str, np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
        """The embeddings float32 [batch, width] of a request.

        Args:
          arrays: tensor -> [batch, *dims], checked: an id out of range is not noticed here.
          out: where to write them, C-contiguous; None: new memory.
        """
        batch_size = len(next(iter(arrays.values())))
        if out is None:
            out = np.empty((batch_size, self._width), np.float32)
        ids = [file.rows_of(arrays) for file in self._files]
        shares = min(self._threads, 1 + batch_size * self._bytes_per_row // _BYTES_PER_THREAD)
        if shares == 1:
            self._fill(ids, out, 0, batch_size)
            return out
        bounds = [batch_size * share // shares for share in range(shares + 1)]
        others = [
            self._pool.submit(self._fill, ids, out, start, stop)
            for start, stop in itertools.pairwise(bounds[1:])
        ]
        self._fill(ids, out, 0, bounds[1])
        for other in others:
            other.result()
        return out

    def _fill(self, ids: list[np.ndarray], out: np.ndarray, start: int, stop: int) -> None:
        """Rows start to stop - 1 of the embeddings."""
        for file, rows in zip(self._files, ids, strict=True):
            file.fill(rows[start:stop], out[start:stop])

    def close(self) -> None:
        """Ends the threads, and unmaps the files."""
        if self._pool:
            self._pool.shutdown()
        self._files = []


class _IdColumns(NamedTuple):
    """Columns start to stop - 1 of a request tensor."""

    input: str
    start: int
    stop: int

    def ends_at(self, name: str, column: int) -> bool:
        return (self.input, self.stop) == (name, column)


class _VectorMove(NamedTuple):
    """Where vectors go: those of the columns `ids` into the columns `embeddings`.

    is_sum: whether they are added up to one.
    """

    ids: slice
    embeddings: slice
    is_sum: bool

    def ends_at(self, column: int) -> bool:
        """Whether vectors from `column` of the embeddings on can be moved along."""
        return not self.is_sum and self.embeddings.stop == column


class _TableFile:
    """A file of tables, and all lookups in it: one call of NumPy finds all of their rows."""

    def __init__(self, folder: Path, tables: list[ServedTable], width: int):
        self._stored = _mapped(folder / tables[0].file)
        self._scales = _mapped(folder / tables[0].scales) if tables[0].scales else None
        for table in tables:
            _check_fits(folder, table, self._stored, self._scales)
        self._dim = tables[0].dim
        self._width = width
        self._sources: list[_IdColumns] = []
        self._moves: list[_VectorMove] = []
        self._first_rows: list[int] = []
        self._may_lack: list[bool] = []

    def add(self, lookup: ServedLookup, first_row: int, may_lack: bool, column: int) -> int:
        """Adds a lookup whose vectors begin at `column` of the embeddings; returns where the next
        one's begin."""
        start, count = lookup.start, lookup.count
        first_id, first_column = len(self._first_rows), column
        is_sum = lookup.combiner is not None and count > 1
        self._first_rows += [first_row] * count
        self._may_lack += [may_lack] * count
        next_column = column + self._dim * (1 if is_sum else count)
        # What lies side by side on both sides is taken, and moved, together.
        if self._sources and self._sources[-1].ends_at(lookup.input, start):
            start = self._sources.pop().start
        self._sources.append(_IdColumns(lookup.input, start, lookup.start + count))
        if self._moves and not is_sum and self._moves[-1].ends_at(column):
            last = self._moves.pop()
            first_id, first_column = last.ids.start, last.embeddings.start
        ids = slice(first_id, len(self._first_rows))
        self._moves.append(_VectorMove(ids, slice(first_column, next_column), is_sum))
        return next_column

    @property
    def arrays(self) -> list[np.ndarray]:
        """What is mapped."""
        return [self._stored] if self._scales is None else [self._stored, self._scales]

    def prepare(self) -> None:
        """To be called when all lookups are there."""
        self._offsets = np.array(self._first_rows)
        self._lacking = np.array(self._may_lack) if any(self._may_lack) else None
        # The rows found are the embeddings: nothing is moved.
        self._is_all = self._moves == [
            _VectorMove(slice(0, len(self._offsets)), slice(0, self._width), False)
        ]

    @property
    def bytes_per_row(self) -> int:
        """Of float32 vectors that are looked up for a row of a request."""
        return 4 * self._dim * len(self._first_rows)

    def rows_of(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which rows of the file are asked for, int64 [batch, ids]; negative: none."""
        pieces = [
            arrays[name].reshape(len(arrays[name]), -1)[:, start:stop]
            for name, start, stop in self._sources
        ]
        ids = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)
        rows = ids + self._offsets
        if self._lacking is not None:
            rows[(ids < 0) & self._lacking] = -1
        return rows

    def fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Writes the vectors of rows int64 [batch, ids] where they belong in out [batch, width]."""
        num_ids = len(self._offsets)
        if self._is_all and self._stored.dtype == np.float32:
            self._find(rows, out.reshape(-1, num_ids, self._dim))
            return
        piece_rows = max(1, _PIECE_BYTES // self.bytes_per_row)
        shape = (min(piece_rows, len(rows)), num_ids, self._dim)
        found = np.empty(shape, np.float32)
        for start in range(0, len(rows), piece_rows):
            piece, target = rows[start : start + piece_rows], out[start : start + piece_rows]
            if self._is_all:
                self._find(piece, target.reshape(-1, num_ids, self._dim))
                continue
            vectors = found[: len(piece)]
            self._find(piece, vectors)
            for ids, embeddings, is_sum in self._moves:
                if is_sum:
                    np.add.reduce(vectors[:, ids], axis=1, out=target[:, embeddings])
                else:
                    target[:, embeddings] = vectors[:, ids].reshape(len(piece), -1)

    def _find(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Rows of the file, float32, into out [batch, ids, dim]; zeros for negative ones."""
        # "clip" because "raise" would copy `out` first, in case of an error.
        if self._stored.dtype == np.float32:
            self._stored.take(rows, axis=0, out=out, mode="clip")
        else:
            scales = None if self._scales is None else self._scales.take(rows, mode="clip")
            widen(self._stored.take(rows, axis=0, mode="clip"), scales, out)
        if self._lacking is not None:
            out[rows < 0] = 0


def _files(folder: Path, interface: Interface) -> list[_TableFile]:
    """The files of an interface's tables, with its lookups."""
    table_of = {table.name: table for table in interface.tables}
    names = dict.fromkeys(table_of[lookup.table].file for lookup in interface.lookups)
    files = {
        name: _TableFile(folder, [t for t in interface.tables if t.file == name], interface.width)
        for name in names
    }
    column = 0
    for lookup in interface.lookups:
        table = table_of[lookup.table]
        may_lack = any(
            feature.padded
            and feature.input == lookup.input
            and feature.start < lookup.start + lookup.count
            and lookup.start < feature.start + feature.count
            for feature in interface.features
        )
        column = files[table.file].add(lookup, table.first_row, may_lack, column)
    for file in files.values():
        file.prepare()
    return list(files.values())


def _mapped(path: Path) -> np.ndarray:
    """A .npy file as an array whose pages are read when they are needed.

    Raises:
      ValueError: it is not there, or is no such file.
    """
    try:
        # As a plain array: np.memmap takes microseconds more whenever it is indexed.
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: is no table ({error}); deploy the checkpoint again") from None


def _map_of(array: np.ndarray) -> mmap.mmap:
    """The map that an array of `_mapped` is in."""
    base = array
    while not isinstance(base, mmap.mmap):
        base = base.base
    return base


def _check_fits(
    folder: Path, table: ServedTable, stored: np.ndarray, scales: np.ndarray | None
) -> None:
    rows = table.first_row + table.rows
    fits = stored.ndim == 2 and len(stored) >= rows and stored.shape[1] == table.dim
    if not fits or stored.dtype != table.dtype or (table.dtype == "int8") != (scales is not None):
        raise ValueError(
            f"{folder / table.file}: holds {stored.dtype} {list(stored.shape)}; table "
            f"'{table.name}' needs {table.dtype} [{rows} or more, {table.dim}]; deploy the "
            "checkpoint again"
        )
    if scales is not None and (scales.dtype != np.float32 or scales.shape != stored.shape[:1]):
        raise ValueError(
            f"{folder / table.scales}: holds {scales.dtype} {list(scales.shape)}; table "
            f"'{table.name}' needs float32 [{len(stored)}]; deploy the checkpoint again"
        )
