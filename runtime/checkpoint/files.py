"""Files of one checkpoint: index, .npy pieces, and the checksums of both."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

import numpy as np
import xxhash
from numpy.typing import NDArray

from runtime.checkpoint.disk import ALIGNMENT, padded
from runtime.checkpoint.weight import BLOCK_BYTES, Box, matrix_of

FORMAT = 2
INDEX = "checkpoint.json"

# File systems allow 255 bytes; rows and columns take up to 90.
_LONGEST_STEM = 130

# The index begins with the checksum of all that follows this line.
_FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{16})",\n')


class DamagedCheckpoint(ValueError):
    """A file of a checkpoint is missing or differs from what was written; the text names it."""


class Piece(NamedTuple):
    """One .npy file with a box of a weight.

    Attributes:
        file: path below the checkpoint.
        box: its position in the weight.
        start: byte at which the values start.
        block_rows: rows that share a checksum; the last block may be shorter.
        checksums: XXH3 (64 bits, hexadecimal) of the bytes before `start`, then of each block.
    """

    file: str
    box: Box
    start: int
    block_rows: int
    checksums: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "box": list(self.box), "checksums": " ".join(self.checksums)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Piece":
        box, checksums = Box(*entry["box"]), tuple(entry["checksums"].split())
        return cls(entry["file"], box, entry["start"], entry["block_rows"], checksums)


def checksum(data: Any) -> str:
    """Returns XXH3, 64 bits, hexadecimal, of bytes or of a contiguous array."""
    return xxhash.xxh3_64_hexdigest(data)


def rows_of_block(columns: int, dtype: np.dtype[Any]) -> int:
    """Returns the rows that are read, checked and written together.

    About BLOCK_BYTES, in whole pages unless rows are too large for that.
    """
    row_bytes = max(1, columns * dtype.itemsize)
    rows = max(1, BLOCK_BYTES // row_bytes)
    pages = ALIGNMENT // math.gcd(ALIGNMENT, row_bytes)
    return rows // pages * pages or rows


def file_of(name: str, shape: tuple[int, ...], box: Box) -> str:
    """Returns the file of a box.

    The part of the name before the first slash is the folder. The rest is escaped, because tables
    have the names of features, which are free text.
    """
    kind, _, rest = name.partition("/")
    stem, whole = quote(rest, safe=""), matrix_of(shape)
    if len(stem) > _LONGEST_STEM:
        stem = f"{stem[:_LONGEST_STEM]}~{checksum(rest.encode())}"
    if (box.row, box.row_end) != (whole.row, whole.row_end):
        stem += f",rows={box.row}-{box.row_end}"
    if (box.column, box.column_end) != (whole.column, whole.column_end):
        stem += f",columns={box.column}-{box.column_end}"
    return f"{kind}/{stem}.npy"


def npy_header(shape: tuple[int, ...], box: Box, dtype: np.dtype[Any]) -> bytes:
    """Returns the header of a box's file, a multiple of ALIGNMENT bytes.

    A box that covers the weight has the weight's shape, others are matrices.
    """
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),  # type: ignore[no-untyped-call]
        "fortran_order": False,
        "shape": tuple(shape) if box == matrix_of(shape) else (box.rows, box.columns),
    }
    stream = BytesIO()
    np.lib.format.write_array_header_2_0(stream, header)  # type: ignore[no-untyped-call]
    text = stream.getvalue()[12:].rstrip()  # after magic, version and length
    size_bytes = padded(12 + len(text) + 1)
    return (
        stream.getvalue()[:8]
        + (size_bytes - 12).to_bytes(4, "little")
        + text.ljust(size_bytes - 13)
        + b"\n"
    )


def read_npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Returns (shape, dtype, byte at which the values start) of a .npy file."""
    read: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
    if version not in read:
        raise ValueError(f"version {version} of .npy")
    shape, fortran_order, dtype = read[version](stream)
    if fortran_order:
        raise ValueError("in Fortran order")
    return shape, dtype, stream.tell()


