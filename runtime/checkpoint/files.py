"""Files of one checkpoint: index, .npy pieces, attached files, and the checksums of all."""

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import xxhash
from distributed_embeddings.box import Box
from numpy.typing import NDArray

from runtime.checkpoint.weight import BLOCK_BYTES, matrix_of
from runtime.files.disk import write_errors_name

FORMAT = 2
INDEX = "checkpoint.json"
FLOAT32 = np.dtype("f4")

# File systems allow 255 bytes; rows and columns take up to 90.
_LONGEST_STEM = 130

# The index begins with the checksum of all that follows this line.
_FIRST_LINE = re.compile(rb'\{"checksum": "([0-9a-f]{16})",\n')


class DamagedCheckpoint(ValueError):
    """A file of a checkpoint is missing or differs from what was written; the text names it."""


class Piece(NamedTuple):
    """One .npy file with a box of a weight."""

    file: str  # path below the checkpoint
    box: Box  # its position in the weight
    start: int  # byte at which the values start
    block_rows: int  # rows that share a checksum; the last block may be shorter
    checksums: tuple[str, ...]  # of the bytes before `start`, then of each block

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "box": list(self.box), "checksums": " ".join(self.checksums)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Piece":
        box, checksums = Box(*entry["box"]), tuple(entry["checksums"].split())
        return cls(entry["file"], box, entry["start"], entry["block_rows"], checksums)


def checksum(data: Any) -> str:
    """Returns XXH3, 64 bits, hexadecimal, of bytes or of a contiguous array."""
    return xxhash.xxh3_64_hexdigest(data)


def checksum_of(file: Path) -> str:
    """Returns the checksum of a file."""
    state = xxhash.xxh3_64()
    with open(file, "rb") as stream:
        while data := stream.read(BLOCK_BYTES):
            state.update(data)
    return str(state.hexdigest())


