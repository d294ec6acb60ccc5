"""CSV files as blocks of whole lines, of which each is a row.

A quoted field ends on its line. Otherwise a forgotten quotation mark would silently join the rows
up to the next one in one field.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Read at a time; a line must be shorter.
_BLOCK_BYTES = 1 << 20


class LongLine(ValueError):
    """A line that does not fit into a block."""

    def __init__(self, where: str, num_lines: int):
        super().__init__(
            f"{where}: line {num_lines + 1} has {_BLOCK_BYTES} bytes or more; expected fewer. Is "
            "it a CSV file?"
        )


def line_blocks(path: Path, where: str) -> Iterator[bytes]:
    """Yields whole lines of a file, decompressed according to its name, in blocks of 1 MiB.

    A line ends with `\\n`, `\\r\\n` or `\\r`, the last one possibly with the file. A byte order
    mark at the start is left out.

    Raises:
        LongLine: a line is too long.
        OSError: the file cannot be decompressed.
    """
    rest, bare = b"", BYTE_ORDER_MARK
    num_lines = 0
    with pa.input_stream(str(path)) as stream:
        while data := stream.read(_BLOCK_BYTES):
            data = (rest + data).removeprefix(bare)
            bare = b""
            end = _last_line_end(data)
            if not end and len(data) >= _BLOCK_BYTES:
                raise LongLine(where, num_lines)
            if end:
                num_lines += len(data[:end].splitlines())
                yield data[:end]
            rest = data[end:]
    if rest:
        yield rest


def _last_line_end(data: bytes) -> int:
    """Returns the number of bytes of the whole lines at the start of data."""
    # What follows a \r at the very end may be its \n.
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1


def open_quote(block: bytes, delimiter: str) -> tuple[int, bytes] | None:
    """Returns number (from 0) and text of the first line on which a quoted field does not end, or
    not with its quotation mark; None without such a line."""
    if b'"' not in block:
        return None
    well_quoted = _well_quoted(delimiter)
    for number, line in enumerate(block.splitlines()):
        if b'"' in line and not well_quoted.fullmatch(line):
            return number, line
    return None


@functools.cache
def _well_quoted(delimiter: str) -> re.Pattern:
    """Returns the pattern of a line of fields that are quoted as a whole, or not at all.

    No field can be read in two ways, so the time is linear.
    """
    between = re.escape(delimiter.encode())
    field = rb'(?:"[^"]*(?:""[^"]*)*"|(?!")[^%b]*)' % between
    return re.compile(rb"%b(?:%b%b)*" % (field, between, field), re.DOTALL)
