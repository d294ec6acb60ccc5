"""Table files that a server maps into memory, streamed from a checkpoint and quantized."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

import numpy as np

from deployment.model.trained_model import TrainedModel, table_name
from deployment.serving.interface import ServedTable
from runtime.checkpoint.reader import rows_of

NONE, FP16, INT8 = "none", "fp16", "int8"
QUANTIZATIONS = (NONE, FP16, INT8)

# Stored dtype by `--quantize_tables`.
STORED_AS = {NONE: "float32", FP16: "float16", INT8: "int8"}

# int8 values are -127 to 127: symmetric, so that a row and its negative have the same error.
_LARGEST_INT8 = 127

# A scale below the smallest normal float32 would be rounded by up to a half, and values divided by
# it would not fit into int8. Rows that small, all values below 1.5e-36, are stored as zeros.
_SMALLEST_SCALE = np.finfo(np.float32).tiny


def table_bytes(rows: int, dim: int, quantize: str) -> int:
    """Returns the bytes of a table's values and scales on a server."""
    scales = 4 * rows if quantize == INT8 else 0
    return rows * dim * np.dtype(STORED_AS[quantize]).itemsize + scales


def described(tables: Sequence[ServedTable], quantize: str) -> tuple[ServedTable, ...]:
    """Returns the result of `write_tables`: tables of one width are concatenated in one file."""
    written, rows = [], dict.fromkeys((table.dim for table in tables), 0)
    for name, num_rows, dim, *_ in tables:
        scales = f"dim_{dim}_scales.npy" if quantize == INT8 else None
        stored = (STORED_AS[quantize], f"dim_{dim}.npy", scales, rows[dim])
        written.append(ServedTable(name, num_rows, dim, *stored))
        rows[dim] += num_rows
    return tuple(written)


def write_tables(
    trained: TrainedModel, tables: Sequence[ServedTable], folder: Path, quantize: str = NONE
) -> tuple[ServedTable, ...]:
    """Writes tables as .npy files; needs memory for two blocks of the checkpoint.

    Every block is verified before it is used. "fp16" rounds each value to the nearest float16.
    "int8" stores round(value / scale) with scale = max |value of the row| / 127, float32, in a
    separate file; value * scale is off by at most half a scale. A row of zeros has scale 0.

    Raises:
        DamagedCheckpoint: a file of the checkpoint is missing, cut or changed.
        ValueError: a value is not finite, or too large for float16.
    """
    written = described(tables, quantize)
    for dim in sorted({table.dim for table in written}):
        together = [table for table in written if table.dim == dim]
        first, rows = together[0], sum(table.rows for table in together)
        with ExitStack() as files:
            values = files.enter_context(_new_npy(folder / first.file, (rows, dim), first.dtype))
            scales = None
            if first.scales is not None:
                scales = files.enter_context(_new_npy(folder / first.scales, (rows,), "float32"))
            for table in together:
                for _, block, block_scales in served_blocks(trained, table.name, quantize):
                    append(values, block)
                    if scales is not None:
                        append(scales, block_scales)
    return written


def _new_npy(path: Path, shape: tuple[int, ...], dtype: str) -> FileIO:
    """Opens a new .npy file after its header; unbuffered, because blocks are large."""
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    stream = open(path, "xb", buffering=0)  # noqa: SIM115 closed by the caller
    np.lib.format.write_array_header_1_0(stream, header)
    return stream


def served_blocks(
    trained: TrainedModel, table: str, quantize: str
) -> Iterator[tuple[int, np.ndarray, np.ndarray | None]]:
    """Yields (number of the first row, rows [any, columns], their scales) of a table, in order.

    Rows are float32, float16 or int8; only int8 has scales, float32 [any]. Raises as
    `write_tables`.
    """
    for first_row, rows in blocks_of(trained, table):
        if quantize == INT8:
            yield first_row, *to_int8(rows)
        elif quantize == FP16:
            yield first_row, to_float16(rows, table, range(first_row, first_row + len(rows))), None
        else:
            yield first_row, rows, None


def blocks_of(trained: TrainedModel, table: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first row, rows float32 [any, columns]) of a table, verified and finite."""
    first_row = 0
    for block in rows_of(trained.path, trained.index.weights[table_name(table)]):
        check_finite(block, table, range(first_row, first_row + len(block)))
        yield first_row, block
        first_row += len(block)


def check_finite(rows: np.ndarray, table: str, numbers: Sequence[int]) -> None:
    """Raises ValueError for a value of rows [n, columns], of these numbers, that is not finite."""
    if np.isfinite(rows).all():
        return
    row, column = np.argwhere(~np.isfinite(rows))[0]
    raise ValueError(
        f"table {table}, row {numbers[row]} has the value {rows[row, column]} in the checkpoint, "
        "of which no score can be made: deploy another checkpoint"
    )


def to_int8(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes rows float32 [n, columns] to (int8 [n, columns], scales float32 [n])."""
    largest = np.abs(rows).max(axis=1, initial=0)
    scales = largest / np.float32(_LARGEST_INT8)
    scales[scales < _SMALLEST_SCALE] = 0
    # Rows whose scale is 0 are divided by 1 and stored as zeros: all their values round to 0.
    divisors = np.where(scales == 0, np.float32(1), scales)
    return np.rint(rows / divisors[:, None]).astype(np.int8), scales


def to_float16(rows: np.ndarray, table: str, numbers: Sequence[int]) -> np.ndarray:
    """Converts finite rows float32 [n, columns]; raises ValueError for a value that becomes
    infinite."""
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float16)
    row, column = np.nonzero(np.isinf(narrow))
    if row.size:
        raise ValueError(
            f"--quantize_tables fp16: table {table}, row {numbers[row[0]]} has the value "
            f"{rows[row[0], column[0]]:g}, the largest float16 is 65504: use --quantize_tables "
            "int8, whose rows have scales, or none"
        )
    return narrow


def append(stream: FileIO, values: np.ndarray) -> None:
    """Appends an array to an unbuffered file, of which one call may write a part."""
    rest = np.ascontiguousarray(values).data.cast("B")
    while rest:
        rest = rest[stream.write(rest) :]
