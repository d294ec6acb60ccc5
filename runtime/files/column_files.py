"""Tables of columns as Parquet or CSV files that appear when they are complete.

    with open_table(path, schema, FLAG) as table:
        table.write(columns)                       # any number of times, arrays of pyarrow

In CSV files, the values of a list are separated by `;`.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from runtime.files.outputs import output_file

# Rows, or bytes if these are reached first, that are written together: a row group of Parquet.
GROUP_ROWS, GROUP_BYTES = 1 << 20, 1 << 26
# Rows of a CSV file that are turned into text together: 150 bytes each.
_CSV_ROWS = 1 << 14
LIST_SEPARATOR = ";"


class ArrowTable:
    """Columns through one of pyarrow's writers, `GROUP_ROWS` rows or `GROUP_BYTES` at a time.

    Args:
        schema: schema of pyarrow.
        writer: writer of pyarrow for tables of the schema.
        rows_per_write: rows that are converted together.
        convert: of a column, before it is written.
    """

    def __init__(
        self,
        schema: Any,
        writer: Any,
        rows_per_write: int | None = None,
        convert: Callable[[Any], Any] = lambda column: column,
    ):
        self._schema, self._writer, self._convert = schema, writer, convert
        self._rows_per_write = rows_per_write or GROUP_ROWS
        self._waiting: list[Any] = []
        self._num_rows = self._size_bytes = 0  # that wait

    def write(self, columns: Sequence[Any]) -> None:
        """Appends rows."""
        import pyarrow

        self._append(pyarrow.table(list(map(self._convert, columns)), schema=self._schema))
        if self._num_rows >= GROUP_ROWS or self._size_bytes >= GROUP_BYTES:
            self._write(self._num_rows // GROUP_ROWS * GROUP_ROWS or self._num_rows)

    def _append(self, table: Any) -> None:
        self._waiting.append(table)
        self._num_rows += len(table)
        self._size_bytes += table.nbytes

    def _write(self, num_rows: int) -> None:
        import pyarrow

        table, self._waiting = pyarrow.concat_tables(self._waiting), []
        self._num_rows = self._size_bytes = 0
        self._writer.write_table(table[:num_rows], self._rows_per_write)
        self._append(table[num_rows:])

    def close(self) -> None:
        """Completes the file; the stream stays open."""
        if self._num_rows:
            self._write(self._num_rows)
        self._writer.close()


def open_parquet(stream: BinaryIO, schema: Any) -> ArrowTable:
    """Opens a Parquet file."""
    from pyarrow.parquet import ParquetWriter

    # Consecutive numbers need almost no space as differences.
    counted = {name: "DELTA_BINARY_PACKED" for name in schema.names if name in ("row", "rank")}
    options = {"use_dictionary": False, "column_encoding": counted}
    return ArrowTable(schema, ParquetWriter(stream, schema, **options))


def open_csv(stream: BinaryIO, schema: Any) -> ArrowTable:
    """Opens a CSV file; pyarrow would put the names of its header in quotes."""
    import pyarrow
    from pyarrow.csv import CSVWriter, WriteOptions

    stream.write((",".join(map(_quoted, schema.names)) + "\n").encode())
    options = WriteOptions(include_header=False)
    for number, field in enumerate(schema):
        if pyarrow.types.is_list(field.type):
            schema = schema.set(number, pyarrow.field(field.name, pyarrow.string()))
    writer = CSVWriter(stream, schema, write_options=options)
    return ArrowTable(schema, writer, _CSV_ROWS, _as_text)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name


def _as_text(column: Any) -> Any:
    import pyarrow
    import pyarrow.compute as pc

    kind = getattr(column, "type", None)
    if kind is None or not pyarrow.types.is_list(kind):
        return column
    values = pc.fill_null(column.values.cast(pyarrow.string()), "")
    texts = pyarrow.ListArray.from_arrays(column.offsets, values)
    return pc.binary_join(texts, LIST_SEPARATOR)


FORMATS = {".parquet": open_parquet, ".csv": open_csv}


@contextlib.contextmanager
def open_table(path: str | os.PathLike[str], schema: Any, flag: str) -> Iterator["ArrowTable"]:
    """Yields a table whose file appears when the block ends without error; see `output_file`."""
    open_format = FORMATS[check_suffix(path, flag, FORMATS)]
    with output_file(path) as stream, contextlib.closing(open_format(stream, schema)) as table:
        yield table


def check_suffix(path: str | os.PathLike[str], flag: str, suffixes: Collection[str]) -> str:
    """Returns the suffix of a path; ValueError for another one than these."""
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        raise ValueError(
            f"{flag} {path} ends with {suffix!r}; expected one of {', '.join(suffixes)}"
        )
    return suffix
