"""tf.train.Examples of histories -> NumPy arrays of ids, checked.

TensorFlow's own parser finds the numbers: with its C++ on one core it takes half the time of
decoding them by NumPy, whole arrays at a time.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dataloading.formats.records import reason_of
from dataloading.pipeline.columns import Column
from dataloading.pipeline.ragged import ranges

Locate = Callable[[int, int | None], str]


def count_values(record: bytes, column: Column, locate: Locate) -> int:
    """Returns the number of values of a feature in a record, 0 without the feature."""
    ((values, _),) = _parse([record], [column], locate)
    return len(values)


def decode(
    records: Sequence[bytes], columns: Sequence[Column], locate: Locate
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the number of samples of some records, int64 `[records]`, and all of their samples,
    one array `[samples, width]` per column.

    Args:
        records: serialized Examples, at least one. A history of a record of one sample may be
            shorter than `width`; it is right-aligned, after zeros.
        columns: the first one has one value per sample, which are counted.
        locate: (number of a record, sample in it or None) -> name of the place in messages.

    Raises:
        ValueError: a record is not an Example, lacks a feature, has one of another type or length,
            or a value that is not allowed, such as a 0 after an id of a history.
    """
    arrays = []
    parsed = _parse(records, columns, locate)
    num_samples = np.diff(parsed[0][1])
    for number in np.flatnonzero(num_samples == 0)[:1]:
        fault = _fault(records[number], columns) or "has no samples; write the file again"
        raise ValueError(f"{locate(number, None)} {fault}")
    for column, (values, splits) in zip(columns, parsed, strict=True):
        lengths = np.diff(splits)
        _check_lengths(column, lengths, num_samples, records, locate)

        def where(invalid, column=column, values=values, splits=splits):
            position = int(np.flatnonzero(invalid)[0])
            number = int(np.searchsorted(splits, position, side="right")) - 1
            sample = (position - int(splits[number])) // column.width
            place = locate(number, sample if num_samples[number] > 1 else None)
            return f"{place}: feature '{column.feature}': found {values[position]}"

        column.check(values, where)
        whole = num_samples * column.width
        if np.array_equal(lengths, whole):
            array = values.astype(column.dtype)
        else:
            ends = np.cumsum(whole)
            array = np.zeros(int(ends[-1]), column.dtype)
            array[ranges(ends - lengths, lengths)] = values
        arrays.append(array.reshape(-1, column.width))
    _check_padding(arrays, columns, num_samples, locate)
    return num_samples, arrays


def _check_padding(
    arrays: Sequence[np.ndarray], columns: Sequence[Column], num_samples: np.ndarray, locate: Locate
) -> None:
    """Raises ValueError unless zeros come first, the same number in all histories of a sample.

    Models take the first feature for all, and the last step for the most recent one.
    """

    def place(invalid):
        sample = int(np.flatnonzero(invalid.any(axis=1))[0])
        stops = np.cumsum(num_samples)
        number = int(np.searchsorted(stops, sample, side="right"))
        row = sample - int(stops[number] - num_samples[number])
        return locate(number, row if num_samples[number] > 1 else None)

    pairs = zip(columns, arrays, strict=True)
    histories = [(column.feature, ids == 0) for column, ids in pairs if column.width > 1]
    for feature, padding in histories[:1]:
        after_id = padding[:, 1:] & ~padding[:, :-1]
        if after_id.any():
            raise ValueError(
                f"{place(after_id)}: feature '{feature}' has a 0 after an id; zeros are padding, "
                "which comes before the history. Prepare the file again"
            )
    for other, theirs in histories[1:]:
        differ = theirs != padding
        if differ.any():
            step = int(np.flatnonzero(differ)[0]) % padding.shape[1]
            raise ValueError(
                f"{place(differ)}: only one of the features '{feature}' and '{other}' has a 0 at "
                f"step {step} (counted from 0); expected zeros, which are padding, at the same "
                "steps of all histories of a row. Prepare the file again"
            )


def _check_lengths(
    column: Column,
    lengths: np.ndarray,
    num_samples: np.ndarray,
    records: Sequence[bytes],
    locate: Locate,
) -> None:
    may_be_shorter = (num_samples == 1) & (column.width > 1)
    whole = num_samples * column.width
    invalid = (lengths > whole) | (~may_be_shorter & (lengths < whole))
    # The parser gives a feature that is not there no values, as it does an empty history.
    for number in np.flatnonzero(invalid | (lengths == 0)):
        fault = _fault(records[number], [column])
        if fault:
            raise ValueError(f"{locate(number, None)} {fault}")
    if invalid.any():
        number = int(np.flatnonzero(invalid)[0])
        at_most = "at most " if may_be_shorter[number] else ""
        raise ValueError(
            f"{locate(number, None)}: feature '{column.feature}' has {lengths[number]} values; "
            f"expected {at_most}{column.width} for each of the record's {num_samples[number]} "
            "rows. Correct the feature's dimensions in the feature spec, or write the file again"
        )


def _parse(
    records: Sequence[bytes], columns: Sequence[Column], locate: Locate
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns values, int64, and row splits, int64 `[records + 1]`, of each column."""
    import tensorflow as tf

    ragged = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    try:
        with tf.device("/CPU:0"):
            parsed = tf.io.parse_example(
                np.array(records, object), {column.feature: ragged for column in columns}
            )
    # TensorFlow quotes the bytes that it cannot parse, and Python fails to make text of them.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        for number, record in enumerate(records):
            fault = _fault(record, columns)
            if fault:
                raise ValueError(f"{locate(number, None)} {fault}") from None
        raise ValueError(
            f"{locate(0, None)}: TensorFlow cannot parse it: {reason_of(error)}"
        ) from None
    lists = [parsed[column.feature] for column in columns]
    return [(ids.values.numpy(), ids.row_splits.numpy()) for ids in lists]


def _fault(record: bytes, columns: Sequence[Column]) -> str | None:
    """Returns the fault of a record, or None; slow, for records that failed to parse."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return "is not a tf.train.Example; write the file again"
    for column in columns:
        name = column.feature
        kind = features[name].WhichOneof("kind") if name in features else None
        if kind is None:
            return (
                f"has no values of feature '{name}'; it has {', '.join(sorted(features))}. "
                "Correct the names in the feature spec, or write the file again"
            )
        if kind != "int64_list":
            return f"holds feature '{name}' as {kind}; expected int64_list. Write the file again"
    return None
