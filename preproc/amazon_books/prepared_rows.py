"""Rows of Parquet files as arrays, checked: prepared by NVIDIA's tools, or in the same columns.

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
_ZERO_AFTER_ID = (
    "a 0 after an id; zeros are padding, which comes before a history. Number items from 1, "
    "and let the most recent one be the last"
)
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

    def columns(self) -> list[tuple[str, int, bool]]:
        """(column, number of ids, whether it holds lists), as a file has them."""
        histories = [
            (name, size, True)
            for names in (self.positive, self.negative)
            for name, size in zip(names, self.target.values(), strict=True)
        ]
        scalars = [(name, size, False) for name, size in (self.user | self.target).items()]
        return [(self.label, 2, False), *scalars, *histories]


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
    """Yields arrays `[rows, values]` per column, and the number of histories that were cut.

    Ids are int32 (int64 where the cardinality needs it), labels int8. Histories are
    `[rows, history_length]`, right-aligned with zeros in front. One row group is in memory.

    Raises:
        ValueError: other columns than those of the layout, a value that is not allowed, as is a
            0 after an id of a history, or a damaged file.
    """
    opened = _open(file)
    _check_columns(file, opened.schema_arrow, layout)
    first, width = 0, layout.history_length
    for batch in _batches(opened, file):
        arrays, histories, num_cut = [], {}, 0
        for name, size, is_list in layout.columns():
            place = _Place(f"{file}: column '{name}'", first)
            rule = "labels are 0 or 1" if name == layout.label else f"ids lie in [0, {size})"
            ids, rows = _ids(batch.column(name), size, rule, place)
            if not is_list:
                arrays.append(ids[:, None])
                continue
            lengths = np.bincount(rows, minlength=len(batch))
            is_padding = ids == 0
            follows_id = is_padding[1:] & ~is_padding[:-1] & (rows[1:] == rows[:-1])
            place.check(follows_id, rows[1:], _ZERO_AFTER_ID)
            num_cut += int((lengths > width).sum())
            histories[name] = lengths, is_padding
            arrays.append(_right_aligned(ids, lengths, width))
        _check_equal_steps(_Place(str(file), first), histories)
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
    names = [name for name, _, _ in layout.columns()]
    if schema.names != names:
        raise ValueError(
            f"{file} has the columns {', '.join(schema.names)}; the first file has "
            f"{', '.join(names)}: all files must have the same, in the same order"
        )
    for name, _, is_list in layout.columns():
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


@dataclass(frozen=True)
class _Place:
    """Rows of a file, or of one of its columns, from row `first` of the file."""

    name: str
    first: int

    def check(self, bad: np.ndarray, rows: np.ndarray, problem: str) -> None:
        """Raises ValueError unless no value is bad; `rows`, upwards, are those of the values."""
        if bad.any():
            row = self.first + int(rows[np.argmax(bad)])
            raise ValueError(f"{self.name}: row {row} (counted from 0): {problem}")


def _ids(column: pa.Array, size: int, rule: str, place: _Place) -> tuple[np.ndarray, np.ndarray]:
    """Returns all values of a column, [n], and the row of each, [n]."""
    rows = np.arange(len(column))
    place.check(column.is_null().to_numpy(zero_copy_only=False), rows, "nothing there")
    if any(is_one(column.type) for is_one in _LISTS):
        rows = np.repeat(rows, pc.list_value_length(column).to_numpy(zero_copy_only=False))
        column = column.flatten()
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        place.check(nulls, rows, "nothing there in the list")
    try:
        numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{place.name}: rows {place.first} to ...: {error}; expected whole numbers"
        ) from None
    bad = (numbers < 0) | (numbers >= size)
    if bad.any():
        place.check(bad, rows, f"{numbers[np.argmax(bad)]}; {rule}")
    return numbers.astype(np.int32 if size <= 1 << 31 else np.int64), rows


def _right_aligned(values: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """`[len(lengths), width]`: the last values of each list, zeros before shorter ones."""
    if (lengths == width).all():
        return values.reshape(-1, width)
    rows = np.zeros((len(lengths), width), values.dtype)
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values))
    rows[np.arange(width) >= width - lengths[:, None]] = values[from_end <= width]
    return rows


def _check_equal_steps(place: _Place, histories: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Checks the lengths of the lists and the padding among their values against each other."""
    (name, (lengths, is_padding)), *others = histories.items()
    rows = np.arange(len(lengths))
    for other, (their_lengths, _) in others:
        bad = their_lengths != lengths
        row = np.argmax(bad)
        place.check(
            bad,
            rows,
            f"the history '{name}' has {lengths[row]} items and '{other}' has "
            f"{their_lengths[row]}; expected equally many in all histories of a row, step by "
            "step",
        )
    for other, (_, theirs) in others:
        place.check(
            theirs != is_padding,
            np.repeat(rows, lengths),
            f"only one of the histories '{name}' and '{other}' has a 0 at a step; expected zeros, "
            "which are padding, at the same steps of all histories of a row",
        )
