"""Rows of Parquet files as arrays, checked: prepared by us, or by others in the same columns.

The columns, in this order: label, the users' features, those of the target item, then as many of
the positive and of the negative history, which are lists of ids, the most recent one last, with
or without zeros before them.
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
OUR_KEY = "rows"  # key of metadata that our preparation writes
_ZERO_AFTER_ID = (
    "a 0 after an id; zeros are padding, which comes before a history. Number items from 1, "
    "and let the most recent one be the last"
)


@dataclass(frozen=True)
class HistoryColumns:
    """Names and contents of the columns.

    label: the column of labels.
    user, target: column -> number of ids, 0 included, in their order.
    positive, negative: the columns of the histories, in the order of `target`.
    history_length: maximum number of items of a history; of longer ones the last ones are kept.
    is_foreign: whether the metadata is not from our preparation; then a cardinality N in it stands
        for the ids 1 to N, as NVIDIA's `sim_preprocessing.py` writes it.
    """

    label: str
    user: dict[str, int]
    target: dict[str, int]
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    history_length: int
    is_foreign: bool

    def columns(self) -> list[tuple[str, int, bool]]:
        """(column, number of ids, whether it holds lists), as a file has them."""
        histories = [
            (name, size, True)
            for names in (self.positive, self.negative)
            for name, size in zip(names, self.target.values(), strict=True)
        ]
        scalars = [(name, size, False) for name, size in (self.user | self.target).items()]
        return [(self.label, 2, False), *scalars, *histories]


@dataclass
class Cut:
    """Histories that were longer than `HistoryColumns.history_length`, in all files so far."""

    num_histories: int = 0


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, `part.10` after `part.9`.

    Raises:
        ValueError: the folder does not exist, or has no such file.
    """
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
    """The layout of the rows of a file, whose features `metadata` gives cardinalities.

    Args:
        metadata: a JSON file, `{"cardinalities": [{"name": ..., "value": ...}, ...]}`: the users'
            features, then the items'; with `rows` and `max_history`, if the preparation was ours.
        num_item: None: as many as there are cardinalities after those of the users.
        history_length: None: `max_history`, or 100 where that is not there.

    Raises:
        ValueError: they do not fit the numbers of features.
        OSError: a file cannot be read.
    """
    names = _open(file).schema_arrow.names
    sizes, max_history, is_foreign = _read_metadata(metadata)
    flags = f"--number_of_user_features {num_user} and --number_of_item_features {num_item}"
    if num_item is None:
        num_item = len(sizes) - num_user
        flags = f"--number_of_user_features {num_user} and the {len(sizes)} cardinalities of "
        flags += str(metadata)
    if num_item < 1:
        raise ValueError(
            f"{metadata} has the cardinalities of {len(sizes)} features ({', '.join(sizes)}); "
            f"--number_of_user_features {num_user} leaves none for the items, which have one or "
            "more"
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
            raise ValueError(f"{file} has two columns '{name}'; allowed: each name once")
    if len(sizes) != num_user + num_item:
        raise ValueError(
            f"{metadata} has the cardinalities of {len(sizes)} features ({', '.join(sizes)}); "
            f"{flags} need {num_user + num_item}: those of the users, then those of the items"
        )
    scalars = dict(zip(names[1:], sizes.values(), strict=False))
    histories = names[1 + num_user + num_item :]
    return HistoryColumns(
        names[0],
        dict(list(scalars.items())[:num_user]),
        dict(list(scalars.items())[num_user:]),
        tuple(histories[:num_item]),
        tuple(histories[num_item:]),
        history_length or max_history,
        is_foreign,
    )


def _read_metadata(path: Path) -> tuple[dict[str, int], int, bool]:
    """Reads a `metadata.json`.

    Returns:
        name -> number of ids, 0 included; the length of histories; `HistoryColumns.is_foreign`.
    """
    rule = (
        '{"cardinalities": [{"name": "uid", "value": 105925}, ...]}, each name once, with values '
        'from 1 on; optionally "max_history", a length from 1 on'
    )
    try:
        content = json.loads(path.read_text())
        entries = content["cardinalities"]
        sizes = {entry["name"]: entry["value"] for entry in entries}
        max_history = content.get("max_history", _HISTORY_LENGTH)
        good = len(sizes) == len(entries) and all(isinstance(name, str) for name in sizes)
        good = good and all(type(n) is int and n > 0 for n in (*sizes.values(), max_history))
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        raise ValueError(f"{path} is not what it should be; allowed: {rule}")
    is_foreign = OUR_KEY not in content
    return {name: size + is_foreign for name, size in sizes.items()}, max_history, is_foreign


def read_rows(file: Path, layout: HistoryColumns, cut: Cut) -> Iterator[list[np.ndarray]]:
    """The rows of a file, some thousands at a time: an array `[rows, values]` per column.

    Ids are int32 (int64 where the cardinality needs it), labels int8. Histories are
    `[rows, history_length]`, right-aligned with zeros in front. One row group is in memory.

    Args:
        cut: counts histories of which only the last part is kept.

    Raises:
        ValueError: other columns than those of the layout, or a value that is not allowed, as is a
            0 after an id of a history.
        OSError: the file cannot be read.
    """
    opened = _open(file)
    columns = layout.columns()
    names = [name for name, _, _ in columns]
    if opened.schema_arrow.names != names:
        raise ValueError(
            f"{file} has the columns {', '.join(opened.schema_arrow.names)}; the first file has "
            f"{', '.join(names)}: all files must have the same, in the same order"
        )
    for name, _, is_list in columns:
        _check_type(file, opened.schema_arrow.field(name), is_list, name == layout.label)
    first = 0
    for batch in _batches(opened, file):
        arrays, lengths, paddings = [], {}, {}
        for name, size, is_list in columns:
            where = _Where(file, name, first)
            column = batch.column(name)
            where.check(column.is_null().to_numpy(zero_copy_only=False), "nothing there")
            if is_list:
                values, lengths[name] = column.flatten(), _lengths(column)
                rows = np.repeat(np.arange(len(column)), lengths[name])
            else:
                values, rows = column, np.arange(len(column))
            numbers = _numbers(values, where, rows)
            bad = (numbers < 0) | (numbers >= size)
            if bad.any():
                value = numbers[np.flatnonzero(bad)[0]]
                rule = "labels are 0 or 1" if name == layout.label else f"ids lie in [0, {size})"
                where.check(_of_rows(bad, rows), f"{value}; {rule}")
            numbers = numbers.astype(_dtype(size))
            if is_list:
                paddings[name] = numbers == 0
                where.check(_of_rows(_behind_ids(paddings[name], rows), rows), _ZERO_AFTER_ID)
                cut.num_histories += int((lengths[name] > layout.history_length).sum())
                arrays.append(_right_aligned(numbers, lengths[name], layout.history_length))
            else:
                arrays.append(numbers[:, None])
        _check_equal_lengths(file, first, lengths)
        _check_equal_paddings(file, first, rows, paddings)
        yield arrays
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


def _check_type(file: Path, field: pa.Field, is_list: bool, is_label: bool) -> None:
    kind = field.type
    if is_list:
        lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        if any(is_one(kind) for is_one in lists) and pa.types.is_integer(kind.value_type):
            return
        allowed = "lists of integers"
    elif is_label:
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind):
            return
        allowed = "numbers or booleans"
    elif pa.types.is_integer(kind):
        return
    else:
        allowed = "integers"
    raise ValueError(
        f"{file}: column '{field.name}' is {kind}; allowed: {allowed}. Is the order of the columns "
        "label, users, target items, positive and negative histories?"
    )


