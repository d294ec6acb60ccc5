"""Values of a column as times that can be compared: numbers, or ISO 8601 dates and times."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dataloading.table_input import values as transcode_values
from dataloading.table_input.values import BadValue

_RULE = (
    "times are all whole numbers, all numbers, or all ISO 8601 dates or times, such as 2024-05-31 "
    "or 2024-05-31T23:59:59"
)


class TimeKind(NamedTuple):
    """Kind of the times that the texts of a column stand for.

    parsed: the Arrow type of a text.
    stored: of what is compared.
    """

    parsed: pa.DataType
    stored: pa.DataType


# In the order in which they are tried; exact ones first. Numbers beyond 2^53 are exact as int64.
KINDS = (
    TimeKind(pa.int64(), pa.int64()),
    TimeKind(pa.float64(), pa.float64()),
    TimeKind(pa.timestamp("us"), pa.int64()),
    TimeKind(pa.timestamp("us", "UTC"), pa.int64()),
    TimeKind(pa.timestamp("ns"), pa.int64()),
    TimeKind(pa.timestamp("ns", "UTC"), pa.int64()),
)


def times_of(column: pa.Array, kind: TimeKind) -> np.ndarray:
    """Returns the times of a column of text, numbers, dates or timestamps, as `kind.stored`.

    Raises:
        BadValue: a value is missing or is not of that kind; `index` is its row.
    """
    values = transcode_values.flat(column, 1)
    if pa.types.is_temporal(values.type) and not pa.types.is_time(values.type):
        values = values.cast(pa.timestamp("us"), safe=False)
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = transcode_values.converted(
            transcode_values.without_empty(values), kind.parsed, _RULE
        )
    elif not transcode_values.is_number(values):
        raise BadValue(0, f"a {values.type}", _RULE)
    elif not pa.types.is_floating(values.type):
        values = transcode_values.converted(values, kind.stored, _RULE)
    if values.null_count:
        index = values.is_null().to_numpy(zero_copy_only=False).argmax()
        raise BadValue(index, "no value", "every row needs a time: " + _RULE)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    stored = numbers.astype(kind.stored.to_pandas_dtype())
    if (stored != numbers).any():  # NaN, and fractions where whole numbers are tried
        index = np.argmax(stored != numbers)
        raise BadValue(index, f"{numbers[index]:g}", _RULE)
    return stored
