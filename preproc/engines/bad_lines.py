"""Lines of text files that are not rows: their messages, and how many may be skipped."""

import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from preproc.sources.contents import cut_file

FAIL = "fail"  # of --on_bad_line, the other value is "skip"
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
    if on_bad_line == FAIL:
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
    num_lines, last = 1, b""
    for block in text_blocks(path):
        piece = block[:position]
        num_lines += _line_ends(last + piece) - _line_ends(last)
        if len(block) > position:
            rest = block[position:]
            return num_lines + _line_ends(rest[: len(rest) - len(rest.lstrip(b"\r\n"))])
        position -= len(block)
        last = piece[-1:]
    return num_lines


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


def _line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def has_mixed_line_ends(path: str) -> bool:
    """Returns whether lines of a file end in different ways, which DuckDB's reader refuses."""
    pairs = feeds = returns = 0
    last = b""
    for block in text_blocks(path):
        pairs += block.count(b"\r\n") + (last == b"\r" and block.startswith(b"\n"))
        feeds += block.count(b"\n")
        returns += block.count(b"\r")
        last = block[-1:]
    return sum(count > 0 for count in (pairs, feeds - pairs, returns - pairs)) > 1


def line_of_record(path: str, record: int) -> int:
    """Returns the number of the line, from 1, of a record of a file, whose blank lines do
    not count."""
    with pa.input_stream(path, compression="detect") as stream:
        lines = enumerate(io.TextIOWrapper(stream, "latin-1"), 1)
        numbers = (number for number, line in lines if line.strip(" \t\r\n\f\v"))
        return next(itertools.islice(numbers, record - 1, None))


def copy_with_line_feeds(path: str, target: str) -> None:
    """Writes a copy of a text file, decompressed, whose lines end with a line feed."""
    with open(target, "wb") as file:
        last = b""
        for block in text_blocks(path):
            data = last + block
            last = b"\r" if data.endswith(b"\r") else b""
            data = data.removesuffix(b"\r")
            file.write(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        file.write(last.replace(b"\r", b"\n"))
