"""Lookups in memory-mapped tables, summed for features of many ids.

All processes that map a file share one copy in memory. By default Linux reads the disk's read-ahead
around each row, 128 KiB or more: 2,000 rows of 256 bytes read all of 1 GB, and 1 % of the lookups
took 5 ms or more during that time. So files are read at once (MADV_WILLNEED) if they fit into
memory, and otherwise page by page (MADV_RANDOM).
"""

import itertools
import mmap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deployment.serving import checksums
from deployment.serving.interface import TABLES_FOLDER, Interface, ServedLookup, ServedTable
from runtime.hardware.available_memory import available_bytes

# Rows are summed, widened or moved in blocks that fit into a core's cache.
_BLOCK_BYTES = 1 << 20

# Bytes of float32 rows that justify another thread, which takes 50 us to wake.
_BYTES_PER_THREAD = 2 << 20

# Share of the available memory that tables may take; the rest is for other models and processes.
_MEMORY_SHARE = 0.5

# A float16 in bits is sign, 5 of exponent, 10 of mantissa; a float32 sign, 8 and 23. Sign-extended
# to 32 bits and shifted by 13, mantissa and exponent are in place, and copies of the sign above
# them are masked out. The exponent is then counted from another zero: too small by 127 - 15.
_MANTISSA_SHIFT = 23 - 10
_KEPT_BITS = np.array(0x8FFFE000, np.uint32).view(np.int32)
_EXPONENT_STEP = np.float32(2.0 ** (127 - 15))


