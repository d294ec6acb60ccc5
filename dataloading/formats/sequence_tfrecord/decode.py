"""tf.train.Examples of histories -> NumPy arrays of ids, checked.

TensorFlow's own parser finds the numbers: with its C++ on one core it takes half the time of
decoding them by NumPy, whole arrays at a time.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dataloading.pipeline.checks import check_ids, check_labels
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.ragged import ranges

Locate = Callable[[int, int | None], str]


def count_values(record: bytes, column: Column, locate: Locate) -> int:
    """Returns the number of values of a feature in a record, 0 without the feature."""
    ((values, _),) = _parse([record], [column], locate)
    return len(values)


def decode(
    records: Sequence[bytes], num_rows: np.ndarray, columns: Sequence[Column], locate: Locate
) -> list[np.ndarray]:
    """The rows of some records, one array `[rows of all records, width]` per column.

    Args:
        records: serialized Examples, at least one.
        num_rows: int64 `[records]`, how many rows each must hold. Where it is one, a history may
            be shorter than `width`; it is right-aligned, with zeros in front.
        locate: (number of a record, row in it or None) -> how messages call the place.

    Raises:
        ValueError: a record is not an Example, lacks a feature, has one of another type or length,
            or a value that is not allowed, such as a 0 after an id of a history.
    """
    parsed = _parse(records, columns, locate)
    arrays = []
    for column, (values, splits) in zip(columns, parsed, strict=True):
        lengths = np.diff(splits)
        _check_lengths(column, lengths, num_rows, records, locate)

        def where(bad, column=column, values=values, splits=splits):
            position = int(np.flatnonzero(bad)[0])
            number = int(np.searchsorted(splits, position, side="right")) - 1
            row = (position - int(splits[number])) // column.width
            return f"{locate(number, row)}: feature '{column.feature}': found {values[position]}"

        if column.role is Role.LABEL:
            check_labels(values, where)
        else:
            check_ids(values, column.cardinality, where)
        arrays.append(_right_aligned(values, lengths, num_rows, column))
    _check_padding(arrays, columns, num_rows, locate)
    return arrays


def _right_aligned(
    values: np.ndarray, lengths: np.ndarray, num_rows: np.ndarray, column: Column
) -> np.ndarray:
    whole = num_rows * column.width
    if np.array_equal(lengths, whole):
        return values.astype(column.dtype).reshape(-1, column.width)
    ends = np.cumsum(whole)
    rows = np.zeros(int(ends[-1]), column.dtype)
    rows[ranges(ends - lengths, lengths)] = values
    return rows.reshape(-1, column.width)


def _check_padding(
    arrays: Sequence[np.ndarray], columns: Sequence[Column], num_rows: np.ndarray, locate: Locate
) -> None:
    """Raises ValueError unless zeros come first, the same number in all histories of a sample.

    Models take the first feature for all, and the last step for the most recent one.
    """

    def place(bad):
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        stops = np.cumsum(num_rows)
        number = int(np.searchsorted(stops, row, side="right"))
        return locate(number, row - int(stops[number] - num_rows[number]))

    histories = (
        (c.feature, ids == 0) for c, ids in zip(columns, arrays, strict=True) if c.width > 1
    )
    feature, padding = next(histories, (None, None))
    if feature is None:
        return
    after_id = padding[:, 1:] & ~padding[:, :-1]
    if after_id.any():
        raise ValueError(
            f"{place(after_id)}: feature '{feature}' has a 0 after an id; zeros are padding, "
            "which comes before the history. Prepare the file again"
        )
    for other, theirs in histories:
        if not np.array_equal(theirs, padding):
            differ = theirs != padding
            step = int(np.flatnonzero(differ)[0]) % padding.shape[1]
            raise ValueError(
                f"{place(differ)}: only one of the features '{feature}' and '{other}' has a 0 at "
                f"step {step} (counted from 0); allowed: zeros, which are padding, at the same "
                "steps of all histories of a row. Prepare the file again"
            )


def _check_lengths(
    column: Column,
    lengths: np.ndarray,
    num_rows: np.ndarray,
    records: Sequence[bytes],
    locate: Locate,
) -> None:
    may_be_shorter = (num_rows == 1) & (column.width > 1)
    bad = np.where(may_be_shorter, lengths > column.width, lengths != num_rows * column.width)
    # The parser gives a feature that is not there no values, as it does an empty history.
    for number in np.flatnonzero(bad | (lengths == 0)):
        fault = _fault(records[number], [column])
        if fault:
            raise ValueError(f"{locate(number, None)} {fault}")
    if bad.any():
        number = int(np.flatnonzero(bad)[0])
        at_most = "at most " if may_be_shorter[number] else ""
        raise ValueError(
            f"{locate(number, None)}: feature '{column.feature}' has {lengths[number]} values; "
            f"allowed: {at_most}{column.width} for each of the {num_rows[number]} rows that the "
            "record must hold (all of a file hold as many as its first; only the last may hold "
            "fewer). Correct the feature's dimensions in the feature spec, or write the file again"
        )


def _parse(
    records: Sequence[bytes], columns: Sequence[Column], locate: Locate
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns values, int64, and row splits, int64 `[records + 1]`, of each column."""
    import tensorflow as tf

    wanted = {
        column.feature: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        for column in columns
    }
    try:
        with tf.device("/CPU:0"):
            parsed = tf.io.parse_example(np.array(records, object), wanted)
    # TensorFlow quotes the bytes that it cannot parse, and Python fails to make text of them.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        for number, record in enumerate(records):
            fault = _fault(record, columns)
            if fault:
                raise ValueError(f"{locate(number, None)} {fault}") from None
        raise ValueError(f"{locate(0, None)}: TensorFlow cannot parse it: {error}") from None
    return [
        (parsed[column.feature].values.numpy(), parsed[column.feature].row_splits.numpy())
        for column in columns
    ]


def _fault(record: bytes, columns: Sequence[Column]) -> str | None:
    """Returns the fault of a record, or None; slow, for records that failed to parse."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return "is not a tf.train.Example; write the file again"
    for column in columns:
        kind = None
        if column.feature in features:
            kind = features[column.feature].WhichOneof("kind")
        if kind is None:
            return (
                f"has no values of feature '{column.feature}'; it has {', '.join(sorted(features))}"
                ". Correct the names in the feature spec, or write the file again"
            )
        if kind != "int64_list":
            return (
                f"holds feature '{column.feature}' as {kind}; allowed: int64_list. Write the file "
                "again"
            )
    return None
