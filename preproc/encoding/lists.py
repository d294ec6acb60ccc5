"""Columns of lists to flat values, `hotness` slots per row."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from preproc.encoding.arrow_columns import InvalidValue, plain, texts

SEPARATOR = ";"  # between the values of a list that is a text
_JSON_START = "["
# Arrays that Arrow can split: no strings with escapes, quotation marks or commas.
_ITEM = r'(?:"[^"\\,\x00-\x1f]*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false)'
_SIMPLE_JSON = rf"^\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*)?\s*\]$"
_LISTS = (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)


@dataclass(frozen=True)
class FlatValues:
    """Values of all rows.

    Attributes:
        values: `plain` values that exist, in the order of the rows.
        slots: ascending position of each in [num_rows * hotness]; None: one value per row.
        num_rows, hotness: rows, and slots of each.
        num_long: rows whose list has more than `hotness` values; only the first ones are here.
    """

    values: pa.Array
    slots: NDArray[np.int64] | None
    num_rows: int
    hotness: int
    num_long: int = 0

    def convert(self, function: Callable[[pa.Array], NDArray], padding: float = 0) -> NDArray:
        """Returns the converted values of all slots, flat; those without a value hold `padding`.

        Raises:
            InvalidValue: `index` is a slot.
        """
        try:
            converted = function(self.values)
        except InvalidValue as bad:
            if self.slots is not None and bad.index >= 0:
                bad.index = int(self.slots[bad.index])
            raise
        if self.slots is None:
            return converted
        result = np.full(self.num_rows * self.hotness, padding, converted.dtype)
        result[self.slots] = converted
        return result


def flatten(column: pa.Array | pa.ChunkedArray, hotness: int, missing: pa.Array) -> FlatValues:
    """Returns the values of a column; those of lists are padded or truncated to `hotness`.

    Lists are lists of Arrow and, where `hotness` is above 1, texts: JSON arrays, or values with
    `SEPARATOR` between them. A missing list has no values.

    Raises:
        InvalidValue: a text is not a valid list; `index` is a slot.
    """
    try:
        column = plain(column)
        if hotness > 1 and pa.types.is_string(column.type):
            column = _split(texts(column, missing))
    except InvalidValue as bad:
        bad.index *= hotness
        raise
    if not isinstance(column, _LISTS):
        slots = None if hotness == 1 else np.arange(len(column), dtype=np.int64) * hotness
        return FlatValues(column, slots, len(column), hotness)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    kept = np.minimum(lengths, hotness)
    values = column.flatten()  # without those of null lists
    rank = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
    num_long = int(np.count_nonzero(lengths > hotness))
    if num_long:
        values = values.take(pa.array(np.repeat(np.cumsum(lengths) - lengths, kept) + rank))
    slots = np.repeat(np.arange(len(column)) * hotness, kept) + rank
    try:
        values = plain(values)
    except InvalidValue as bad:
        bad.index = int(slots[bad.index])
        raise
    return FlatValues(values, slots, len(column), hotness, num_long)


def _split(column: pa.Array) -> pa.Array:
    """Returns texts as lists of texts."""
    if not pc.any(pc.starts_with(column, _JSON_START)).as_py():
        return pc.split_pattern(column, SEPARATOR)
    if pc.all(pc.match_substring_regex(column, _SIMPLE_JSON)).as_py():
        content = pc.utf8_trim(column, "[] \t\r\n")
        lists = pc.split_pattern(pc.if_else(pc.equal(content, ""), None, content), ",")
        values = pc.utf8_trim(pc.ascii_trim_whitespace(lists.values), '"')
        return pa.ListArray.from_arrays(lists.offsets, values, mask=lists.is_null())
    # Texts that repeat are parsed once.
    encoded = column.dictionary_encode()
    lists = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        if not text.startswith(_JSON_START):
            lists.append(text.split(SEPARATOR))
            continue
        try:
            lists.append(_json_texts(text))
        except ValueError:
            index = pc.index(encoded.indices, pa.scalar(number, encoded.indices.type)).as_py()
            rule = f"a JSON array of values, or values with '{SEPARATOR}' between them"
            raise InvalidValue(index, f"{text!r:.100}", rule) from None
    return pa.array(lists, pa.list_(pa.string())).take(encoded.indices)


def _json_texts(text: str) -> list[str | None]:
    """Returns the values of a JSON array as texts; numbers as they are written."""
    values = json.loads(text, parse_int=str, parse_float=str)
    if not all(value is None or isinstance(value, str | bool) for value in values):
        raise ValueError(text)
    return [str(value).lower() if isinstance(value, bool) else value for value in values]
