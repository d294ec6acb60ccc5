"""Arrow columns to canonical texts, numbers, ids and labels.

Rules, which the preparations' SQL states too:

- Texts lose ASCII whitespace at both ends; then they are missing if the encoder lists their
  spelling. Null and NaN are missing.
- A number as text matches `NUMBER`. Infinite numbers are errors, or missing if the encoder lists
  the spelling `inf`.
- Whole floating-point numbers up to 2^53 and whole decimals are integers; booleans are the texts
  `true` and `false`, or the numbers 1 and 0. Bytes are UTF-8 text.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MISSING_VALUES = ("", "NA", "N/A", "NULL", "null", "\\N", "-", "nan", "NaN", "None", "#N/A")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
WHOLE_WITH_POINT = r"^([+-]?\d+)\.0*$"  # replaced by its first group where values are integers

_INFINITY = ("inf", "infinity")
_FINITE = (
    "a finite number: replace infinite values in the data, or take all of them for missing with "
    "--missing_values inf"
)
LabelKey = float | str  # see `label_key`
BOOLEANS: dict[LabelKey, int] = {0.0: 0, 1.0: 1, "false": 0, "true": 1}

FEW_VALUES = 16  # are looked up one by one
_SPACES = " \t\n\r\f\v"
_MISSING, _OTHER = 2, 3  # codes of invalid values
_INTEGER = r"^[+-]?\d+$"
_LARGEST_EXACT = 1 << 53  # whole numbers up to here are different in float64
_WHOLE_DECIMAL = pa.decimal256(76, 0)  # holds every whole decimal; casting a fraction to it fails
_BELOW_2_63 = float(1 << 63)
_ARE_BYTES = (
    *(pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)


class InvalidValue(Exception):
    """A value that breaks a rule.

    Attributes:
        index: position of the value among those that were passed, from 0; -1: all are wrong.
        found: the value, for the message.
        rule: continues "expected ...".
    """

    def __init__(self, index: int, value: str, rule: str):
        super().__init__(index, value, rule)
        self.index, self.found, self.rule = int(index), value, rule


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns values without chunks, dictionaries, views, large types, bytes and float16.

    Raises:
        InvalidValue: bytes are not UTF-8.
    """
    if isinstance(values, pa.StringArray):  # early, for batches of one row
        return values
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    if any(check(kind) for check in _ARE_BYTES):
        try:
            return values.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            for index, text in enumerate(values.to_pylist()):
                if (text or b"").decode(errors="ignore").encode() != (text or b""):
                    raise InvalidValue(index, f"{text!r:.100}", "UTF-8 text") from None
    return values


def trimmed_texts(values: pa.Array) -> pa.Array:
    """Returns `plain` values as texts, trimmed; null and NaN are null.

    Raises:
        InvalidValue: a number is not whole, or the type has no text.
    """
    kind = values.type
    if pa.types.is_string(kind):
        return pc.ascii_trim_whitespace(values)
    if pa.types.is_floating(kind):
        whole, is_missing = _whole(values)
        return pa.array(whole, mask=is_missing).cast(pa.string())
    if pa.types.is_decimal(kind):
        return _whole_decimals(values).cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return values.cast(pa.string())
    raise InvalidValue(-1, f"a column of {kind}", "text or whole numbers: convert the column")


def texts(values: pa.Array, missing: pa.Array) -> pa.Array:
    """Returns canonical texts of `plain` values; null for missing values.

    Args:
        missing: spellings of missing values.

    Raises:
        InvalidValue: see `trimmed_texts`.
    """
    result = trimmed_texts(values)
    if pa.types.is_string(values.type):
        is_missing = pc.is_in(result, missing)
        if is_missing.true_count:
            result = pc.if_else(is_missing, None, result)
    return result


def integer_texts(values: pa.Array) -> pa.Array:
    """Returns texts in which whole numbers such as `7.0` are `7`."""
    if not pc.any(pc.match_substring(values, ".")).as_py():
        return values
    return pc.replace_substring_regex(values, WHOLE_WITH_POINT, r"\1")


def numbers(values: pa.Array, missing: pa.Array) -> NDArray[np.float64]:
    """Returns `plain` values as float64 [n]; NaN for missing values.

    Args:
        missing: spellings of missing values.

    Raises:
        InvalidValue: a text is not a number, a number is infinite, or the type is not numeric.
    """
    kind = values.type
    if pa.types.is_string(kind):
        result = None if _spell_numbers(tuple(missing.to_pylist())) else _cast(values)
        if result is None:  # some may be missing, have spaces, or not be numbers
            values = texts(values, missing)
            result = _cast(values)
        if result is None:
            is_bad = pc.fill_null(pc.invert(pc.match_substring_regex(values, NUMBER)), False)
            refuse(is_bad.to_numpy(zero_copy_only=False), values, "a number")
            raise AssertionError(f"Arrow refused a number that matches {NUMBER}")
    elif pa.types.is_null(kind):
        return np.full(len(values), np.nan)
    elif is_number(kind):
        result = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        raise InvalidValue(-1, f"a column of {kind}", "numbers: convert the column")
    is_infinite = np.isinf(result)
    if is_infinite.any():
        if not _counts_infinity(tuple(missing.to_pylist())):
            refuse(is_infinite, values, _FINITE)
        result = np.where(is_infinite, np.nan, result)
    return result


@functools.lru_cache
def _counts_infinity(missing: tuple[str, ...]) -> bool:
    """Returns whether infinity is among the spellings of missing values."""
    return any(spelling.lower() in _INFINITY for spelling in missing)


