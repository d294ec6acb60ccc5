"""Prediction files: one float32 score per row, in row order, as Parquet, CSV or npy.

    with open_predictions(path, num_rows) as writer:
        writer.add(scores)                             # any number of times, pieces of any length

The path's suffix selects the format:

    .parquet   columns `row` (int64, from 0) and `score` (float32), one row group per block
    .csv       the same columns; the decimal numbers restore the bits of the scores
    .npy       float32 [num_rows]
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from runtime.files import atomic
from runtime.files.atomic import atomic_file

# Rows that are buffered and written together: 4 MiB of scores.
BLOCK_ROWS = 1 << 20

FLAG = "--predictions_path"  # of the recipes


@contextlib.contextmanager
def open_predictions(
    path: str | os.PathLike[str], num_rows: int, flag: str = FLAG
) -> Iterator["PredictionWriter"]:
    """Yields a writer of `num_rows` scores; the file appears when the block ends without error.

    Until then it grows under a hidden name (`runtime.files.atomic`). After an error it is removed,
    and an older file of the name stays as it was. Memory does not depend on `num_rows`.

    Args:
        path: ends with .parquet, .csv or .npy; its folder is created.
        num_rows: number of scores.
        flag: name of the path on a command line, for error messages.

    Raises:
        ValueError: another suffix, something other than a file at `path`, more or fewer scores than
            `num_rows`, or an error of the system (permission, full disk).
    """
    open_format = _check_path(path, flag)
    path = Path(path)
    with contextlib.ExitStack() as cleanup:
        with _system_errors(path, flag):
            stream = cleanup.enter_context(atomic_file(path))
            rows = open_format(stream, num_rows)
        try:
            writer = PredictionWriter(path, num_rows, rows, flag)
            yield writer
            writer.finish()
            with _system_errors(path, flag):
                rows.close()
        except BaseException:
            with contextlib.suppress(OSError, ValueError):  # a full disk, which was reported before
                rows.close()
            raise
        with _system_errors(path, flag):
            cleanup.pop_all().close()


def check_writable(path: str | os.PathLike[str], flag: str = FLAG) -> None:
    """Raises ValueError early if `open_predictions` cannot write to `path`; creates its folder."""
    _check_path(path, flag)
    with _system_errors(Path(path), flag):
        atomic.check_writable(path)


def read_predictions(path: str | os.PathLike[str]) -> NDArray[np.float32]:
    """Returns the scores of a prediction file, float32 [num_rows]."""
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        return np.asarray(np.load(path), np.float32)
    if suffix == ".csv":
        from pyarrow import csv

        table = csv.read_csv(path)
    else:
        from pyarrow import parquet

        table = parquet.read_table(path)
    return np.asarray(table["score"].to_numpy(), np.float32)


class PredictionWriter:
    """Collects scores in blocks of `BLOCK_ROWS` and passes them to the format."""

    def __init__(self, path: Path, num_rows: int, rows: "_ArrowTable | _Npy", flag: str):
        self._path, self._flag = path, flag
        self._num_rows, self._rows = num_rows, rows
        self._block = np.empty(min(BLOCK_ROWS, num_rows), np.float32)
        self._num_written = self._num_buffered = 0

    def add(self, scores: NDArray[Any]) -> None:
        """Adds the scores of the next rows, float32 [n], n at least 0.

        Raises:
            ValueError: another dtype or shape, more scores than rows, or an error of the system.
        """
        scores = np.asarray(scores)
        if scores.dtype != np.float32 or scores.ndim != 1:
            raise ValueError(
                f"predictions: received {scores.dtype} {list(scores.shape)}; scores are float32 "
                "[rows]"
            )
        if self._num_added + len(scores) > self._num_rows:
            raise self._wrong_count(self._num_added + len(scores))
        while len(scores):
            piece = scores[: len(self._block) - self._num_buffered]
            self._block[self._num_buffered : self._num_buffered + len(piece)] = piece
            self._num_buffered += len(piece)
            scores = scores[len(piece) :]
            if self._num_buffered == len(self._block):
                self._write()

    def finish(self) -> None:
        """Writes the last block; there must be a score for every row."""
        if self._num_added != self._num_rows:
            raise self._wrong_count(self._num_added)
        if self._num_buffered:
            self._write()

    @property
    def _num_added(self) -> int:
        return self._num_written + self._num_buffered

    def _wrong_count(self, num_scores: int) -> ValueError:
        return ValueError(
            f"predictions: {num_scores} scores came for {self._num_rows} rows; {self._path} needs "
            "exactly one for each and was not written"
        )

    def _write(self) -> None:
        with _system_errors(self._path, self._flag):
            self._rows.write(self._num_written, self._block[: self._num_buffered])
        self._num_written += self._num_buffered
        self._num_buffered = 0


class _ArrowTable:
    """The columns `row` and `score` through one of pyarrow's writers."""

    def __init__(self, open_writer: Callable[[Any], Any], rows_per_write: int):
        import pyarrow

        fields = (("row", pyarrow.int64()), ("score", pyarrow.float32()))
        self._schema = pyarrow.schema(
            [pyarrow.field(name, dtype, nullable=False) for name, dtype in fields]
        )
        self._writer, self._rows_per_write = open_writer(self._schema), rows_per_write

    def write(self, first_row: int, scores: NDArray[Any]) -> None:
        import pyarrow

        rows = np.arange(first_row, first_row + len(scores))
        table = pyarrow.table([rows, scores], schema=self._schema)
        self._writer.write_table(table, self._rows_per_write)

    def close(self) -> None:
        """Completes the file; the stream stays open."""
        self._writer.close()


