"""Rules for the lines of a raw Criteo log, and explanations of bad lines.

A line holds 40 fields with a tab between them: the label (0 or 1), 13 integers and 26
categorical values, the latter two empty where missing. `LINE_PATTERN` is the whole rule: it means
the same in Python, RE2 (DuckDB) and Java (Spark). A carriage return at the end is dropped. Blank
lines at the end of a file are ignored; any other line that does not match is malformed.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from preproc.raw_files import gzip_errors, open_unpacked
from preproc.sources.duckdb_files import BYTE_ORDER_MARK

NUM_NUMERICAL = 13
NUM_CATEGORICAL = 26
NUM_FIELDS = 1 + NUM_NUMERICAL + NUM_CATEGORICAL
MAX_LINE_BYTES = 1 << 20  # a real line has about 240; DuckDB's CSV reader stops at 2,000,000
# A categorical value is any UTF-8 text without control characters.
LINE_PATTERN = r"[01]\t(?:-?[0-9]{1,18}\t|\t){13}(?:[^\x00-\x1f\x7f]*\t){25}[^\x00-\x1f\x7f]*"
# Where no label is known, in rows to predict, the field is there and empty.
UNLABELLED_PATTERN = LINE_PATTERN.removeprefix("[01]")
# Replaces a line that the engine's reader could not even read; it never matches the rule.
MALFORMED_PLACEHOLDER = b"!"

_GOOD_LINE = {
    True: re.compile(LINE_PATTERN.encode()),
    False: re.compile(UNLABELLED_PATTERN.encode()),
}
_LABEL = re.compile(rb"[01]")
_INTEGER = re.compile(rb"(?:-?[0-9]{1,18})?")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_UNREADABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # control characters but for the tab
_BLOCK_BYTES = 8 << 20


def explain(line: bytes, with_label: bool = True) -> str | None:
    """Returns the problem of a line (without its line end) in one phrase; None if it is good."""
    if len(line) > MAX_LINE_BYTES:
        return f"it is {len(line):,} bytes long; a line has {MAX_LINE_BYTES:,} at most"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 text (byte {error.start + 1} is 0x{line[error.start]:02x})"
    if _GOOD_LINE[with_label].fullmatch(line):
        return None
    fields = line.split(b"\t")
    if len(fields) != NUM_FIELDS:
        problem = "it is empty" if not line else f"it has {len(fields)} fields"
        return f"{problem}; a line has {NUM_FIELDS}, with a tab between them"
    if not with_label and fields[0]:
        return f"its label is {_shown(fields[0])}; the log's first line has none"
    if with_label and not _LABEL.fullmatch(fields[0]):
        return f"its label is {_shown(fields[0])}; a label is 0 or 1"
    for i, value in enumerate(fields[1:]):
        if i < NUM_NUMERICAL and not _INTEGER.fullmatch(value):
            return f"num_{i} is {_shown(value)}; a numerical is an integer or empty"
        if i >= NUM_NUMERICAL and _CONTROL.search(value):
            name = f"cat_{i - NUM_NUMERICAL}"
            return f"{name} is {_shown(value)}; a categorical has no control characters"
    raise AssertionError("the pattern and its explanation disagree")


def _shown(value: bytes) -> str:
    text = value.decode()
    return repr(text if len(text) <= 40 else text[:40] + "...")


def has_labels(paths: Sequence[Path]) -> bool:
    """Returns whether the log's first line has a label; True for a log without lines."""
    for path in paths:
        with gzip_errors(path), open_unpacked(path) as file:
            line = file.readline(MAX_LINE_BYTES).removeprefix(BYTE_ORDER_MARK)
        if line:
            return not line.startswith(b"\t")
    return True


def read_line(path: Path, number: int) -> bytes:
    """Line `number` (the first is 1) of a plain or gzip file, without its line end."""
    with open_unpacked(path) as file:
        for i, line in enumerate(file, 1):
            if i == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if i == number:
                return line.removesuffix(b"\n").removesuffix(b"\r")
    raise ValueError(f"{path} has no line {number}; was it changed while it was read?")


