"""Rows of Parquet files as arrays: prepared by NVIDIA's tools, or in the same columns.

The columns: label, the users' features, those of the target item, then as many of the positive and
of the negative history, lists of ids, the most recent one last, with or without zeros before them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataloading.formats.sequence_tfrecord.writer import sequence_spec
from dataloading.spec.feature_spec import FeatureSpec

_ROWS_AT_A_TIME = 16_384  # 25 MB of ids of two features in two histories of 100
_HISTORY_LENGTH = 100  # by default


def read_layout(
    names: Sequence[str],
    metadata: Path,
    num_user: int,
    num_item: int | None,
    history_length: int | None,
    prebatch_sizes: Mapping[str, int],
) -> FeatureSpec:
    """Returns the feature spec of rows, whose features are in the order of their columns.

    Args:
        names: of the columns.
        metadata: a JSON file, `{"cardinalities": [{"name": ..., "value": ...}, ...]}`: the users'
            features, then the items'; possibly with `max_history`.
        num_user: number of features of users.
        num_item: None: as many as there are cardinalities after those of the users.
        history_length: None: `max_history`, or 100 where that is not there.
        prebatch_sizes: see `sequence_spec`.

    Raises:
        ValueError: they do not fit the numbers of features.
    """
    sizes, max_history = _read_metadata(metadata)
    num_item = len(sizes) - num_user if num_item is None else num_item
    if (
        num_item < 1
        or num_user + num_item != len(sizes)
        or len(names) != 1 + num_user + 3 * num_item
    ):
        raise ValueError(
            f"{metadata.parent}: expected the columns label, user features, and the item features "
            f"of the target, the positive and the negative history, got {len(names)} columns "
            f"({', '.join(names)}), and in {metadata.name} the cardinalities of {len(sizes)} "
            f"features; --number_of_user_features {num_user} leaves {num_item} features of items, "
            "which have one or more; see --number_of_item_features"
        )
    columns = iter(names)
    label, user, target, positive, negative = (
        [next(columns) for _ in range(count)] for count in (1, num_user, *[num_item] * 3)
    )
    return sequence_spec(
        label=label[0],
        user=dict(zip(user, sizes, strict=False)),
        target=dict(zip(target, sizes[num_user:], strict=True)),
        positive=positive,
        negative=negative,
        history_length=history_length or max_history,
        prebatch_sizes=prebatch_sizes,
    )


def _read_metadata(path: Path) -> tuple[list[int], int]:
    """Returns numbers of ids (0 included) and the length of histories.

    A cardinality N stands for the ids 1 to N, as NVIDIA's `sim_preprocessing.py` writes it.
    """
    try:
        content = json.loads(path.read_text())
        sizes = {entry["name"]: entry["value"] for entry in content["cardinalities"]}
        max_history = content.get("max_history", _HISTORY_LENGTH)
        is_valid = all(type(n) is int and n > 0 for n in (*sizes.values(), max_history))
        is_valid &= len(sizes) == len(content["cardinalities"])
    except (ValueError, KeyError, TypeError, AttributeError):
        is_valid = False
    if not is_valid:
        raise ValueError(
            f'{path}: expected {{"cardinalities": [{{"name": "uid", "value": 105925}}, ...]}}, '
            'each name once, with values from 1 on; optionally "max_history", a length from 1 on'
        )
    return [size + 1 for size in sizes.values()], max_history


def read_rows(file: Path, spec: FeatureSpec) -> Iterator[tuple[list[np.ndarray], int]]:
    """Yields arrays int64 `[rows, values]` per feature, and the number of histories that were cut.

    Histories are right-aligned, with zeros in front. The reader of the TFRecords checks the values.

    Raises:
        ValueError: other columns than the features, a value that is missing or not a whole number,
            or a damaged file.
    """
    first = 0
    try:
        with pq.ParquetFile(file) as opened:
            if opened.schema_arrow.names != [*spec.feature_spec]:
                raise ValueError(
                    f"{file} has the columns {', '.join(opened.schema_arrow.names)}; the first "
                    f"file has {', '.join(spec.feature_spec)}: all files must have the same, in "
                    "the same order"
                )
            for batch in opened.iter_batches(_ROWS_AT_A_TIME):
                place = f"rows {first} to {first + len(batch) - 1}"
                yield _arrays(batch, spec, f"{file}: {place}")
                first += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{file} is damaged or cut off ({error}); create it again") from None


def _arrays(batch: pa.RecordBatch, spec: FeatureSpec, place: str) -> tuple[list[np.ndarray], int]:
    arrays, num_cut = [], 0
    for name, keys in spec.feature_spec.items():
        column, width = batch.column(name), keys.get("dimensions", [1])[0]
        is_list = "dimensions" in keys
        try:
            values = column.flatten() if is_list else column
            ids = values.cast(pa.int64())
        except (pa.ArrowException, AttributeError):
            expected = "lists of whole numbers" if is_list else "whole numbers"
            raise ValueError(
                f"{place}: column '{name}': expected {expected}, got {column.type}: is the order "
                "of the columns label, users, target items, positive and negative histories?"
            ) from None
        if column.null_count or ids.null_count:
            raise ValueError(f"{place}: column '{name}': expected a value in each row, got none")
        ids = ids.to_numpy(zero_copy_only=False)
        if is_list:
            lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
            num_cut += int((lengths > width).sum())
            ids = _right_aligned(ids, lengths, width)
        arrays.append(ids.reshape(-1, width))
    return arrays, num_cut


def _right_aligned(values: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """`[len(lengths), width]`: the last values of each list, zeros before shorter ones."""
    rows = np.zeros((len(lengths), width), values.dtype)
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(values))
    rows[np.arange(width) >= width - lengths[:, None]] = values[from_end <= width]
    return rows
