"""Columns of a served model that takes raw rows, and rows as the tensors of a request."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deployment.serving.interface import BOOL, FLOAT64, INT64, TEXT, RawColumn
from deployment.triton.config_pbtxt import COLUMNS
from preproc.encoding.arrow_columns import (
    BOOLEANS,
    MISSING_VALUES,
    InvalidValue,
    integers,
    labels,
    numbers,
    plain,
)

_MISSING = pa.array(MISSING_VALUES)
_KINDS = {TEXT: "text", FLOAT64: "number", INT64: "integer", BOOL: "true or false"}


def raw_columns(config) -> tuple[RawColumn, ...]:
    """Returns the columns that a model reports; none for a model of encoded requests.

    Args:
        config: its configuration on the server, Triton's `ModelConfig`.
    """
    if COLUMNS not in config.parameters:
        return ()
    return tuple(RawColumn(**c) for c in json.loads(config.parameters[COLUMNS].string_value))


def require_columns(config, flags: str) -> tuple[RawColumn, ...]:
    """Returns the columns of a model; raises ValueError, which names the flags, without any."""
    columns = raw_columns(config)
    if not columns:
        tensors = ", ".join(tensor.name for tensor in config.input)
        raise ValueError(
            f"{flags}: expected a model of raw rows, got {config.name}, which takes the encoded "
            f"tensors {tensors}: deploy it with --inputs raw"
        )
    return columns


def column_lines(columns: Sequence[RawColumn], with_examples: bool) -> list[str]:
    """Returns a line per column: name, type, presence, example."""
    width = max((len(column.name) for column in columns), default=0)
    lines = []
    for column in columns:
        kind = _KINDS[column.dtype]
        kind = f"list of {kind}s" if column.is_list else kind
        presence = "optional" if column.is_optional else "required"
        example = json.dumps(column.example, ensure_ascii=False) if with_examples else ""
        line = f"  column  {column.name:<{width}}  {kind:<15} {presence}  {example}"
        lines.append(line.rstrip())
    return lines


def columns_of_json(text: str, columns: Sequence[RawColumn]) -> dict[str, pa.Array]:
    """Returns the columns of a row, or of a list of rows; numbers are texts as they are written.

    Raises:
        ValueError: the text has another form, or a row has an unknown column.
    """
    try:
        rows = json.loads(text, parse_int=str, parse_float=str)
    except ValueError as error:
        raise ValueError(f"--json: expected a row as JSON, got {text!r:.100} ({error})") from None
    rows = rows if isinstance(rows, list) else [rows]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"--json: expected an object, or a list of objects, got {text!r:.100}")
    known = {column.name: column for column in columns}
    names = list(dict.fromkeys(name for row in rows for name in row))
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"--json: expected the columns {', '.join(known)}, got {', '.join(unknown)}"
        )
    return {
        name: _json_column(name, [row.get(name) for row in rows], known[name]) for name in names
    }


def _json_column(name: str, values: list, column: RawColumn) -> pa.Array:
    has_lists = any(isinstance(value, list) for value in values)
    if has_lists and column.is_list:
        lists = [value if isinstance(value, list | None) else [value] for value in values]
        texts = [None if each is None else list(map(_text, each)) for each in lists]
        return pa.array(texts, pa.list_(pa.string()))
    if has_lists or any(isinstance(value, dict) for value in values):
        raise ValueError(
            f"--json: column '{name}': expected one value per row, got {values!r:.100}"
        )
    return pa.array(list(map(_text, values)), pa.string())


def _text(value: str | bool | None) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value


def request(rows: Mapping[str, pa.Array], columns: Sequence[RawColumn]) -> dict[str, NDArray]:
    """Returns the tensors of rows: those of the columns that the rows have.

    Raises:
        ValueError: a value does not fit the column's tensor.
    """
    tensors = {}
    for column in columns:
        if column.name not in rows:
            continue
        try:
            tensor = _tensor(plain(rows[column.name]), column)
        except InvalidValue as bad:
            row = "" if bad.index < 0 else f", row {bad.index} (counted from 0)"
            raise ValueError(
                f"column '{column.name}'{row}: expected {bad.rule}, got {bad.found}"
            ) from None
        if tensor is not None:
            tensors[column.name] = tensor
    return tensors


def _tensor(values: pa.Array, column: RawColumn) -> NDArray | None:
    """Returns a tensor [rows, values]; None for a column that is missing in all rows."""
    if column.is_list and isinstance(values, pa.ListArray | pa.LargeListArray):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        flat, places = (
            _flat(plain(values.flatten()), column.dtype),
            np.arange(max(lengths, default=0)),
        )
        padding = b"" if column.dtype == TEXT else np.nan
        padded = np.full((len(values), max(1, len(places))), padding, flat.dtype)
        padded[:, : len(places)][places < lengths[:, np.newaxis]] = flat
        return padded
    if column.dtype in (INT64, BOOL) and values.null_count == len(values):
        return None
    return _flat(values, column.dtype)[:, np.newaxis]


def _flat(values: pa.Array, dtype: str) -> NDArray:
    if dtype == FLOAT64:
        return numbers(values, _MISSING)
    if dtype == BOOL:
        return labels(values, _MISSING, BOOLEANS, "0 or 1")
    if dtype == INT64:
        result, is_missing = integers(values, _MISSING)
        if is_missing.any():
            rule = "an integer: no value was missing in training; leave the column out of all rows"
            raise InvalidValue(int(np.argmax(is_missing)), "no value", rule)
        return result
    texts = pc.fill_null(values.cast(pa.string()), "")
    return np.array([text.encode() for text in texts.to_pylist()] or [], object)