def _open_parquet(stream: BinaryIO, num_rows: int) -> _ArrowTable:
    from pyarrow.parquet import ParquetWriter

    # Consecutive numbers need almost no space as differences: 4 bytes per row in all, not 12.
    options = {"use_dictionary": False, "column_encoding": {"row": "DELTA_BINARY_PACKED"}}
    return _ArrowTable(lambda schema: ParquetWriter(stream, schema, **options), BLOCK_ROWS)


def _open_csv(stream: BinaryIO, num_rows: int) -> _ArrowTable:
    from pyarrow.csv import CSVWriter, WriteOptions

    stream.write(b"row,score\n")  # pyarrow would put the names in quotes
    options = WriteOptions(include_header=False)
    # As text, rows temporarily need 150 bytes each.
    return _ArrowTable(lambda schema: CSVWriter(stream, schema, write_options=options), 1 << 14)


class _Npy:
    """The scores alone, as NumPy stores them."""

    def __init__(self, stream: BinaryIO, num_rows: int):
        self._stream = stream
        header = {"descr": "<f4", "fortran_order": False, "shape": (num_rows,)}
        write_header: Any = np.lib.format.write_array_header_1_0  # NumPy 1 has no types for it
        write_header(stream, header)

    def write(self, first_row: int, scores: NDArray[Any]) -> None:
        self._stream.write(scores.astype("<f4", copy=False).data)

    def close(self) -> None:
        """Does nothing: the last score ends the file."""


_FORMATS: dict[str, Callable[[BinaryIO, int], _ArrowTable | _Npy]] = {
    ".parquet": _open_parquet,
    ".csv": _open_csv,
    ".npy": _Npy,
}


def _check_path(
    path: str | os.PathLike[str], flag: str
) -> Callable[[BinaryIO, int], _ArrowTable | _Npy]:
    """Returns the function that opens the format of a path."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(
            f"{flag} {path} ends with {suffix!r}; expected one of {', '.join(_FORMATS)}"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(
            f"{flag} {path} exists and is not a file: it is left as it is; give another path"
        )
    return _FORMATS[suffix]


@contextlib.contextmanager
def _system_errors(path: Path, flag: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{flag} {path}: {error.strerror}; the predictions were not written. Give "
            "a path where a file can be created, with space for at least 4 bytes per row "
            "(.parquet, .npy; up to 30 for .csv)"
        ) from None