class MappedTables:
    """Memory-mapped tables of a served model, whose rows threads share for a large batch.

    With `preload`, for processes that receive many requests, files that fit into memory are read
    and verified now.

    Attributes:
        size_bytes: size of the files.
        fits: whether the files fit into memory.

    Raises:
        ValueError: a file is missing, damaged, or does not match the interface.
    """

    def __init__(
        self, folder: str | Path, interface: Interface, threads: int = 1, preload: bool = False
    ):
        self._width = interface.width
        self._files = _table_files(Path(folder) / TABLES_FOLDER, interface)
        arrays = [array for file in self._files for array in file.arrays]
        self.size_bytes = sum(array.nbytes for array in arrays)
        available = available_bytes()
        self.fits = available is None or self.size_bytes <= _MEMORY_SHARE * available
        if preload or not self.fits:
            for array in arrays:
                _map_of(array).madvise(mmap.MADV_WILLNEED if self.fits else mmap.MADV_RANDOM)
        if preload and self.fits:
            checksums.verify(folder, f"{TABLES_FOLDER}/*")
        self._bytes_per_row = sum(file.bytes_per_row for file in self._files)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "lookup") if threads > 1 else None

    def lookup(self, arrays: Mapping[str, np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
        """Returns the embeddings float32 [batch, width] of a request.

        Args:
            arrays: checked tensors by name, [batch, *dims]; ids out of range are not detected here.
            out: C-contiguous array for the result; None: a new one.
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
        futures = [
            self._pool.submit(self._fill, ids, out, start, stop)
            for start, stop in itertools.pairwise(bounds[1:])
        ]
        self._fill(ids, out, 0, bounds[1])
        for future in futures:
            future.result()
        return out

    def _fill(self, ids: list[np.ndarray], out: np.ndarray, start: int, stop: int) -> None:
        for file, rows in zip(self._files, ids, strict=True):
            file.fill(rows[start:stop], out[start:stop])

    def close(self) -> None:
        """Ends the threads, and unmaps the files."""
        if self._pool:
            self._pool.shutdown()
        self._files = []


class _PlacedLookup(NamedTuple):
    """A lookup, the first row of its table in the file, and its first column of the embeddings."""

    lookup: ServedLookup
    first_row: int
    is_padded: bool
    column: int


class _VectorMove(NamedTuple):
    """Columns of ids, and of the embeddings that have their vectors, or the sum of these."""

    ids: slice
    embeddings: slice
    is_sum: bool


class _TableFile:
    """A file of tables, whose rows for all lookups one NumPy call gathers."""

    def __init__(
        self, folder: Path, tables: list[ServedTable], lookups: list[_PlacedLookup], width: int
    ):
        self._stored = _mapped(folder / tables[0].file)
        self._scales = _mapped(folder / tables[0].scales) if tables[0].scales else None
        for table in tables:
            _check_fits(folder, table, self._stored, self._scales)
        self._dim = tables[0].dim
        counts = [placed.lookup.count for placed in lookups]
        self._offsets = np.repeat([placed.first_row for placed in lookups], counts)
        is_padded = np.repeat([placed.is_padded for placed in lookups], counts)
        self._padded_ids = is_padded if is_padded.any() else None
        self._columns: list[tuple[str, int, int]] = []  # of request tensors: name, first, end
        self._moves: list[_VectorMove] = []
        first_id = 0
        for lookup, _, _, column in lookups:
            start, stop = lookup.start, lookup.start + lookup.count
            # Neighbouring columns are read together.
            if self._columns and self._columns[-1][::2] == (lookup.input, start):
                _, start, _ = self._columns.pop()
            self._columns.append((lookup.input, start, stop))
            ids = slice(first_id, first_id + lookup.count)
            columns = slice(column, column + self._dim * _num_vectors(lookup))
            self._moves.append(_VectorMove(ids, columns, _num_vectors(lookup) < lookup.count))
            first_id = ids.stop
        # Gathered rows are the embeddings: nothing is moved.
        is_sum = any(move.is_sum for move in self._moves)
        self._is_all = not is_sum and self._dim * len(self._offsets) == width

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self._stored] if self._scales is None else [self._stored, self._scales]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of float32 vectors per row of a request."""
        return 4 * self._dim * len(self._offsets)

    def rows_of(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the requested rows of the file, int64 [batch, ids]; negative ones are padding."""
        columns = [
            arrays[name].reshape(len(arrays[name]), -1)[:, start:stop]
            for name, start, stop in self._columns
        ]
        ids = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        rows = ids + self._offsets
        if self._padded_ids is not None:
            rows[(ids < 0) & self._padded_ids] = -1
        return rows

    def fill(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Writes the vectors of rows int64 [batch, ids] to their columns of out [batch, width]."""
        num_ids = len(self._offsets)
        if self._is_all and self._stored.dtype == np.float32:
            self._gather(rows, out.reshape(-1, num_ids, self._dim))
            return
        block_rows = max(1, _BLOCK_BYTES // self.bytes_per_row)
        buffer = np.empty((min(block_rows, len(rows)), num_ids, self._dim), np.float32)
        for start in range(0, len(rows), block_rows):
            block, target = rows[start : start + block_rows], out[start : start + block_rows]
            if self._is_all:
                self._gather(block, target.reshape(-1, num_ids, self._dim))
                continue
            vectors = buffer[: len(block)]
            self._gather(block, vectors)
            for ids, embeddings, is_sum in self._moves:
                if is_sum:
                    np.add.reduce(vectors[:, ids], axis=1, out=target[:, embeddings])
                else:
                    target[:, embeddings] = vectors[:, ids].reshape(len(block), -1)

    def _gather(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Writes rows of the file as float32 [batch, ids, dim]; zeros for negative ones."""
        # "clip" because "raise" would copy `out` first, in case of an error.
        if self._stored.dtype == np.float32:
            self._stored.take(rows, axis=0, out=out, mode="clip")
        else:
            scales = None if self._scales is None else self._scales.take(rows, mode="clip")
            widen(self._stored.take(rows, axis=0, mode="clip"), scales, out)
        if self._padded_ids is not None:
            out[rows < 0] = 0


def widen(stored: np.ndarray, scales: np.ndarray | None, out: np.ndarray) -> None:
    """Writes rows of float16 (finite), or of int8 times their float32 scales [...], as float32
    [..., dim].

    float16 is converted by bit operations, in half the time of NumPy's conversion of single values.
    """
    if scales is not None:
        np.copyto(out, stored)
        out *= scales[..., None]
        return
    bits = out.view(np.int32)
    np.copyto(bits, stored.view(np.int16))
    np.left_shift(bits, _MANTISSA_SHIFT, out=bits)
    np.bitwise_and(bits, _KEPT_BITS, out=bits)
    np.multiply(out, _EXPONENT_STEP, out=out)


def _table_files(folder: Path, interface: Interface) -> list[_TableFile]:
    table_of = {table.name: table for table in interface.tables}
    lookups: dict[str, list[_PlacedLookup]] = {}
    column = 0
    for lookup in interface.lookups:
        table = table_of[lookup.table]
        is_padded = any(
            feature.padded
            and feature.input == lookup.input
            and feature.start < lookup.start + lookup.count
            and lookup.start < feature.start + feature.count
            for feature in interface.features
        )
        placed = _PlacedLookup(lookup, table.first_row, is_padded, column)
        lookups.setdefault(table.file, []).append(placed)
        column += table.dim * _num_vectors(lookup)
    return [
        _TableFile(folder, [t for t in interface.tables if t.file == name], placed, column)
        for name, placed in lookups.items()
    ]


def _num_vectors(lookup: ServedLookup) -> int:
    return lookup.count if lookup.combiner is None else 1


def _mapped(path: Path) -> np.ndarray:
    """Maps a .npy file; raises ValueError if it does not exist, or is not such a file."""
    try:
        # As a plain array: indexing np.memmap takes microseconds longer.
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: is not a table ({error}); deploy the checkpoint again") from None


def _map_of(array: np.ndarray) -> mmap.mmap:
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