@functools.lru_cache
def _spell_numbers(missing: tuple[str, ...]) -> bool:
    return any(re.match(NUMBER, spelling) for spelling in missing)


def _cast(values: pa.Array) -> NDArray[np.float64] | None:
    """Returns texts as numbers; None where one is not a number."""
    try:
        result = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    # Arrow also reads texts such as `NAN`.
    return result if np.count_nonzero(np.isnan(result)) == values.null_count else None


def integers(values: pa.Array, missing: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns `plain` values as int64 [n], and whether each is missing; missing values are 0.

    Args:
        missing: spellings of missing values.

    Raises:
        InvalidValue: a value is not an integer below 2^63, or the type is not numeric.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        return _whole(values)
    if pa.types.is_string(kind):
        values = integer_texts(texts(values, missing))
        is_bad = pc.fill_null(pc.invert(pc.match_substring_regex(values, _INTEGER)), False)
        refuse(is_bad.to_numpy(zero_copy_only=False), values, "an integer")
        values = pc.replace_substring_regex(values, r"^\+", "")
    elif pa.types.is_decimal(kind):
        values = _whole_decimals(values)
    elif not is_number(kind) and not pa.types.is_null(kind):
        raise InvalidValue(-1, f"a column of {kind}", "integers: convert the column")
    try:
        result = values.cast(pa.int64())
    except pa.ArrowInvalid:
        is_large = pc.greater_equal(pc.abs(values.cast(pa.float64(), safe=False)), _BELOW_2_63)
        refuse(pc.fill_null(is_large, False).to_numpy(zero_copy_only=False), values, "below 2^63")
        raise
    is_missing = result.is_null().to_numpy(zero_copy_only=False)
    return pc.fill_null(result, 0).to_numpy(zero_copy_only=False), is_missing


def label_key(value: Any) -> LabelKey | None:
    """Returns what the spellings of a value share: its number, or its text in lower case; None for
    null and NaN."""
    if value is None or value != value:
        return None
    text = str(value).strip(_SPACES).lower()
    return float(text) if re.match(NUMBER, text) else text


def labels(
    values: pa.Array,
    missing: pa.Array,
    meanings: Mapping[LabelKey, int],
    rule: str,
    others: int | None = None,
) -> NDArray[np.bool_]:
    """Returns `plain` values as booleans [n].

    Args:
        missing: spellings of missing values, which are errors unless they have a meaning.
        meanings: key of a value, see `label_key` -> 0 or 1.
        rule: names the values in errors.
        others: 0 or 1 for other values; None: they are errors.

    Raises:
        InvalidValue: a value is missing or is another one.
    """
    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_null(kind) or is_number(kind)):
        raise InvalidValue(-1, f"a column of {kind}", f"{rule}: convert the column")
    absent = {*missing.to_pylist()}

    def coded(distinct: pa.Array) -> NDArray[np.int8]:
        return np.array([code(value) for value in distinct.to_pylist()], np.int8)

    def code(value: Any) -> int:
        key = label_key(value)
        if key is None or (key not in meanings and str(value).strip(_SPACES) in absent):
            return _MISSING
        label = meanings.get(key, others)
        return _OTHER if label is None else label

    result = by_distinct(values, coded)
    is_missing = result == _MISSING
    if is_missing.any():
        index = int(np.argmax(is_missing))
        value = values[index].as_py()
        word = value.strip(_SPACES) if isinstance(value, str) else ""
        spelled = f", as {word!r} is a missing value" if word else ""
        raise InvalidValue(index, f"no value{spelled}: leave the row out", rule)
    refuse(result == _OTHER, values, rule)
    return result == 1


def by_distinct(values: pa.Array, function: Callable[[pa.Array], NDArray]) -> NDArray:
    """Returns what a function returns for each value; values that repeat are passed once."""
    if len(values) <= FEW_VALUES:
        return function(values)
    encoded = values.dictionary_encode(null_encoding="encode")
    return function(encoded.dictionary)[encoded.indices.to_numpy()]


def utf8(values: pa.StringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Returns offsets [n + 1] from 0 on, and the bytes of all texts."""
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, content = values.buffers()
    offsets = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    content = (
        np.frombuffer(content, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    )
    return offsets.astype(np.int64) - first, content


def refuse(is_bad: NDArray[np.bool_], values: pa.Array, rule: str) -> None:
    """Raises InvalidValue with the first bad value, if any is bad."""
    if is_bad.any():
        index = int(np.argmax(is_bad))
        value = values[index].as_py()
        is_missing = value is None or value != value
        raise InvalidValue(index, "no value" if is_missing else f"{value!r:.100}", rule)


def is_number(kind: pa.DataType) -> bool:
    """Returns whether values of a type are integers, floats, booleans or decimals."""
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def _whole(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns floating-point numbers that are whole, which is how pandas stores integers of a
    column in which some are missing, as int64, and whether each is missing."""
    floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    is_missing = np.isnan(floats)
    floats = np.where(is_missing, 0, floats)
    is_bad = ~(np.abs(floats) <= _LARGEST_EXACT) | (floats != np.floor(floats))
    refuse(is_bad, values, "text or a whole number up to 2^53, beyond which floats are not exact")
    return floats.astype(np.int64), is_missing


def _whole_decimals(values: pa.Array) -> pa.Array:
    """Returns decimals that are whole without a fraction."""
    try:
        return values.cast(_WHOLE_DECIMAL)
    except pa.ArrowInvalid:
        floor = pc.floor(values)
        is_bad = pc.fill_null(pc.not_equal(values, floor), False)
        refuse(is_bad.to_numpy(zero_copy_only=False), values, "a whole number")
        raise
