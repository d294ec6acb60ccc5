"""Review lines: JSON objects with reviewerID, asin and unixReviewTime.

The first two are non-empty strings, the third is an integer of 64 bits. Other fields are ignored,
but must be JSON: no comma after the last element; NaN, Infinity and -Infinity are accepted.
"""

import json
from collections.abc import Collection

import pyarrow as pa

USER, ITEM, TIME = "reviewerID", "asin", "unixReviewTime"
SCHEMA = pa.schema([("user", pa.string()), ("item", pa.string()), ("time", pa.int64())])


def parse(line: str) -> tuple[str, str, int]:
    """User, item and time of a line.

    Raises:
        ValueError: it is not good.
    """
    fields = json_object(line, (USER, ITEM, TIME))
    time = fields.get(TIME)
    if not isinstance(time, int) or isinstance(time, bool) or not -(1 << 63) <= time < 1 << 63:
        raise ValueError(f"{TIME} is {shown(fields, TIME)}; it must be an integer of 64 bits")
    return text_field(fields, USER), text_field(fields, ITEM), time


class _Pairs(tuple):
    """A JSON object as its keys and values; no list, which is what a JSON array becomes."""


def json_object(line: str, wanted: Collection[str]) -> dict:
    """A line of strict JSON as what it stands for.

    Raises:
        ValueError: it is not a JSON object, or a wanted key is there twice.
    """
    try:
        pairs = json.loads(line, object_pairs_hook=_Pairs)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(pairs, _Pairs):
        raise ValueError("it is JSON, but no object with braces around it")
    names = [name for name, _ in pairs]
    for name in wanted:
        if names.count(name) > 1:
            raise ValueError(f"{name} is there twice")
    return dict(pairs)


def text_field(fields: dict, name: str) -> str:
    """A field that must be text, and not empty.

    Raises:
        ValueError: it is not.
    """
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {shown(fields, name)}; it must be text")
    check_text(name, value)
    return value


def check_text(name: str, value: str) -> None:
    """Raises ValueError for text that has no UTF-8 form: half of a pair of surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} has half a character ({error.reason})") from error


def shown(fields: dict, name: str) -> str:
    """A field for a message."""
    text = repr(fields[name]) if name in fields else "missing"
    return text if len(text) <= 60 else text[:60] + "..."
