"""Columns of a CSV or Parquet file as values of a request, or what is wrong with the first one."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.table_input import values as transcode_values
from dataloading.table_input.values import SEPARATOR, BadValue
from deployment.serving.checks import unknown_ids_way_out
from deployment.serving.interface import UNKNOWN_IS_ZERO, Interface, ServedFeature

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_LARGEST_ID = np.iinfo(np.int64).max - 1  # that the reader takes

# How texts become ids, and what --input takes then.
ENCODED = (
    "`python -m dataloading.transcode --vocabulary DATA`, with the training's data set DATA, "
    "writes a folder of the training's ids, which --input takes"
)
_TEXTS = f"; of texts {ENCODED}"


class Column:
    """How the values of one feature are written, and become columns of a request."""

    def __init__(self, feature: ServedFeature, interface: Interface):
        self.feature = feature
        self._unknown_is_zero = interface.unknown_ids == UNKNOWN_IS_ZERO
        self._unknown_way_out = unknown_ids_way_out(interface)
        # Right-aligned, with id 0 in front.
        self._is_history = feature.input in interface.histories
        self._fill = 0 if self._is_history else -1
        self._is_of_any_length = self._is_history or feature.padded

    def values(self, column: pa.Array) -> np.ndarray:
        """Float32 numericals or int64 ids [rows, count].

        Raises:
          BadValue: `index` is a row, `rule` what is needed there.
        """
        count = self.feature.count
        if self._is_of_any_length:
            return self._aligned(column)
        try:
            flat = transcode_values.flat(column, count)
        except BadValue as bad:
            raise BadValue(bad.index, bad.found, self._needed) from None
        try:
            if self.feature.cardinality is None:
                return self._numericals(flat).reshape(-1, count)
            return self._ids(flat).reshape(-1, count)
        except BadValue as bad:
            bad.index //= count
            raise

    @property
    def _needed(self) -> str:
        """What a row's value must be."""
        feature = self.feature
        if feature.cardinality is None:
            return (
                "a finite number (write 0 or a mean for a missing value); float32 holds up to "
                f"{np.finfo(np.float32).max:g}"
            )
        if feature.count == 1 and not self._is_of_any_length:
            return f"an id as in training, of the {self._range}"
        most = "at most " if self._is_of_any_length else ""
        return (
            f"{most}{feature.count} ids as in training, {self._range}, as a list (in CSV with "
            f"'{SEPARATOR}' between them)"
        )

    @property
    def _range(self) -> str:
        last = _LARGEST_ID if self._unknown_is_zero else self.feature.cardinality - 1
        return f"whole numbers from 0 to {last}"

    def _numericals(self, values: pa.Array) -> np.ndarray:
        try:
            return transcode_values.numericals(values, np.float32)
        except BadValue as bad:
            raise BadValue(bad.index, bad.found, self._needed) from None

    def _ids(self, values: pa.Array) -> np.ndarray:
        """Int64 ids; of a BadValue `index` is among these values."""
        cardinality = self.feature.cardinality
        try:
            if not self._unknown_is_zero:
                return transcode_values.ids(values, cardinality)
            ids = transcode_values.ids(values, None)
        except BadValue as bad:
            needed = self._needed
            if self.feature.count > 1:  # how many there are is not what is wrong
                needed = f"ids as in training, {self._range}"
            if bad.found.isdecimal() and not self._unknown_is_zero:  # a number, and too large
                needed += self._unknown_way_out
            else:
                needed += _way_out(values[bad.index].as_py())
            raise BadValue(bad.index, bad.found, needed) from None
        return np.where(ids < cardinality, ids, 0)

    def _aligned(self, column: pa.Array) -> np.ndarray:
        """The same of lists of up to `count` ids, in a CSV file also none."""
        count = self.feature.count
        if pa.types.is_binary(column.type):
            # Nothing between two separators of a CSV file is a list of no ids.
            texts = pc.fill_null(transcode_values.flat(column, 1), "")
            column = pc.split_pattern(texts, SEPARATOR)
            column = pc.if_else(pc.equal(texts, ""), pa.scalar([], column.type), column)
        if not any(is_kind(column.type) for is_kind in _LISTS):
            raise BadValue(0, f"one {column.type}", self._needed)
        if column.null_count:
            raise BadValue(pc.index(column.is_null(), True).as_py(), "no list", self._needed)
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if lengths.max(initial=0) > count:
            row = np.argmax(lengths > count)
            raise BadValue(row, f"{lengths[row]} values", self._needed)
        ends = np.cumsum(lengths)
        try:
            ids = self._ids(column.flatten())
        except BadValue as bad:
            bad.index = int(np.searchsorted(ends, bad.index, side="right"))
            raise
        aligned = np.full((len(lengths), count), self._fill, np.int64)
        places = np.arange(count)
        first = (count - lengths)[:, None] if self._is_history else 0
        aligned[(places >= first) & (places < first + lengths[:, None])] = ids
        return aligned


def _way_out(value) -> str:
    """What to do about a value that is no id, where it is a text."""
    if not isinstance(value, str) or not value.strip() or value.strip().lstrip("+-").isdecimal():
        return ""
    try:
        float(value)
    except ValueError:
        return _TEXTS
    return ", written without a decimal point (17, not 17.0)"
