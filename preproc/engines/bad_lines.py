"""Lines of text files that are not rows: their messages, and how many may be skipped."""

import io
import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from preproc.sources.contents import cut_file
from preproc.sources.duckdb_files import BYTE_ORDER_MARK

SKIP = "skip"  # of --on_bad_line; with another value, a bad line is an error
_MOST_SKIPPED = 0.01  # share of the lines
_BLOCK_BYTES = 1 << 22
MOST_LISTED = 1000


class BadLine(NamedTuple):
    """A line that is not a row; a tuple of plain values, so that tasks can report it.

    Attributes:
        file: number of its file.
        line: number of the line in the file, from 1; of a row with several lines, the first one. 0
            where it is not known, which is so for all bad lines but the first.
        record: number of the record, from 1: a header, an empty line or a row.
        rule: what was expected, what was received.
    """

    file: int
    line: int
    record: int
    rule: str


class BadLines(NamedTuple):
    """Number of the bad lines of files, and the first `MOST_LISTED` of them in order."""

    count: int
    first: tuple[BadLine, ...]


def check_bad_lines(bad: BadLines, num_rows: int, files: Sequence[str], on_bad_line: str) -> None:
    """Reports skipped lines; num_rows: of the other lines.

    Raises:
        ValueError: a bad line where none may be skipped, or more than 1 %.
    """
    if not bad.count:
        return
    count, first = bad.count, bad.first[0]
    message = f"{files[first.file]}, line {first.line}: {first.rule}"
    if on_bad_line != SKIP:
        raise ValueError(
            f"{message}; or leave such lines out, at most {_MOST_SKIPPED:.0%} of all, with "
            "--on_bad_line skip"
        )
    share = count / (count + num_rows)
    counted = f"{count:,} of {count + num_rows:,} lines ({share:.2%}), which cannot be read"
    if share > _MOST_SKIPPED:
        raise ValueError(
            f"--on_bad_line skip: expected at most {_MOST_SKIPPED:.0%} bad lines, got {counted}; "
            f"the first one: {message}"
        )
    print(f"skipped {counted}; the first one: {message}", file=sys.stderr, flush=True)


NO_BAD_LINES = BadLines(0, ())


def place(
    files: Sequence[str], file: int, row: int, bad: Sequence[BadLine], header_rows: int
) -> str:
    """Returns how messages call a row of a file, which is numbered from 0 without skipped lines."""
    number = row + 1
    for line in (line for line in bad if line.file == file):
        number += line.record - header_rows <= number
    return f"{files[file]}, row {number} (rows are counted from 1, a header is not)"


def line_at(path: str, position: int) -> int:
    """Returns the number of the line, from 1, that has the byte at a position, after empty lines.

    Args:
        position: from 0, in the decompressed file.
    """
    end = 0
    with _open_lines(path, newline="") as lines:
        for number, line in enumerate(lines, 1):
            end += len(line)
            if end > position and line.strip("\r\n"):
                return number
    return 0


def text_blocks(path: str) -> Iterator[bytes]:
    """Yields a file in blocks, decompressed according to its name.

    Raises:
        ValueError: the file is cut or damaged.
    """
    try:
        with pa.input_stream(path, compression="detect") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
    except OSError as error:
        raise cut_file(path, error) from None


def has_mixed_line_ends(path: str) -> bool:
    """Returns whether lines of a file end in different ways, which DuckDB's reader refuses."""
    with _open_lines(path) as lines:
        for _ in lines:
            pass
        return isinstance(lines.newlines, tuple)


def line_of_record(path: str, record: int) -> int:
    """Returns the number of the line, from 1, of a record of a file, whose blank lines do
    not count."""
    with _open_lines(path) as lines:
        filled = (number for number, line in enumerate(lines, 1) if line.strip(" \t\r\n\f\v"))
        return next(itertools.islice(filled, record - 1, None))


def copy_with_line_feeds(path: str, target: str) -> None:
    """Writes a copy of a text file, decompressed, whose lines end with a line feed, without a byte
    order mark, after which DuckDB takes no line break in a name."""
    with _open_lines(path) as lines, open(target, "w", encoding="latin-1", newline="") as file:
        mark = BYTE_ORDER_MARK.decode("latin-1")
        file.write(lines.read(len(mark)).removeprefix(mark))
        shutil.copyfileobj(lines, file)


def _open_lines(path: str, newline: str | None = None) -> io.TextIOWrapper:
    """Opens a text file, decompressed according to its name, with a character for each byte."""
    stream = pa.input_stream(path, compression="detect")
    return io.TextIOWrapper(stream, "latin-1", newline=newline)
