"""Forms of raw rows: pandas frames, Arrow tables, mappings of columns, one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


def is_single_row(rows: Any, columns: Sequence[str]) -> bool:
    """Returns whether `rows` is a mapping in which some column has the value of one row."""
    return isinstance(rows, Mapping) and any(is_scalar(rows[c]) for c in columns if c in rows)


def is_scalar(value: Any) -> bool:
    """Returns whether a value is a text, a number or another single one, not a list."""
    is_text = isinstance(value, str | bytes)
    return is_text or getattr(value, "ndim", None) == 0 or not hasattr(value, "__len__")


def num_rows(rows: Any, columns: Sequence[str]) -> int:
    """Returns the number of rows.

    Args:
        rows: a pandas frame, an Arrow table or record batch, or a mapping of names to columns.
        columns: those that are read.

    Raises:
        ValueError: columns of a mapping have different lengths, or `rows` has another form.
    """
    if hasattr(rows, "iloc"):  # of pandas, whose frames have columns as attributes, too
        return len(rows)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows.num_rows
    if not isinstance(rows, Mapping):
        raise ValueError(
            "rows: expected a pandas frame, an Arrow table or record batch, a dictionary of lists "
            f"or one row as a dictionary of values, got a {type(rows).__name__}"
        )
    lengths = {name: len(rows[name]) for name in columns if name in rows}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{count:,} of '{name}'" for name, count in lengths.items())
        raise ValueError(f"expected equally many values of each column, got {listed}")
    return next(iter(lengths.values()), 0)


def part_of(rows: Any, columns: Sequence[str], start: int, stop: int) -> Any:
    """Returns some of the rows, in the same form; arguments as those of `num_rows`."""
    if isinstance(rows, Mapping):
        # A mapping that lacks a column keeps its names for the error.
        names = [name for name in columns if name in rows]
        names = names if len(names) == len(columns) else list(rows)
        return {name: _slice(rows[name], start, stop) for name in names}
    return _slice(rows, start, stop)


def _slice(values: Any, start: int, stop: int) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[start:stop]
    return values.slice(start, stop - start) if hasattr(values, "slice") else values[start:stop]
