"""Files of predictions: one float32 score a row, in row order, as Parquet, CSV or npy.

    check_writable(path)                               # before the work
    with open_predictions(path, num_rows) as writer:
        writer.add(scores)                             # any number of times, pieces of any length

The path's ending says which format:

    .parquet   columns `row` (int64, from 0) and `score` (float32), a row group a block
    .csv       the same columns; read as float32, a score has the bits it had
    .npy       float32 [num_rows]
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from runtime.files import atomic
from runtime.files.atomic import atomic_file

# Rows that are held until they are written together: 4 MiB of scores.
BLOCK_ROWS = 1 << 20

FLAG = "--predictions_path"  # of the recipes


@contextlib.contextmanager
def open_predictions(
    path: str | os.PathLike, num_rows: int, flag: str = FLAG
) -> Iterator["PredictionWriter"]:
    """A writer of `num_rows` scores; the file is there once the context is left without an error.

    Until then it grows beside its place under a hidden name. After an error nothing is left of it,
    and an older file of the name stays as it was. Memory does not depend on `num_rows`.

    Args:
        path: ends with .parquet, .csv or .npy; its folder is made.
        num_rows: how many scores there will be.
        flag: what names the path on a command line.

    Raises:
        ValueError: another ending, something other than a file at `path`, more or fewer scores than
            `num_rows`, or the system's refusal (permission, full disk).
    """
    open_format = _format_of(path, flag)
    path = Path(path)
    with contextlib.ExitStack() as cleanup:
        with _system_errors(path, flag):
            _check_no_folder(path, flag)
            stream = cleanup.enter_context(atomic_file(path))
            rows = cleanup.enter_context(_closed_after_errors(open_format(stream, num_rows)))
        writer = PredictionWriter(path, num_rows, rows, flag)
        yield writer
        writer.finish()
        with _system_errors(path, flag):
            rows.close()
            cleanup.pop_all().close()


@contextlib.contextmanager
def _closed_after_errors(rows: "_Table | _Npy") -> Iterator["_Table | _Npy"]:
    try:
        yield rows
    except BaseException:
        with contextlib.suppress(OSError, ValueError):  # a full disk, which was reported before
            rows.close()
        raise


def check_writable(path: str | os.PathLike, flag: str = FLAG) -> None:
    """Finds out before the work whether `open_predictions` could write to `path` after it.

    Makes the folder of `path`.

    Raises:
        ValueError: as there.
    """
    if issubclass(_format_of(path, flag), _Table):
        _import_pyarrow(flag)
    with _system_errors(Path(path), flag):
        _check_no_folder(Path(path), flag)
        atomic.check_writable(path)


class PredictionWriter:
    """Collects scores in blocks of `BLOCK_ROWS` and hands them to the format."""

    def __init__(self, path: Path, num_rows: int, rows: "_Table | _Npy", flag: str):
        self._path, self._flag = path, flag
        self._num_rows = num_rows
        self._rows = rows
        self._block = np.empty(min(BLOCK_ROWS, num_rows), np.float32)
        self._num_written = self._num_held = 0

    def add(self, scores: np.ndarray) -> None:
        """Adds the scores of the next rows.

        Args:
            scores: float32 [n], n from 0 on.

        Raises:
            ValueError: another dtype or shape, more scores than rows, or the system's refusal.
        """
        scores = np.asarray(scores)
        if scores.dtype != np.float32 or scores.ndim != 1:
            raise ValueError(
                f"predictions: received {scores.dtype} {list(scores.shape)}; scores are float32 "
                "[rows]"
            )
        if self._num_added + len(scores) > self._num_rows:
            raise self._miscounted(self._num_added + len(scores))
        while len(scores):
            piece = scores[: len(self._block) - self._num_held]
            self._block[self._num_held : self._num_held + len(piece)] = piece
            self._num_held += len(piece)
            scores = scores[len(piece) :]
            if self._num_held == len(self._block):
                self._write()

    def finish(self) -> None:
        """Writes what is held; there must be a score for every row."""
        if self._num_added != self._num_rows:
            raise self._miscounted(self._num_added)
        if self._num_held:
            self._write()

    @property
    def _num_added(self) -> int:
        return self._num_written + self._num_held

    def _miscounted(self, num_scores: int) -> ValueError:
        return ValueError(
            f"predictions: {num_scores} scores came for {self._num_rows} rows; {self._path} needs "
            "exactly one for each and was not written"
        )

    def _write(self) -> None:
        with _system_errors(self._path, self._flag):
            self._rows.write(self._num_written, self._block[: self._num_held])
        self._num_written += self._num_held
        self._num_held = 0


class _Table:
    """The columns `row` and `score` through one of pyarrow's writers."""

    max_rows_at_once = BLOCK_ROWS

    def __init__(self, stream: BinaryIO, num_rows: int):
        self._pyarrow = _import_pyarrow()
        fields = (("row", self._pyarrow.int64()), ("score", self._pyarrow.float32()))
        self._schema = self._pyarrow.schema(
            [self._pyarrow.field(name, dtype, nullable=False) for name, dtype in fields]
        )
        self._writer = self._open_writer(stream)

    def _open_writer(self, stream: BinaryIO):
        raise NotImplementedError

    def write(self, first_row: int, scores: np.ndarray) -> None:
        rows = np.arange(first_row, first_row + len(scores))
        table = self._pyarrow.table([rows, scores], schema=self._schema)
        self._writer.write_table(table, self.max_rows_at_once)

    def close(self) -> None:
        """Writes what ends the file; the stream stays open."""
        self._writer.close()


