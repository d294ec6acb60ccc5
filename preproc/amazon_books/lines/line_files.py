"""Files with one JSON object (or Python literal) per line: finds, unpacks and parses them.

`stage_lines` parses line by line and reports the bad ones. The fast reader (`json_reader.py`)
leaves a file to it as soon as one line may be bad.
"""

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from preproc.raw_files import BYTE_ORDER_MARK, damaged_gzip, is_gzip

MAX_LINE_BYTES = 4 << 20
_PIECE_BYTES = 256 << 20
_BLOCK_BYTES = 4 << 20
_BATCH_ROWS = 1 << 16
_LOCATION = "{file}, line {number}: {reason}. Fix the file, or leave such lines out with "
_LOCATION += "--on_bad_line skip"


@dataclass(frozen=True)
class LinePiece:
    """Whole lines of a file, as a plain file.

    path: where they are; the file itself if that is plain.
    file: the file that they are from.
    first_line: the number of the first of them; a file's first line is 1.
    """

    path: Path
    file: Path
    first_line: int


def find_files(folder: Path, start: str) -> tuple[Path, ...]:
    """The files <start>*.json and <start>*.json.gz of a folder, by name.

    Raises:
        ValueError: the folder does not exist, or it holds a file both plain and as gzip.
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
    return tuple(files)


@contextlib.contextmanager
def pieces(file: Path, scratch: Path) -> Iterator[Iterator[LinePiece]]:
    """A plain file as one piece; a gzip file unpacked piece by piece, its checksums verified, so
    that no more than one piece of 256 MiB is on the disk.

    Raises:
        ValueError: the gzip data is cut off or damaged.
    """
    if not is_gzip(file):
        yield iter([LinePiece(file, file, 1)])
        return
    unpacked = scratch / "unpacked.json"
    try:
        yield _unpacked(file, unpacked)
    finally:
        unpacked.unlink(missing_ok=True)


def _unpacked(file: Path, target: Path) -> Iterator[LinePiece]:
    try:
        with gzip.open(file) as source:
            first_line, is_more = 1, True
            while is_more:
                num_lines = 0
                with open(target, "wb") as out:
                    while out.tell() < _PIECE_BYTES and (block := source.read(_BLOCK_BYTES)):
                        out.write(block)
                        num_lines += block.count(b"\n")
                    is_more = out.tell() >= _PIECE_BYTES
                    # On to the end of the line.
                    while is_more and not block.endswith(b"\n"):
                        block = source.readline(_BLOCK_BYTES)
                        out.write(block)
                        num_lines += block.count(b"\n")
                        is_more = bool(block)
                yield LinePiece(target, file, first_line)
                first_line += num_lines
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged_gzip(file, error) from error


def stage_lines(
    piece: LinePiece,
    parse: Callable[[str], tuple],
    schema: pa.Schema,
    target: Path,
    on_bad_line: str,
) -> int:
    """Makes a Parquet file of a piece's good lines, in their order; empty lines mean nothing.

    Args:
        parse: a line -> a row, or ValueError with what is wrong.
        on_bad_line: "error" or "skip".

    Returns:
        the number of bad lines.

    Raises:
        ValueError: a bad line, with `on_bad_line` "error".
    """
    bad, rows = 0, []
    with pq.ParquetWriter(target, schema) as writer, open(piece.path, "rb") as lines:

        def write():
            columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            rows.clear()

        for number, line in enumerate(_whole_lines(lines), piece.first_line):
            if number == 1 and line is not None:
                line = line.removeprefix(BYTE_ORDER_MARK)
            try:
                text = _text(line)
                if text:
                    rows.append(parse(text))
            except ValueError as error:
                if on_bad_line == "error":
                    raise ValueError(
                        _LOCATION.format(file=piece.file, number=number, reason=error)
                    ) from error
                bad += 1
            if len(rows) == _BATCH_ROWS:
                write()
        write()
    return bad


def _whole_lines(file) -> Iterator[bytes | None]:
    """Lines with their ends; None for one that is too long, of which no more is kept."""
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)
        yield None


def _text(line: bytes | None) -> str:
    if line is None:
        raise ValueError(f"it is {MAX_LINE_BYTES >> 20} MiB long, or longer")
    try:
        return line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not UTF-8 text (byte {error.start + 1} is 0x{line[error.start]:02x})"
        ) from error