class PieceReader:
    """Reads and checks the blocks of a piece.

    Raises:
        DamagedCheckpoint: the file is missing, has another size, or a checksum differs.
    """

    def __init__(self, path: Path, piece: Piece, dtype: np.dtype[Any]):
        self._file, self._piece, self._dtype = path / piece.file, piece, dtype
        self._row_bytes = piece.box.columns * dtype.itemsize
        expected = piece.start + piece.box.rows * self._row_bytes
        try:
            self._stream = open(self._file, "rb")  # noqa: SIM115 closed by close()
        except OSError as error:
            raise self._damaged(str(error.strerror)) from None
        size_bytes = os.fstat(self._stream.fileno()).st_size
        if size_bytes != expected:
            self.close()
            raise self._damaged(f"it has {size_bytes} bytes instead of {expected}")

    def __enter__(self) -> "PieceReader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def check_header(self) -> None:
        """Checks the bytes before the values."""
        self._check(self._read(0, np.dtype("u1"), self._piece.start), 0)

    def block(self, number: int) -> tuple[Box, NDArray[Any]]:
        """Returns (position in the weight, values [rows, columns]) of a block, checked."""
        box, rows = self._piece.box, self._piece.block_rows
        row = box.row + number * rows
        position = box._replace(row=row, row_end=min(row + rows, box.row_end))
        start = self._piece.start + number * rows * self._row_bytes
        values = self._read(start, self._dtype, position.size)
        self._check(values, number + 1)
        return position, values.reshape(position.rows, position.columns)

    def blocks(self, wanted: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yields the blocks that contain rows of a box, as returned by `block`."""
        box, rows = self._piece.box, self._piece.block_rows
        first, last = max(wanted.row, box.row), min(wanted.row_end, box.row_end)
        for number in range((first - box.row) // rows, -(-(last - box.row) // rows)):
            yield self.block(number)

    def _read(self, start: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        try:
            self._stream.seek(start)
            # Not memory-mapped: mapped pages count as this process's memory.
            values = np.fromfile(self._stream, dtype, count)
        except OSError as error:
            raise self._damaged(f"it cannot be read: {error.strerror}") from None
        if values.size != count:
            raise self._damaged("it ends too early, or cannot be read")
        return values

    def _check(self, data: NDArray[Any], number: int) -> None:
        expected = self._piece.checksums[number]
        if checksum(data) != expected:
            where = f"in block {number - 1}" if number else "in the header"
            raise self._damaged(f"the checksum differs {where}")

    def _damaged(self, why: str) -> DamagedCheckpoint:
        return DamagedCheckpoint(f"checkpoint file {self._file} is missing or damaged: {why}")


class WeightEntry(NamedTuple):
    """Entry of a weight in the index."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: tuple[Piece, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "pieces": [piece.as_json() for piece in self.pieces],
        }


class Index(NamedTuple):
    """Content of `checkpoint.json`.

    Attributes:
        description: of the model: recipe, flags, versions.
        state: of the training; empty for a model alone.
        weights: entries by name.
    """

    description: dict[str, Any]
    state: dict[str, Any]
    weights: dict[str, WeightEntry]

    @property
    def size_bytes(self) -> int:
        entries = self.weights.values()
        return sum(matrix_of(e.shape).size * e.dtype.itemsize for e in entries)


def write_index(folder: Path, index: Index) -> None:
    """Writes `checkpoint.json` and waits until it is on the disk."""
    content = {
        "format": FORMAT,
        "description": index.description,
        "state": index.state,
        "weights": {name: entry.as_json() for name, entry in index.weights.items()},
    }
    rest = json.dumps(content, indent=1).removeprefix("{\n").encode() + b"\n"
    with open(folder / INDEX, "wb") as stream:
        stream.write(b'{"checksum": "%s",\n' % checksum(rest).encode() + rest)
        stream.flush()
        os.fsync(stream.fileno())


def read_index(path: Path) -> Index:
    """Reads `checkpoint.json`.

    Raises:
        DamagedCheckpoint: `checkpoint.json` was changed or cut, is not there or cannot be read.
        ValueError: it is of another format.
    """
    file = path / INDEX
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(
            f"{path} is not a checkpoint, or it is damaged: {INDEX}: {error.strerror}"
        ) from None
    first = _FIRST_LINE.match(data)
    if first is None:
        number = _format_of(data)
        if number not in (None, FORMAT):
            raise ValueError(f"{file} has format {number}, this version reads {FORMAT}")
        raise DamagedCheckpoint(f"{file} is damaged: it does not begin with its checksum")
    if checksum(data[first.end() :]) != first[1].decode():
        raise DamagedCheckpoint(f"{file} is damaged: the checksum differs")
    content = json.loads(data)
    if content["format"] != FORMAT:
        raise ValueError(f"{file} has format {content['format']}, this version reads {FORMAT}")
    weights = {
        name: WeightEntry(
            tuple(entry["shape"]),
            np.dtype(entry["dtype"]),
            tuple(Piece.from_json(piece) for piece in entry["pieces"]),
        )
        for name, entry in content["weights"].items()
    }
    _check_paths(file, weights)
    return Index(content["description"], content["state"], weights)


def _check_paths(file: Path, weights: Mapping[str, WeightEntry]) -> None:
    """Rejects names that lead out of the checkpoint, or out of the folder of an export.

    Raises:
        DamagedCheckpoint: the first such name.
    """
    for name, entry in weights.items():
        kind = name.partition("/")[0]
        if not kind or kind.startswith("."):
            raise DamagedCheckpoint(
                f"{file} is damaged: expected a weight named kind/name, got the weight {name!r}"
            )
        for piece in entry.pieces:
            path = PurePosixPath(piece.file)
            if path.is_absolute() or ".." in path.parts:
                raise DamagedCheckpoint(
                    f"{file} is damaged: expected a path below the checkpoint, got the file "
                    f"{piece.file!r}"
                )


def _format_of(data: bytes) -> object:
    """Returns the format of an index without a checksum; None if it is not an index."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    return content.get("format") if isinstance(content, dict) else None
