"""CSV and Parquet files as a stream of blocks of rows; nothing is held beyond a block.

Every CSV field comes as bytes, so that what it means, and what is wrong with it, is decided in one
place (`values.py`) for both formats. Missing is null.
"""

import csv
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dataloading.spec import rules
from dataloading.table_input.lines import BYTE_ORDER_MARK, line_blocks, open_quote

CSV = "csv"
PARQUET = "parquet"
_UNREADABLE = (pa.ArrowException, OSError, csv.Error)
# Arrow's message for a row that has more or fewer fields.
_WRONG_ROW = re.compile(
    r"CSV parse error: Row #([0-9]+): Expected ([0-9]+) columns, got ([0-9]+): (.*)", re.DOTALL
)


@dataclass(frozen=True)
class RawChunk:
    """Columns of raw files."""

    type: str  # `csv` or `parquet`
    # the columns that are read; of CSV files without a header, all of them, in order
    features: tuple[str, ...]
    # paths relative to the folder of the YAML file; the rows of the first come first
    files: tuple[str, ...]
    header: bool = False  # whether the first line of each CSV file names its columns
    delimiter: str = ","
    # whether fields may be quoted; else quotation marks are characters like others
    quoting: bool = True


class Block(NamedTuple):
    """Neighbouring rows of one file."""

    columns: dict[str, pa.Array]
    where: str  # the file, as messages call it
    # the number of the first of these rows in the file, counted from 1 without a header
    first_row: int

    @property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self, start: int, stop: int | None = None) -> "Block":
        """Returns the rows start to stop - 1 of this block."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Block(columns, self.where, self.first_row + start)


def file_blocks(path: Path, chunk: RawChunk, chunk_size: int, where: str) -> Iterator[Block]:
    """Yields the rows of one file in order, at most `chunk_size` at a time.

    Args:
        chunk: its format and the columns to read; `files` is not used.

    Raises:
        ValueError: the file cannot be read, or lacks a column.
    """
    if chunk.type == CSV:
        batches = _csv_batches(path, chunk, where)
    else:
        batches = _parquet_batches(path, chunk, chunk_size, where)
    first_row = 1
    try:
        for batch in batches:
            columns = {name: batch.column(name) for name in chunk.features}
            block = Block(columns, where, first_row)
            for start in range(0, batch.num_rows, chunk_size):
                yield block.rows(start, start + chunk_size)
            first_row += batch.num_rows
    except _UNREADABLE as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"{where}: is not a {chunk.type} file that can be read, after row {first_row - 1}: "
            f"{words:.300}"
        ) from None


def describe_file(path: Path, kind: str, where: str) -> tuple[list[str], int]:
    """Returns the column names and the number of rows of a file; CSV files have a header.

    Raises:
        ValueError: the file cannot be read.
    """
    try:
        if kind != CSV:
            metadata = pq.read_metadata(path)
            return metadata.schema.to_arrow_schema().names, metadata.num_rows
        names, num_lines = [], 0
        for block in line_blocks(path, where):
            lines = block.splitlines()
            if not num_lines:
                names = next(csv.reader([lines[0].decode("utf-8", "replace")]), [])
            num_lines += len(lines)
        return names, max(num_lines - 1, 0)
    except _UNREADABLE as error:
        words = " ".join(str(error).split())
        raise ValueError(f"{where}: is not a {kind} file that can be read: {words:.300}") from None


def _csv_batches(path: Path, chunk: RawChunk, where: str):
    first_row, names = 1, list(chunk.features)
    blocks = line_blocks(path, where)
    if chunk.header:
        start = next(blocks, b"")
        _check_bytes(start, where, 0)
        _check_quotes(start, chunk, where, 0)
        header, lines = re.fullmatch(rb"([^\r\n]*)(?:\r\n?|\n)?(.*)", start, re.DOTALL).groups()
        names = _columns(header, chunk, where)
        blocks = itertools.chain([lines] if lines else [], blocks)
    for block in blocks:
        _check_bytes(block, where, first_row)
        _check_quotes(block, chunk, where, first_row)
        table = _parsed(block, chunk, names, where, first_row)
        yield from table.to_batches()
        first_row += table.num_rows


def _check_bytes(block: bytes, where: str, first_row: int) -> None:
    """Raises ValueError for a NUL byte: the CSV parser of PyArrow 25 joins rows after one."""
    if (position := block.find(b"\0")) < 0:
        return
    row = first_row + len((block[:position] + b".").splitlines()) - 1
    raise ValueError(
        f"{where}: {f'row {row}' if row else 'the header'}: expected UTF-8 text, got a NUL byte "
        "(rows are counted from 1, a header is not): remove it, or convert the file from UTF-16"
    )


def _check_quotes(block: bytes, chunk: RawChunk, where: str, first_row: int) -> None:
    if chunk.quoting and (open_field := open_quote(block, chunk.delimiter)):
        row = first_row + open_field[0]
        raise ValueError(
            f"{where}: {f'row {row}' if row else 'the header'} has a quotation mark that is not "
            f"closed at the end of its field, on its line: {open_field[1]!r:.100} (rows are "
            "counted from 1, a header is not); write one inside of a quoted field twice, or, in a "
            "feature spec, 'quoting: false' in the chunk where quotation marks mean nothing"
        )


def _parsed(
    block: bytes, chunk: RawChunk, names: list[str], where: str, first_row: int
) -> pa.Table:
    """The rows of whole lines; columns that are not read are left out."""
    if block.startswith(BYTE_ORDER_MARK):  # text, in the middle of a file; Arrow takes off one
        block = BYTE_ORDER_MARK + block
    # Columns that are not read may share a name; the reader wants different ones.
    unique = [name if name in chunk.features else f"\0{i}" for i, name in enumerate(names)]
    # One thread: rows come in order, and the number of a wrong one is known.
    read = pa_csv.ReadOptions(use_threads=False, block_size=len(block), column_names=unique)
    parse = pa_csv.ParseOptions(
        delimiter=chunk.delimiter,
        quote_char='"' if chunk.quoting else False,
        ignore_empty_lines=False,
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(chunk.features, pa.binary()),
        include_columns=list(chunk.features),
        null_values=[""],
        strings_can_be_null=True,
    )
    try:
        table = pa_csv.read_csv(pa.py_buffer(block), read, parse, convert)
    except pa.ArrowInvalid as error:
        match = _WRONG_ROW.match(str(error))
        if not match:
            raise
        line, expected, actual, text = match.groups()
        raise ValueError(
            f"{where}: row {first_row + int(line) - 1} has {actual} fields, there are {expected} "
            f"columns ({rules.listing(names)}): {text!r:.100} (rows are counted from 1, a "
            f"header is not; fields lie between {chunk.delimiter!r})"
        ) from None
    if table.num_rows != (num_lines := len(block.splitlines())):
        raise ValueError(
            f"{where}: expected {num_lines} rows from row {first_row} on, one per line, got "
            f"{table.num_rows} from PyArrow {pa.__version__}: install another version"
        )
    return table


def _columns(header: bytes, chunk: RawChunk, where: str) -> list[str]:
    line = decoded_header(header, where)
    quoting = csv.QUOTE_MINIMAL if chunk.quoting else csv.QUOTE_NONE
    names = next(csv.reader([line], delimiter=chunk.delimiter, quoting=quoting), [])
    _check_columns(names, chunk, where)
    return names


def decoded_header(line: bytes, where: str) -> str:
    """Returns the first line of a CSV file as text.

    Raises:
        ValueError: it is not UTF-8, or has a NUL byte.
    """
    _check_bytes(line, where, 0)
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        bad = line[error.start : error.start + 8]
        raise ValueError(
            f"{where}: the header: expected UTF-8 text, got the bytes {bad!r}: convert the file"
        ) from None


def _check_columns(names: list[str], chunk: RawChunk, where: str) -> None:
    for feature in chunk.features:
        if names.count(feature) != 1:
            raise ValueError(
                f"{where}: has the column '{feature}' {names.count(feature)} times; needed: once. "
                f"It has {rules.listing(names)}" + rules.suggestion(feature, names)
            )


def _parquet_batches(path: Path, chunk: RawChunk, chunk_size: int, where: str):
    with pq.ParquetFile(path) as file:
        _check_columns(file.schema_arrow.names, chunk, where)
        columns = list(chunk.features)
        yield from file.iter_batches(chunk_size, columns=columns, use_threads=False)