@dataclass(frozen=True)
class LineCounts:
    """Numbers of the lines of a file, or of a part of it, and of those that are rows."""

    lines: int
    rows: int
    last: int  # number of the last line that is not blank (the first is 1); 0 without one
    first_bad: int  # number of the first line that is not a row; 0 without one


def line_counts(parts: Iterable[LineCounts]) -> dict[str, int]:
    """Returns rows, bad_lines and first_bad_line of a file from those of its parts, in order."""
    lines = rows = last = first_bad = 0
    for part in parts:
        last = lines + part.last if part.last else last
        if part.first_bad and not first_bad:
            first_bad = lines + part.first_bad
        lines += part.lines
        rows += part.rows
    bad_lines = last - rows  # blank lines after the last other line do not count
    return {"rows": rows, "bad_lines": bad_lines, "first_bad_line": first_bad if bad_lines else 0}


def line_ranges(path: Path, num_bytes: int) -> list[tuple[int, int]]:
    """Cuts a plain file into ranges (start, stop) of whole lines, of about num_bytes each."""
    size, cuts = path.stat().st_size, [0]
    with open(path, "rb") as file:
        for offset in range(num_bytes, size, num_bytes):
            file.seek(offset - 1)
            while (line := file.readline(_BLOCK_BYTES)) and not line.endswith(b"\n"):
                pass
            cuts.append(file.tell())
    return [(start, stop) for start, stop in pairwise([*cuts, size]) if start < stop]


def write_plain_copy(source: Path, target: Path, start: int = 0, stop: int | None = None) -> None:
    """Writes a log as plain text, line N of the source as line N of the copy.

    Only bytes start to stop (whole lines, of a plain file) are read. Gzip data is unpacked (its
    checksums verified), line ends become line feeds, a byte order mark goes, and lines that are
    too long, not UTF-8 or hold control characters become `MALFORMED_PLACEHOLDER`. Uses a few times
    8 MiB. Raises ValueError for damaged gzip data.
    """
    with gzip_errors(source), open_unpacked(source) as file, open(target, "wb") as out:
        file.seek(start)
        left = math.inf if stop is None else stop - start
        rest = file.read(min(left, len(BYTE_ORDER_MARK)))
        left -= len(rest)
        if rest == BYTE_ORDER_MARK:  # within a file it makes a line malformed
            rest = MALFORMED_PLACEHOLDER + rest if start else b""
        while block := file.read(min(left, _BLOCK_BYTES)):
            left -= len(block)
            block = rest + block
            cut = block.rfind(b"\n") + 1
            rest = block[cut:]
            out.write(_readable(block[:cut]))
            if len(rest) > MAX_LINE_BYTES:  # keep just enough of it to know that it is too long
                rest = rest[: MAX_LINE_BYTES + 1]
        if rest:
            out.write(_readable(rest.removesuffix(b"\n") + b"\n"))


def _readable(block: bytes) -> bytes:
    """Whole lines, each as it is or, where a reader would stumble over it, its placeholder."""
    if _is_simple(block):
        return block
    lines = [line.removesuffix(b"\r") for line in block.split(b"\n")[:-1]]
    return b"".join(
        line + b"\n"
        if len(line) <= MAX_LINE_BYTES and not _UNREADABLE.search(line) and _is_text(line)
        else MALFORMED_PLACEHOLDER + b"\n"
        for line in lines
    )


def _is_simple(block: bytes) -> bool:
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    separators = len(ends) + np.count_nonzero(data == ord("\t"))
    if np.count_nonzero(data < 0x20) != separators or b"\x7f" in block:
        return False
    if np.diff(ends, prepend=-1).max(initial=0) > MAX_LINE_BYTES:
        return False
    return block.isascii() or _is_text(block)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
