"""Prediction files: one float32 score per row, in row order, as Parquet, CSV or npy.

    with open_predictions(path, num_rows) as writer:
        writer.add(scores)                             # any number of times, pieces of any length

The path's suffix selects the format:

    .parquet   columns `row` (int64, from 0) and `score` (float32), one row group per block
    .csv       the same columns; the decimal numbers restore the bits of the scores
    .npy       float32 [num_rows]

Columns of the data set can stand between `row` and `score`, except in .npy.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from runtime.files import column_files, outputs
from runtime.files.column_files import ArrowTable
from runtime.files.outputs import output_file

FLAG = "--predictions_path"  # of the recipes
_COLUMNS = ("row", "score")
_NPY = ".npy"
_SUFFIXES = (*column_files.FORMATS, _NPY)
Fields = Sequence[tuple[str, Any]]


@contextlib.contextmanager
def open_predictions(
    path: str | os.PathLike[str], num_rows: int, flag: str = FLAG, fields: Fields = ()
) -> Iterator["PredictionWriter"]:
    """Yields a writer of `num_rows` scores; the file appears when the block ends without error.

    See `output_file`. Memory does not depend on `num_rows`.

    Args:
        path: ends with .parquet, .csv or .npy; its folder is created.
        flag: name of the path on a command line, for error messages.
        fields: name and type of pyarrow of columns that are written before the scores.

    Raises:
        ValueError: another suffix, more or fewer scores than `num_rows`, or columns in a .npy file.
        OSError: as of `output_file`.
    """
    suffix = column_files.check_suffix(path, flag, _SUFFIXES)
    check_kept(path, fields, flag)
    with output_file(path) as stream, contextlib.ExitStack() as stack:
        if suffix == _NPY:
            write = _open_npy(stream, num_rows)
        else:
            table = _open_scores(stream, suffix, fields)
            stack.enter_context(contextlib.closing(table))
            write = functools.partial(_write_scores, table)
        writer = PredictionWriter(Path(path), num_rows, write)
        yield writer
        writer.finish()


def check_kept(
    path: str | os.PathLike[str], fields: Sequence[tuple[Any, ...]], flag: str = FLAG
) -> None:
    """Raises ValueError if columns (names first) cannot stand next to the scores of a file."""
    if fields and Path(path).suffix.lower() == _NPY:
        raise ValueError(
            f"{flag} {path}: a {_NPY} file has the scores alone; for columns of the data set, "
            f"expected one of {', '.join(column_files.FORMATS)}"
        )
    for name, *_ in fields:
        if name in _COLUMNS:
            raise ValueError(
                f"{flag} {path}: has a column '{name}' of its own; keep other features, or "
                "rename the feature in the feature spec"
            )


def check_writable(path: str | os.PathLike[str], flag: str = FLAG) -> None:
    """Raises ValueError or OSError early as `open_predictions` does; creates the file's folder."""
    column_files.check_suffix(path, flag, _SUFFIXES)
    outputs.check_writable(path)


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
    """Checks that there is a score for each row, and passes them to the format.

    Args:
        write: gets the number of the first row, scores, and other columns.
    """

    def __init__(self, path: Path, num_rows: int, write: Callable[..., object]):
        self._path, self._num_rows, self._write = path, num_rows, write
        self.num_added = 0

    def add(self, scores: NDArray[np.float32], kept: Sequence[Any] = ()) -> None:
        """Adds the scores of the next rows, [n], n at least 0, and their other columns.

        Raises:
            ValueError: more scores than rows.
        """
        stop = self.num_added + len(scores)
        if stop > self._num_rows:
            raise self._wrong_count(stop)
        if len(scores):
            self._write(self.num_added, scores, kept)
        self.num_added = stop

    def finish(self) -> None:
        """There must be a score for every row."""
        if self.num_added != self._num_rows:
            raise self._wrong_count(self.num_added)

    def _wrong_count(self, num_scores: int) -> ValueError:
        return ValueError(
            f"predictions: {num_scores} scores came for {self._num_rows} rows; {self._path} needs "
            "exactly one for each and was not written"
        )


def _open_scores(stream: BinaryIO, suffix: str, fields: Fields) -> ArrowTable:
    import pyarrow

    row = pyarrow.field("row", pyarrow.int64(), nullable=False)
    score = pyarrow.field("score", pyarrow.float32(), nullable=False)
    schema = pyarrow.schema([row, *(pyarrow.field(*field) for field in fields), score])
    return column_files.FORMATS[suffix](stream, schema)


def _write_scores(
    table: ArrowTable, first_row: int, scores: NDArray[Any], kept: Sequence[Any]
) -> None:
    table.write([np.arange(first_row, first_row + len(scores)), *kept, scores])


def _open_npy(stream: BinaryIO, num_rows: int) -> Callable[..., object]:
    header = {"descr": "<f4", "fortran_order": False, "shape": (num_rows,)}
    write_header: Any = np.lib.format.write_array_header_1_0  # NumPy 1 has no types for it
    write_header(stream, header)
    return lambda first_row, scores, kept: stream.write(scores.astype("<f4", copy=False).data)
