"""Casts that keep every value, of what tools write into data sets."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def cast_exactly(
    array: NDArray[Any], dtype: DTypeLike, place: Callable[[int, int], str]
) -> NDArray[Any]:
    """Returns an array in another dtype that holds each of its values.

    Args:
        array: [rows, values] or [rows].
        dtype: of the result.
        place: returns file, feature and row of a value, given its row and position, for messages.

    Raises:
        ValueError: a value would be rounded or cut off, or it is not finite.
    """
    dtype = np.dtype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # such values differ below
        converted = array.astype(dtype, copy=False)
        bad = ~np.isfinite(converted) if dtype.kind == "f" else np.zeros(1, bool)
        if array.dtype != dtype:
            # Both ways: unequal integers may be one number in floating point.
            bad = bad | (converted != array) | (converted.astype(array.dtype) != array)
    if not bad.any():
        return converted
    values = array.reshape(len(array), -1)
    row, position = map(int, np.argwhere(bad.reshape(values.shape))[0])
    value = values[row, position]
    if not np.isfinite(value):
        raise ValueError(f"{place(row, position)}: {value}; expected a finite number")
    raise ValueError(
        f"{place(row, position)}: {value}, of dtype {array.dtype}, does not fit into {dtype}; give "
        "the feature a dtype that holds it in the feature spec"
    )
