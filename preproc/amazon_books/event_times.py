"""Times of a log in tables: their kind, and the numbers that events are sorted by.

Timestamps become int64, in nanoseconds. So do whole numbers and numbers with a fraction, in units
of the last digit after the point that occurs in the log: 1406073600.123456701 becomes
1406073600123456701 where no time has more than 9 such digits. Where that does not fit into 64 bits,
and where a time is a floating-point number of Parquet or is written with an exponent, all numbers
become float64, and each must be one that float64 represents without loss.
"""

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = r"^-?[0-9]+$"
_FRACTION = r"^-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)$"
_PARTS = r"^(?P<sign>-?)(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)$"
_EXACT_DIGITS = 15  # significant digits that float64 always represents without loss
_EXACT_INTEGERS = 1 << 53  # below it, float64 represents every integer
_INTEGERS, _FRACTIONS, _FLOATS = "whole numbers", "numbers with a fraction", "float64"
_TIMESTAMPS = {
    "timestamps": pa.timestamp("ns"),
    "timestamps with a zone": pa.timestamp("ns", "UTC"),
}

# The number of a value in its block -> file, row and column, for messages.
Place = Callable[[int], str]


class EventTimes:
    """The times of a log, a block at a time: first `add` all, then `settle`, then `numbers`."""

    def __init__(self):
        self._kinds: set[str] = set()
        self._digits = 0  # after the point, without zeros at the end
        self._largest = 0  # of the absolute values' integer parts

    def add(self, times: pa.ChunkedArray, place: Place) -> None:
        """Learns of a block of times, which may have nulls.

        Raises:
            ValueError: a value is not a time; the message begins with its place.
        """
        times = _decimals_as_text(times)
        if times.null_count == len(times):
            return
        kind = _kind(times, place)
        self._kinds.add(kind)
        if kind == _INTEGERS:
            bounds = pc.min_max(times.cast(pa.int64())).as_py()
            self._largest = max(self._largest, *map(abs, bounds.values()))
        elif kind == _FRACTIONS:
            _, wholes, fractions = _parts(times)
            self._digits = max(self._digits, pc.max(pc.utf8_length(fractions)).as_py())
            try:
                largest = pc.max(wholes.cast(pa.int64())).as_py()
            except pa.ArrowInvalid:
                largest = 1 << 63
            self._largest = max(self._largest, largest)

    def settle(self, column: str) -> None:
        """Chooses the numbers that fit all times.

        Args:
            column: the name of the times in the files, for messages.

        Raises:
            ValueError: the log holds both numbers and timestamps, or two kinds of timestamps.
        """
        kinds = self._kinds - {_INTEGERS, _FRACTIONS, _FLOATS}
        if len(kinds) + bool(self._kinds - kinds) > 1:
            raise ValueError(
                f"{column} holds times of different kinds: expected one of numbers, timestamps and "
                f"timestamps with a zone, got {' and '.join(sorted(self._kinds))}; write all times "
                "in one way"
            )
        if self._kinds == {_FRACTIONS, _INTEGERS}:
            self._kinds = {_FRACTIONS}
        if self._kinds == {_FRACTIONS} and (self._largest + 1) * 10**self._digits > 1 << 63:
            self._kinds.add(_FLOATS)

    @property
    def is_float(self) -> bool:
        """True if the numbers are float64; then all times must pass `check_exact`."""
        return _FLOATS in self._kinds

    @property
    def dtype(self) -> pa.DataType:
        """The type of `numbers`."""
        return pa.float64() if self.is_float else pa.int64()

    def check_exact(self, times: pa.ChunkedArray, place: Place) -> None:
        """Checks that float64 represents a block of times without loss.

        Raises:
            ValueError: it does not represent one of them, which would equal another time.
        """
        times = _decimals_as_text(times)
        for row in _suspects(times):
            value = times[row].as_py()
            if Decimal(repr(float(value))) != Decimal(value):
                raise ValueError(
                    f"{place(row)} is {value}; expected times that fit into 64 bits, "
                    "without a loss of digits, in the unit of the last digit after the point of "
                    "all times (in float64 where a time has an exponent or is a floating-point "
                    "number); write all times with fewer digits"
                )

    def numbers(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """Returns a block of times without nulls as numbers of `dtype`."""
        times = _decimals_as_text(times)
        for kind, dtype in _TIMESTAMPS.items():
            if kind in self._kinds:
                return times.cast(dtype).cast(pa.int64())
        if self.is_float:
            return times.cast(pa.float64(), safe=False)
        if self._kinds <= {_INTEGERS}:
            return times.cast(pa.int64())
        if pa.types.is_integer(times.type):
            times = times.cast(pa.string())
        signs, wholes, fractions = _parts(times)
        digits = pc.utf8_rpad(fractions, self._digits, "0")
        return pc.binary_join_element_wise(signs, "0", wholes, digits, "").cast(pa.int64())


def _kind(times: pa.ChunkedArray, place: Place) -> str:
    """The first of the kinds that all of these times are of."""
    kinds = (_INTEGERS, _FRACTIONS, _FLOATS, *_TIMESTAMPS)
    for kind in kinds:
        if _are_of(times, kind):
            return kind
    before = None
    for row, value in enumerate(times):
        if not value.is_valid:
            continue
        single = pa.chunked_array([pa.array([value.as_py()])])
        kind = next((kind for kind in kinds if _are_of(single, kind)), None)
        if kind is None:
            raise ValueError(
                f"{place(row)} is {value.as_py()!r}; a time is a number or a timestamp like "
                "2014-07-23 or 2014-07-23 12:30:00, of the years 1678 to 2261, whose nanoseconds "
                "fit into 64 bits"
            )
        kind = kind if kind in _TIMESTAMPS else "numbers"
        if before not in (None, kind):
            raise ValueError(
                f"{place(row)} is {value.as_py()!r}, and times before it are {before}; write all "
                "times in one way"
            )
        before = kind
    raise AssertionError("numbers of all kinds are float64")


def _are_of(times: pa.ChunkedArray, kind: str) -> bool:
    types, is_text = pa.types, pa.types.is_string(times.type)
    if kind == _INTEGERS:
        if is_text and not _all_match(times, _WHOLE):  # Arrow also reads hexadecimal numbers
            return False
        return (is_text or types.is_integer(times.type)) and _casts(times, pa.int64())
    if kind == _FRACTIONS:
        return is_text and _all_match(times, _FRACTION)
    if kind == _FLOATS:
        is_float = is_text or types.is_floating(times.type)
        if not is_float or not _casts(times, pa.float64()):
            return False
        return pc.all(pc.is_finite(times.cast(pa.float64()))).as_py()
    return (is_text or types.is_temporal(times.type)) and _casts(times, _TIMESTAMPS[kind])


def _all_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py()


def _casts(values: pa.ChunkedArray, dtype: pa.DataType) -> bool:
    try:
        values.cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _parts(texts: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Signs, integer parts and fractions, without the zeros at the end of fractions."""
    parts = pc.extract_regex(texts, _PARTS)
    signs, wholes, fractions = (
        pc.struct_field(parts, name) for name in ("sign", "whole", "fraction")
    )
    wholes = pc.if_else(pc.equal(wholes, ""), "0", wholes)
    return [signs, wholes, pc.utf8_rtrim(fractions, "0")]


def _suspects(times: pa.ChunkedArray) -> list[int]:
    """Returns the numbers of the values that float64 may not represent without loss."""
    if pa.types.is_floating(times.type):
        return []
    if pa.types.is_integer(times.type):
        far = pc.greater_equal(pc.abs(times.cast(pa.float64(), safe=False)), _EXACT_INTEGERS)
    else:
        digits = pc.replace_substring_regex(times, r"[eE].*|[^0-9]|^[-.0]+", "")
        far = pc.greater(pc.utf8_length(digits), _EXACT_DIGITS)
    return pc.indices_nonzero(pc.fill_null(far, False)).to_pylist()


def _decimals_as_text(times: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_decimal(times.type):
        return times
    texts = [None if value is None else f"{value:f}" for value in times.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])
