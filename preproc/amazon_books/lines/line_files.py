"""Files with one JSON object (or Python literal) per line: finds, unpacks and decodes them."""

import sys
from collections.abc import Iterator
from pathlib import Path

from dataloading.table_input.lines import BYTE_ORDER_MARK
from preproc.raw_files import gzip_errors, is_gzip, open_unpacked

_PIECE_BYTES = 256 << 20
_BLOCK_BYTES = 4 << 20


def find_files(folder: Path, start: str, remedy: str = "") -> tuple[Path, ...]:
    """Returns the files <start>*.json and <start>*.json.gz of a folder, and prints their names.

    Raises:
        ValueError: the folder does not exist, has no such file, or one both plain and as gzip;
            remedy: what helps against the second.
    """
    if not folder.is_dir():
        raise ValueError(f"--amazon_dataset_path {folder} is not a folder")
    candidates = [*folder.glob(f"{start}*.json"), *folder.glob(f"{start}*.json.gz")]
    files = sorted(path for path in candidates if path.is_file())
    for path in files:
        if (packed := path.with_name(path.name + ".gz")) in files:
            raise ValueError(
                f"{folder} holds {path.name} and {packed.name}, whose lines would count twice; "
                "remove one of them, or name the files to read with --reviews and --meta"
            )
    if not files:
        raise ValueError(
            f"--amazon_dataset_path {folder} holds no {start}*.json or {start}*.json.gz; {remedy}"
        )
    names = ", ".join(path.name for path in files)
    print(f"{start}*.json of {folder}: {names}", file=sys.stderr, flush=True)
    return tuple(files)


def pieces(file: Path, scratch: Path) -> Iterator[tuple[Path, int]]:
    """Yields whole lines as plain files, each with the number of its first line, from 1.

    A plain file is one piece. A gzip file is unpacked piece by piece, its checksums verified, so
    that no more than one piece of 256 MiB is on the disk; so is a file with a byte order mark,
    which the pieces lack.

    Raises:
        ValueError: the gzip data is cut off or damaged.
    """
    with gzip_errors(file), open_unpacked(file) as source:
        is_marked = source.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK
        if not is_marked:
            source.seek(0)
            if not is_gzip(file):
                yield file, 1
                return
        piece = scratch / "unpacked.json"
        first_line, is_more = 1, True
        while is_more:
            num_lines = 0
            with open(piece, "wb") as out:
                while is_more and out.tell() < _PIECE_BYTES:
                    lines = source.read(_BLOCK_BYTES) + source.readline()
                    out.write(lines)
                    num_lines += lines.count(b"\n")
                    is_more = bool(lines)
            yield piece, first_line
            first_line += num_lines
    piece.unlink()


def line_text(line: bytes, number: int) -> str:
    """Returns a line, the number-th, without blanks around it; raises ValueError if not UTF-8."""
    if number == 1:
        line = line.removeprefix(BYTE_ORDER_MARK)
    try:
        return line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not UTF-8 text (byte {error.start + 1} is 0x{line[error.start]:02x})"
        ) from error


def bad_line(file: Path, number: int, reason: object) -> ValueError:
    """Returns the error of a line."""
    return ValueError(
        f"{file}, line {number}: {reason}. Fix the file, or leave such lines out with "
        "--on_bad_line skip"
    )


def text_field(fields: dict, name: str) -> str:
    """Returns a field; raises ValueError unless it is text, not empty, with a UTF-8 form."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {shown(fields, name)}; it must be text")
    check_text(name, value)
    return value


def check_text(name: str, value: str) -> None:
    """Raises ValueError for text that has no UTF-8 form: half of a pair of surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} has half a character ({error.reason})") from error


def shown(fields: dict, name: str) -> str:
    """Returns a field for a message."""
    return f"{fields[name]!r:.60}" if name in fields else "missing"
