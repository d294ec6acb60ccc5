"""Arrow columns to the numbers that are stored, or what is wrong with the first bad value."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEPARATOR = ";"  # between the values of one CSV field, where the hotness is above 1
_WRITTEN_AS_TEXT = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
_WHOLE_DECIMAL = pa.decimal256(76, 0)  # holds every whole decimal; casting a fraction to it fails
_HEXADECIMAL = "^[+-]?0[xX]"
_LARGEST_EXACT = 1 << 53  # whole numbers up to here are different in float64
_FILL = "fill missing values with --fill_missing mean, 0 or another value"
_LARGEST = float(np.finfo(np.float32).max)  # a model gets float32


class BadValue(Exception):
    """A value that breaks a rule.

    index: its number among the values, counted from 0; of the rows where `flat` raises it.
    found, rule: for the message.
    """

    def __init__(self, index: int, value: str, rule: str):
        super().__init__(value, rule)
        self.index, self.value, self.rule = int(index), value, rule


def flat(column: pa.Array, hotness: int) -> pa.Array:
    """Returns the concatenated values of all rows, `hotness` per row; bytes become text.

    Raises:
        BadValue: `index` is a row.
    """
    column = decoded(column)
    if is_text(column) and hotness > 1:
        column = pc.split_pattern(column, SEPARATOR)
    if not is_list(column):
        if hotness > 1:
            rule = f"the feature's hotness is {hotness}: use a list"
            raise BadValue(0, f"one {column.type}", rule)
        return column
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    if (lengths != hotness).any():
        row = np.argmax(lengths != hotness)
        raise BadValue(
            row,
            f"{lengths[row]} values",
            f"the feature's hotness is {hotness}: as many values in a list (in CSV files with "
            f"'{SEPARATOR}' between them)",
        )
    try:
        return decoded(column.flatten())
    except BadValue as bad:
        bad.index //= hotness
        raise


def decoded(column: pa.Array) -> pa.Array:
    """Returns values of a type that all functions of Arrow take: dictionaries, views and bytes
    become plain values and text, float16 becomes float32.

    Raises:
        BadValue: bytes are not UTF-8.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary_view(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = converted(column, pa.string(), "UTF-8 text")
    elif pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    return column


def numericals(values: pa.Array, dtype: np.dtype, may_miss: bool = False) -> np.ndarray:
    """Finite numbers, rounded once to `dtype`, as float64 rounds to it.

    Args:
        may_miss: missing values are NaN in the result, rather than an error.
    """
    if may_miss and is_text(values):
        values = without_empty(values)
    if not may_miss:
        _check_present(values, _FILL)
    elif pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    numbers = _floats(values, "a number", "numerical features are numbers")
    with np.errstate(over="ignore"):
        stored = numbers.astype(dtype)
    bad = np.isinf(numbers) if may_miss else ~np.isfinite(numbers)
    _refuse(bad, numbers, f"numerical features are finite: {_FILL}")
    largest = min(_LARGEST, float(np.finfo(dtype).max))
    holder = "float16" if dtype == np.float16 else "float32"
    rule = f"{holder} holds up to {largest:g}: scale it (for example, its logarithm)"
    if dtype == np.float16:
        rule += ", or give the feature 'dtype: float32' in the feature spec"
    _refuse(np.abs(stored.astype(np.float64)) > _LARGEST, numbers, rule)
    return stored


def _floats(values: pa.Array, wanted: str, rule: str) -> np.ndarray:
    """Texts or numbers as float64; `wanted` is what a text must be, `rule` what a column."""
    if is_text(values):
        numbers = converted(pc.ascii_trim_whitespace(values), pa.float64(), wanted)
    elif is_number(values):
        numbers = values.cast(pa.float64(), safe=False)
    else:
        raise BadValue(0, f"a {values.type}", f"{rule}: convert the column")
    return numbers.to_numpy(zero_copy_only=False)


def ids(values: pa.Array, cardinality: int | None) -> np.ndarray:
    """Ids, int64, in [0, cardinality); None: any id of 0 or more."""
    way_out = "; turn such values into ids with --categorify or --hash_buckets"
    values = without_nan(values)
    _check_present(values, "give it an id of its own, or use --categorify")
    if is_text(values):
        values = pc.ascii_trim_whitespace(values)
        numbers = converted(values, pa.int64(), "a whole number below 2^63", way_out)
    elif pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        numbers = converted(values, pa.int64(), "below 2^63", way_out)
    elif pa.types.is_decimal(values.type):
        numbers = converted(values, pa.int64(), "a whole number below 2^63", way_out)
    elif pa.types.is_floating(values.type):
        numbers = _whole(values)
    else:
        raise BadValue(0, f"a {values.type}", "ids are whole numbers: convert the column" + way_out)
    numbers = numbers.to_numpy(zero_copy_only=False)
    top = np.iinfo(np.int64).max if cardinality is None else cardinality
    _refuse(numbers < 0, numbers, "ids are 0 or more" + way_out, "d")
    rule = f"ids lie in [0, {top}): raise the cardinality, or write 'cardinality: auto'"
    _refuse(numbers >= top, numbers, rule, "d")
    return numbers


def labels(values: pa.Array, dtype: np.dtype) -> np.ndarray:
    """Labels, 0 or 1, as `dtype`."""
    _check_present(values, "rows without labels can only be predicted: leave the label out")
    numbers = _floats(values, "0 or 1", "labels are 0 or 1")
    _refuse((numbers != 0) & (numbers != 1), numbers, "labels are 0 or 1")
    return numbers.astype(dtype)


def texts(values: pa.Array) -> pa.Array:
    """Values to look up or hash, as text without spaces around it; null for missing values, NaN
    and the empty text."""
    if pa.types.is_floating(values.type):
        values = _whole(without_nan(values))
    elif pa.types.is_decimal(values.type):
        values = converted(values, _WHOLE_DECIMAL, "a whole number")
    if is_text(values):
        values = without_empty(values)
    elif not any(kind(values.type) for kind in _WRITTEN_AS_TEXT):
        rule = "--categorify and --hash_buckets take text and whole numbers: convert the column"
        raise BadValue(0, f"a {values.type}", rule)
    return values.cast(pa.string())


def _refuse(bad: np.ndarray, numbers: np.ndarray, rule: str, form: str = "g") -> None:
    if bad.any():
        index = np.argmax(bad)
        raise BadValue(index, format(numbers[index], form), rule)


def _check_present(values: pa.Array, way_out: str) -> None:
    if values.null_count:
        raise BadValue(pc.index(values.is_null(), True).as_py(), "no value", f"needed: {way_out}")


def _whole(values: pa.Array) -> pa.Array:
    """Floating-point numbers that are whole, which is how pandas stores integers of a column in
    which some are missing, as int64; null stays null."""
    numbers = pc.fill_null(values.cast(pa.float64()), 0).to_numpy(zero_copy_only=False)
    rule = (
        f"a {values.type} is taken for an integer where it is a whole number of 2^53 at most, "
        "beyond which it is not exact: convert the column"
    )
    bad = ~(np.abs(numbers) <= _LARGEST_EXACT) | (numbers != np.floor(numbers))
    _refuse(bad, numbers, rule, ".17g")
    return pa.array(numbers.astype(np.int64), mask=values.is_null().to_numpy(zero_copy_only=False))


def converted(values: pa.Array, target: pa.DataType, what: str, way_out: str = "") -> pa.Array:
    """A cast, or the first value that cannot be one."""
    try:
        return _cast(values, target)
    except pa.ArrowInvalid:
        start, stop = 0, len(values)  # of a part that has the first such value
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            _cast(values.slice(start, middle - start), target)
            start = middle
        except pa.ArrowInvalid:
            stop = middle
    raise BadValue(start, f"{values[start].as_py()!r:.100}", f"expected {what}{way_out}")


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """A cast that refuses texts such as `0x10`, which Arrow would convert to an integer."""
    is_read = is_text(values) and pa.types.is_integer(target)
    if is_read and pc.any(pc.match_substring_regex(values, _HEXADECIMAL)).as_py():
        raise pa.ArrowInvalid("a hexadecimal number")
    return values.cast(target)


def without_empty(values: pa.Array) -> pa.Array:
    """Trimmed texts; null for an empty one."""
    values = pc.ascii_trim_whitespace(values)
    return pc.if_else(pc.equal(values, ""), None, values)


def without_nan(values: pa.Array) -> pa.Array:
    """Returns values in which each NaN is null."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), None, values)


def is_text(values: pa.Array) -> bool:
    """Returns whether the values are texts."""
    return pa.types.is_string(values.type) or pa.types.is_large_string(values.type)


def is_list(values: pa.Array) -> bool:
    """Returns whether the values are lists."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(kind(values.type) for kind in kinds)


def is_number(values: pa.Array) -> bool:
    """Returns whether the values are integers, floats, booleans or decimals."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(kind(values.type) for kind in kinds)