@dataclass(frozen=True)
class _Where:
    """Some rows of a column, the first of which is row `first` of its file."""

    file: Path
    column: str
    first: int

    def check(self, bad_rows: np.ndarray, problem: str) -> None:
        """Raises ValueError unless no row is bad."""
        if bad_rows.any():
            row = self.first + int(np.flatnonzero(bad_rows)[0])
            raise ValueError(
                f"{self.file}: column '{self.column}': row {row} (counted from 0): {problem}"
            )


def _lengths(column: pa.Array) -> np.ndarray:
    return pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(values: pa.Array, where: _Where, rows: np.ndarray) -> np.ndarray:
    """int64; the values of `rows`, which are counted from the first of `where`."""
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    where.check(_of_rows(nulls, rows), "nothing there in the list")
    try:
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{where.file}: column '{where.column}': rows {where.first} to ...: {error}; allowed: "
            "whole numbers"
        ) from None


def _of_rows(bad: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns for each row, up to the last of `rows`, whether it has a bad value."""
    is_bad = np.zeros(rows[-1] + 1 if len(rows) else 0, bool)
    is_bad[rows[bad]] = True
    return is_bad


def _behind_ids(padding: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns for each value of lists whether it is padding after an id of the same row."""
    is_after_id = np.zeros(len(padding), bool)
    is_after_id[1:] = padding[1:] & ~padding[:-1] & (rows[1:] == rows[:-1])
    return is_after_id


def _dtype(cardinality: int) -> np.dtype:
    return np.dtype(np.int32 if cardinality <= 1 << 31 else np.int64)


def _right_aligned(values: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """`[len(lengths), width]`: the last values of each list, zeros before shorter ones."""
    if (lengths == width).all():
        return values.reshape(-1, width)
    rows = np.zeros((len(lengths), width), values.dtype)
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values))
    rows[np.arange(width) >= width - lengths[:, None]] = values[from_end <= width]
    return rows


def _check_equal_lengths(file: Path, first: int, lengths: dict[str, np.ndarray]) -> None:
    name = next(iter(lengths))
    for other, theirs in lengths.items():
        bad = np.flatnonzero(theirs != lengths[name])
        if len(bad):
            raise ValueError(
                f"{file}: row {first + int(bad[0])} (counted from 0): the history '{name}' has "
                f"{lengths[name][bad[0]]} items and '{other}' has {theirs[bad[0]]}; allowed: the "
                "histories of a row have equally many, step by step"
            )


def _check_equal_paddings(
    file: Path, first: int, rows: np.ndarray, paddings: dict[str, np.ndarray]
) -> None:
    """Checks lists of equal lengths, whose values belong to `rows`."""
    name = next(iter(paddings))
    for other, theirs in paddings.items():
        bad = np.flatnonzero(theirs != paddings[name])
        if len(bad):
            raise ValueError(
                f"{file}: row {first + int(rows[bad[0]])} (counted from 0): only one of the "
                f"histories '{name}' and '{other}' has a 0 at a step; allowed: zeros, which are "
                "padding, at the same steps of all histories of a row"
            )