class _Parquet(_Table):
    def _open_writer(self, stream: BinaryIO):
        # Consecutive numbers take next to nothing as differences: 4 bytes a row in all, not 12.
        return self._pyarrow.parquet.ParquetWriter(
            stream,
            self._schema,
            use_dictionary=False,
            column_encoding={"row": "DELTA_BINARY_PACKED"},
        )


class _Csv(_Table):
    max_rows_at_once = 1 << 14  # as text they take some 150 bytes each meanwhile

    def _open_writer(self, stream: BinaryIO):
        stream.write(b"row,score\n")  # pyarrow would put the names in quotes
        options = self._pyarrow.csv.WriteOptions(include_header=False)
        return self._pyarrow.csv.CSVWriter(stream, self._schema, write_options=options)


class _Npy:
    """The scores alone, as NumPy stores them."""

    def __init__(self, stream: BinaryIO, num_rows: int):
        self._stream = stream
        header = {"descr": "<f4", "fortran_order": False, "shape": (num_rows,)}
        np.lib.format.write_array_header_1_0(stream, header)

    def write(self, first_row: int, scores: np.ndarray) -> None:
        self._stream.write(scores.astype("<f4", copy=False).data)

    def close(self) -> None:
        """There is nothing behind the last score."""


_FORMATS = {".parquet": _Parquet, ".csv": _Csv, ".npy": _Npy}


def _format_of(path: str | os.PathLike, flag: str):
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise ValueError(
            f"{flag} {path} ends with {ending!r}; allowed: {', '.join(_FORMATS)}, "
            "which says the format"
        )
    return _FORMATS[ending]


def _import_pyarrow(flag: str = FLAG):
    """The module `pyarrow`, with the two that write."""
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            f"{flag}: .parquet and .csv need pyarrow, which cannot be imported "
            f"({error}): install it with `make setup`, or give a path that ends with .npy"
        ) from None
    return pyarrow


def _check_no_folder(path: Path, flag: str) -> None:
    if path.exists() and not path.is_file():
        raise ValueError(
            f"{flag} {path} exists and is not a file: it is left as it is; give another path"
        )


@contextlib.contextmanager
def _system_errors(path: Path, flag: str):
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{flag} {path}: {error.strerror}; the predictions were not written. Give "
            "a path where a file can be made, with room for at least 4 bytes a row (.parquet, "
            ".npy; up to 30 for .csv)"
        ) from None
