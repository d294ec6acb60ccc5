"""Facts of a raw column: texts, whole numbers or numbers, and the number of different values."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.table_input import values as transcode_values
from dataloading.table_input.values import SEPARATOR

MOST_DIFFERENT = 1000  # different values that are counted
_WHOLE = r"^[+-]?\d{1,15}(\.0+)?$"
# Numbers that are codes: with leading zeros, or longer than float64 can hold exactly.
_CODE = r"^[+-]?(0\d|\d{16})"


@dataclass
class ColumnFacts:
    """Facts of a column, from the blocks seen so far."""

    rows: int = 0
    missing: int = 0
    is_text: bool = False
    is_number: bool = True
    is_whole: bool = True
    other_type: str = ""
    separators: set[int] = field(default_factory=set)
    different: set = field(default_factory=set)

    def add(self, column: pa.Array) -> None:
        """Takes in the values of a block."""
        self.rows += len(column)
        if any(kind(column.type) for kind in (pa.types.is_list, pa.types.is_fixed_size_list)):
            self._add_lists(column)
            return
        values = transcode_values.flat(column, 1)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            values = transcode_values.without_empty(values)
        elif pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        elif not pa.types.is_null(values.type) and not transcode_values.is_number(values):
            self.other_type = str(values.type)
            return
        present = values.drop_null()
        self.missing += len(values) - len(present)
        if not len(present):
            return
        if pa.types.is_string(present.type) or pa.types.is_large_string(present.type):
            self._add_texts(present)
        elif pa.types.is_boolean(present.type):
            self.is_text = True
        elif not pa.types.is_integer(present.type):
            numbers = present.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            self.is_whole &= bool((numbers == np.floor(numbers)).all())
        self._note_different(present)

    def _add_texts(self, present: pa.Array) -> None:
        counts = pc.min_max(pc.count_substring(present, SEPARATOR)).as_py()
        self.separators |= set(counts.values())
        if self.is_text:
            return
        self.is_text = pc.any(pc.match_substring_regex(present, _CODE)).as_py()
        self.is_whole &= pc.all(pc.match_substring_regex(present, _WHOLE)).as_py()
        try:
            present.cast(pa.float64())
        except pa.ArrowInvalid:
            self.is_text = True

    def _add_lists(self, column: pa.Array) -> None:
        self.is_text = True
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        self.separators |= {length - 1 for length in pc.unique(lengths).to_pylist()}
        if len(self.separators) > 1:
            self.other_type = "lists of different lengths"
        self._note_different(column.flatten().drop_null())

    def _note_different(self, present: pa.Array) -> None:
        if len(self.different) <= MOST_DIFFERENT:
            self.different.update(pc.unique(present).to_pylist()[: MOST_DIFFERENT + 1])

    @property
    def hotness(self) -> int:
        """Values per row, where each row has the same number of them."""
        if len(self.separators) != 1 or self.missing:
            return 1
        return next(iter(self.separators)) + 1

    def described(self) -> str:
        """The facts, for people."""
        if not self.different:
            return "no value"
        count = len(self.different)
        different = f"more than {MOST_DIFFERENT:,}" if count > MOST_DIFFERENT else f"{count:,}"
        kind = "text" if self.is_text else "whole numbers" if self.is_whole else "numbers"
        share = f", {self.missing / self.rows:.2%} missing" if self.missing else ""
        return f"{kind}, {different} different{share}"
