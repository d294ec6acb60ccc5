"""Metadata lines: objects with asin and, as a rule, categories.

asin is non-empty text; categories is a list of lists of names, each list a path. The last name of
the last list is the item's category; an item without such a name has no category. Lines are strict
JSON, or Python literals as in the files of 2014 (`literal_lines.py`).
"""

import pyarrow as pa

from preproc.amazon_books.lines import literal_lines
from preproc.amazon_books.lines.review_lines import check_text, json_object, shown, text_field

ITEM, CATEGORIES = "asin", "categories"
SCHEMA = pa.schema([("item", pa.string()), ("item_0", pa.string())])


def parse(line: str) -> tuple[str, str | None]:
    """Item and category of a line; None where it has no category, or an empty one.

    Raises:
        ValueError: it is not good.
    """
    values = literal_lines.parse_quickly(line)
    if values is None or not values[0]:
        fields = _object(line)
        values = text_field(fields, ITEM), _last_name(fields)
    item, category = values
    return item, category or None


def _object(line: str) -> dict:
    try:
        return json_object(line, (ITEM, CATEGORIES))
    except ValueError as not_json:
        try:
            value = literal_lines.parse(line)
        except ValueError as error:
            raise ValueError(
                f"it is neither JSON nor a Python literal ({not_json}; {error})"
            ) from error
    if not isinstance(value, dict):
        raise ValueError("it is a Python literal, but no dictionary")
    return value


def _last_name(fields: dict) -> str | None:
    lists = fields.get(CATEGORIES)
    if lists is None:
        return None
    is_right = isinstance(lists, list) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists
    )
    if not is_right:
        raise ValueError(
            f"{CATEGORIES} is {shown(fields, CATEGORIES)}; it must be a list of lists of names"
        )
    if not lists or not lists[-1]:
        return None
    check_text(CATEGORIES, lists[-1][-1])
    return lists[-1][-1]
