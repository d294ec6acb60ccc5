"""Rows of Parquet files as arrays: prepared by NVIDIA's tools, or in the same columns.

The columns: label, the users' features, those of the target item, then as many of the positive and
of the negative history, lists of ids, the most recent one last, with or without zeros before them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROWS_AT_A_TIME = 16_384  # 25 MB of ids of two features in two histories of 100
_HISTORY_LENGTH = 100  # by default
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


@dataclass(frozen=True)
class HistoryColumns:
    """Names and contents of the columns.

    label: the column of labels.
    user, target: column -> number of ids, 0 included, in their order.
    positive, negative: the columns of the histories, in the order of `target`.
    history_length: maximum number of items of a history; of longer ones the last ones are kept.
    """

    label: str
    user: dict[str, int]
    target: dict[str, int]
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    history_length: int

    def columns(self) -> dict[str, bool]:
        """Returns whether each column holds lists, in the order of a file."""
        scalars = dict.fromkeys((self.label, *self.user, *self.target), False)
        return scalars | dict.fromkeys((*self.positive, *self.negative), True)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, `part.10` after `part.9`; raises ValueError without any."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; it must hold the rows of a split: part.0.parquet and so on"
        )
    files = [path for path in folder.iterdir() if path.suffix == ".parquet"]
    if not files:
        raise ValueError(f"{folder} holds no file *.parquet; expected part.0.parquet and so on")

    def by_numbers(path: Path) -> list:
        parts = re.split(r"(\d+)", path.name)
        return [int(part) if number % 2 else part for number, part in enumerate(parts)]

    return sorted(files, key=by_numbers)


def read_layout(
    file: Path, metadata: Path, num_user: int, num_item: int | None, history_length: int | None
) -> HistoryColumns:
    """Returns the layout of the rows of a file, whose features `metadata` gives cardinalities.

    Args:
        file: Parquet file.
        metadata: a JSON file, `{"cardinalities": [{"name": ..., "value": ...}, ...]}`: the users'
            features, then the items'; possibly with `max_history`.
        num_user: number of features of users.
        num_item: None: as many as there are cardinalities after those of the users.
        history_length: None: `max_history`, or 100 where that is not there.

    Raises:
        ValueError: they do not fit the numbers of features.
    """
    names = _open(file).schema_arrow.names
    titles, sizes, max_history = _read_metadata(metadata)
    flags = f"--number_of_user_features {num_user} and --number_of_item_features {num_item}"
    if num_item is None:
        num_item = len(sizes) - num_user
        flags = f"--number_of_user_features {num_user} and the {len(sizes)} cardinalities of "
        flags += str(metadata)
    features = f"{metadata} has the cardinalities of {len(sizes)} features ({', '.join(titles)}); "
    if num_item < 1:
        raise ValueError(
            f"{features}--number_of_user_features {num_user} leaves none for the items, which "
            "have one or more"
        )
    needed = 1 + num_user + 3 * num_item
    if len(names) != needed:
        raise ValueError(
            f"{file} has {len(names)} columns ({', '.join(names)}); {flags} need {needed}: the "
            "label, each user feature, and each item feature of the target, the positive and the "
            "negative history"
        )
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{file} has two columns '{name}'; expected each name once")
    if len(sizes) != num_user + num_item:
        raise ValueError(
            f"{features}{flags} need {num_user + num_item}: those of the users, then those of the "
            "items"
        )
    target, positive = 1 + num_user, 1 + num_user + num_item
    negative = positive + num_item
    return HistoryColumns(
        names[0],
        dict(zip(names[1:target], sizes, strict=False)),
        dict(zip(names[target:positive], sizes[num_user:], strict=True)),
        tuple(names[positive:negative]),
        tuple(names[negative:]),
        history_length or max_history,
    )


def _read_metadata(path: Path) -> tuple[list[str], list[int], int]:
    """Returns names, numbers of ids (0 included) and the length of histories.

    A cardinality N stands for the ids 1 to N, as NVIDIA's `sim_preprocessing.py` writes it.
    """
    try:
        content = json.loads(path.read_text())
        pairs = [(entry["name"], entry["value"]) for entry in content["cardinalities"]]
        max_history = content.get("max_history", _HISTORY_LENGTH)
        good = len(dict(pairs)) == len(pairs) and all(isinstance(name, str) for name, _ in pairs)
        good &= all(type(n) is int and n > 0 for n in (*dict(pairs).values(), max_history))
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise ValueError(
            f"{path} is not what it should be; expected "
            '{"cardinalities": [{"name": "uid", "value": 105925}, ...]}, each name once, with '
            'values from 1 on; optionally "max_history", a length from 1 on'
        )
    return [name for name, _ in pairs], [size + 1 for _, size in pairs], max_history


def read_rows(file: Path, layout: HistoryColumns) -> Iterator[tuple[list[np.ndarray], int]]:
    """Yields arrays int64 `[rows, values]` per column, and the number of histories that were cut.

    Histories are `[rows, history_length]`, right-aligned with zeros in front. The reader of the
    TFRecords checks the values.

    Raises:
        ValueError: other columns than those of the layout, a value that is missing or no integer,
            or a damaged file.
    """
    opened = _open(file)
    _check_columns(file, opened.schema_arrow, layout)
    first = 0
    for batch in _batches(opened, file):
        arrays, num_cut = [], 0
        for name, is_list in layout.columns().items():
            column = values = batch.column(name)
            if is_list:
                values = column.flatten()
            place = f"{file}: column '{name}': rows {first} to {first + len(batch) - 1}"
            if column.null_count or values.null_count:
                raise ValueError(f"{place}: nothing there in one; expected a value in each row")
            try:
                ids = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid as error:
                raise ValueError(f"{place}: {error}; expected whole numbers") from None
            if is_list:
                lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
                num_cut += int((lengths > layout.history_length).sum())
                arrays.append(_right_aligned(ids, lengths, layout.history_length))
            else:
                arrays.append(ids[:, None])
        yield arrays, num_cut
        first += len(batch)


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise ValueError(f"{file} is not a Parquet file ({error})") from None


def _batches(opened: pq.ParquetFile, file: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from opened.iter_batches(_ROWS_AT_A_TIME)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{file} is damaged or cut off ({error}); create it again") from None


def _check_columns(file: Path, schema: pa.Schema, layout: HistoryColumns) -> None:
    names = list(layout.columns())
    if schema.names != names:
        raise ValueError(
            f"{file} has the columns {', '.join(schema.names)}; the first file has "
            f"{', '.join(names)}: all files must have the same, in the same order"
        )
    for name, is_list in layout.columns().items():
        kind, allowed = schema.field(name).type, "integers"
        good = pa.types.is_integer(kind)
        if is_list:
            allowed = "lists of integers"
            good = any(is_one(kind) for is_one in _LISTS) and pa.types.is_integer(kind.value_type)
        elif name == layout.label:
            allowed = "numbers or booleans"
            good |= pa.types.is_boolean(kind) or pa.types.is_floating(kind)
        if not good:
            raise ValueError(
                f"{file}: column '{name}' is {kind}; expected {allowed}. Is the order of the "
                "columns label, users, target items, positive and negative histories?"
            )


def _right_aligned(values: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """`[len(lengths), width]`: the last values of each list, zeros before shorter ones."""
    if (lengths == width).all():
        return values.reshape(-1, width)
    rows = np.zeros((len(lengths), width), values.dtype)
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values))
    rows[np.arange(width) >= width - lengths[:, None]] = values[from_end <= width]
    return rows