def rows_of_block(columns: int, dtype: np.dtype[Any]) -> int:
    """Returns the rows, of about BLOCK_BYTES, that are read, checked and written together."""
    return max(1, BLOCK_BYTES // max(1, columns * dtype.itemsize))


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
    """Returns the header of a box's .npy file.

    A box that covers the weight has the weight's shape, others are matrices.
    """
    stored_shape = tuple(shape) if box == matrix_of(shape) else (box.rows, box.columns)
    header = {"descr": dtype.str, "fortran_order": False, "shape": stored_shape}
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def write_npy(file: Path, entry: "WeightEntry", values: Iterable[NDArray[Any]]) -> None:
    """Writes a whole weight, some rows at a time, to a new file."""
    file.parent.mkdir(exist_ok=True)
    with write_errors_name(file), open(file, "xb") as stream:
        stream.write(npy_header(entry.shape, matrix_of(entry.shape), entry.dtype))
        for rows in values:
            stream.write(rows.data)


def read_blocks(
    path: Path, piece: Piece, dtype: np.dtype[Any], wanted: Box
) -> Iterator[tuple[Box, NDArray[Any]]]:
    """Yields (position in the weight, values [rows, columns]) of a piece's blocks with wanted rows.

    Raises:
        DamagedCheckpoint: the file is missing, has another size, or a checksum differs.
    """
    file, box, rows = path / piece.file, piece.box, piece.block_rows
    row_bytes = box.columns * dtype.itemsize

    def damaged(reason: str | None) -> DamagedCheckpoint:
        return DamagedCheckpoint(f"checkpoint file {file} is missing or damaged: {reason}")

    try:
        with open(file, "rb") as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            expected = piece.start + box.rows * row_bytes
            if size_bytes != expected:
                raise damaged(f"it has {size_bytes} bytes instead of {expected}")
            if checksum(stream.read(piece.start)) != piece.checksums[0]:
                raise damaged("the checksum differs in the header")
            first, last = max(wanted.row, box.row), min(wanted.row_end, box.row_end)
            for number in range((first - box.row) // rows, -(-(last - box.row) // rows)):
                row = box.row + number * rows
                block = box._replace(row=row, row_end=min(row + rows, box.row_end))
                stream.seek(piece.start + number * rows * row_bytes)
                # Not memory-mapped: mapped pages count as this process's memory.
                values = np.fromfile(stream, dtype, block.size)
                if checksum(values) != piece.checksums[number + 1]:
                    raise damaged(f"the checksum differs in block {number}")
                yield block, values.reshape(block.rows, block.columns)
    except OSError as error:
        raise damaged(error.strerror) from None


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


class ArrayEntry(NamedTuple):
    """`WeightEntry` of a weight without pieces, whose values are those of an array."""

    shape: tuple[int, ...]
    load: Callable[[], NDArray[Any]]  # returns the array, of any float dtype
    name: str  # in messages
    dtype: np.dtype[Any] = FLOAT32

    def blocks(self, wanted: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yields (position, values) of all of a box; ValueError if a value is not finite."""
        whole = matrix_of(self.shape)
        for box in wanted.blocks(rows_of_block(whole.columns, self.dtype)):
            matrix = self.load().reshape(whole.rows, whole.columns)
            part = matrix[box.row : box.row_end, box.column : box.column_end]
            values = np.array(part, self.dtype, order="C")
            if not np.isfinite(values).all():
                rows = f"rows {box.row} to {box.row_end - 1}"
                raise ValueError(f"{self.name}: not finite in {rows}")
            yield box, values


class Index(NamedTuple):
    """Content of `checkpoint.json`."""

    description: dict[str, Any]  # of the model: recipe, flags, versions
    state: dict[str, Any]  # of the training; empty for a model alone
    weights: dict[str, WeightEntry]
    files: dict[str, str]  # attached file, as a path below the checkpoint -> checksum

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
        "files": index.files,
    }
    rest = json.dumps(content, indent=1).removeprefix("{\n").encode() + b"\n"
    with open(folder / INDEX, "wb") as stream:
        stream.write(b'{"checksum": "%s",\n' % checksum(rest).encode() + rest)
        stream.flush()
        os.fsync(stream.fileno())


def read_index(path: Path) -> Index:
    """Reads `checkpoint.json`.

    Raises:
        DamagedCheckpoint: it is missing, was changed or cut, or cannot be read.
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
        raise DamagedCheckpoint(f"{file} is damaged: it does not begin with its checksum")
    if checksum(data[first.end() :]) != first[1].decode():
        raise DamagedCheckpoint(f"{file} is damaged: the checksum differs")
    content = json.loads(data)
    if content["format"] != FORMAT:
        raise ValueError(f"{file} has format {content['format']}, this version reads {FORMAT}")
    weights = {}
    for name, entry in content["weights"].items():
        pieces = tuple(Piece.from_json(piece) for piece in entry["pieces"])
        if not name or name.startswith(("/", ".")):
            raise DamagedCheckpoint(
                f"{file} is damaged: expected a weight named kind/name, got the weight {name!r}"
            )
        _check_paths(file, [piece.file for piece in pieces])
        weights[name] = WeightEntry(tuple(entry["shape"]), np.dtype(entry["dtype"]), pieces)
    attached = content.get("files", {})  # earlier versions attached none
    _check_paths(file, attached)
    return Index(content["description"], content["state"], weights, attached)


def _check_paths(file: Path, names: Iterable[str]) -> None:
    """Rejects files that lead out of the checkpoint, or out of the folder of an export."""
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise DamagedCheckpoint(
                f"{file} is damaged: expected a path below the checkpoint, got the file {name!r}"
            )


def check_attached(path: Path, index: Index, name: str) -> None:
    """Raises DamagedCheckpoint if an attached file of a checkpoint is missing or was changed."""
    file, reason = path / name, None
    try:
        if checksum_of(file) != index.files[name]:
            reason = "the checksum differs"
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise DamagedCheckpoint(f"checkpoint file {file} is missing or damaged: {reason}")


def copy_attached(path: Path, index: Index, folder: Path) -> list[str]:
    """Copies the attached files of a checkpoint to another folder; returns their names there."""
    for name in index.files:
        check_attached(path, index, name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with write_errors_name(folder / name):
            shutil.copyfile(path / name, folder / name)
    return list(index.files)
