"""Metadata lines: objects with asin (parent_asin in 2023) and, as a rule, categories.

asin is non-empty text; categories (category in 2018) is a list of lists of names, each list a path,
or one path. The last name of the last list (or of the first one) is the item's category; an item
without such a name has no category. Lines are JSON, or Python literals as in the files of 2014:
{'asin': '1', 'price': None, ...}.
"""

import ast
import codecs
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from preproc.arguments import spelled_missing
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.engines.bad_lines import SKIP, BadLine, BadLines, check_bad_lines
from preproc.raw_files import gzip_errors, open_unpacked

ITEM = "asin"
CATEGORIES = ("categories", "category")  # the second one: 2018
SCHEMA = pa.schema([("item", pa.string()), ("item_0", pa.string())])
LAST_LIST, FIRST_LIST = "last", "first"
CATEGORY_LISTS = (LAST_LIST, FIRST_LIST)
_BATCH_ROWS = 1 << 16


def stage_metadata(
    file: Path,
    target: Path,
    on_bad_line: str,
    category_list: str = LAST_LIST,
    missing: tuple[str, ...] = MISSING_VALUES,
    item: str = ITEM,
) -> tuple[int, bool]:
    """Writes the good lines of a plain or gzip file to a Parquet file (item, item_0: the category).

    Args:
        on_bad_line: see `check_bad_lines`.
        category_list: the list of names that has the category, "last" or "first".
        missing: spellings of missing values: of the category, and not allowed as an item.
        item: key of the item.

    Returns:
        the number of bad lines, and whether an item has a category; empty lines mean nothing.

    Raises:
        ValueError: see `check_bad_lines`; or damaged gzip data.
    """
    bad, num_rows, has_category, rows = list[BadLine](), 0, False, []
    with (
        pq.ParquetWriter(target, SCHEMA) as writer,
        gzip_errors(file),
        open_unpacked(file) as source,
    ):
        for number, line in enumerate(source, 1):
            try:
                if text := _line_text(line, number):
                    rows.append(parse(text, category_list, item, missing))
                    num_rows += 1
                    has_category |= rows[-1][1] is not None
            except ValueError as error:
                bad.append(BadLine(0, number, number, str(error)))
                if on_bad_line != SKIP:
                    break
            if len(rows) == _BATCH_ROWS:
                writer.write_table(_table(rows))
                rows.clear()
        writer.write_table(_table(rows))
    check_bad_lines(BadLines(len(bad), tuple(bad[:1])), num_rows, [str(file)], on_bad_line)
    return len(bad), has_category


def _table(rows: list[tuple[str, str | None]]) -> pa.Table:
    items, categories = zip(*rows, strict=True) if rows else ((), ())
    return pa.table([items, categories], schema=SCHEMA)


def parse(
    line: str, category_list: str = LAST_LIST, item: str = ITEM, missing: Sequence[str] = ("",)
) -> tuple[str, str | None]:
    """Returns item and category of a line (None without one); raises ValueError with its fault."""
    fields = read_object(line)
    value = fields.get(item)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{item} is {_shown(fields, item)}; it must be text")
    if value.strip() in missing:
        raise ValueError(f"no {ITEM}{spelled_missing(value, missing)}")
    category = _last_name(fields, category_list) or ""
    return value, None if category.strip() in missing else category


def read_object(line: str) -> dict:
    """Returns the object in a line; raises ValueError with the line's fault."""
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as not_json:
        try:
            fields = ast.literal_eval(line)
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError(
                f"it is neither JSON nor a Python literal ({not_json}; {error})"
            ) from error
    if not isinstance(fields, dict):
        raise ValueError("it is JSON or a Python literal, but no object with braces around it")
    return fields


def _last_name(fields: dict, category_list: str) -> str | None:
    key = next((key for key in CATEGORIES if fields.get(key) is not None), None)
    if key is None:
        return None
    lists = fields[key]
    if isinstance(lists, list) and lists and all(isinstance(name, str) for name in lists):
        lists = [lists]
    is_right = isinstance(lists, list) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists
    )
    if not is_right:
        raise ValueError(
            f"{key} is {_shown(fields, key)}; it must be a list of names, or of lists of names"
        )
    names = lists[-1 if category_list == LAST_LIST else 0] if lists else ()
    if not names:
        return None
    return names[-1]


def _line_text(line: bytes, number: int) -> str:
    """Returns a line, the number-th, without blanks around it; raises ValueError if not UTF-8."""
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not UTF-8 text (byte {error.start + 1} is 0x{line[error.start]:02x})"
        ) from error


def _shown(fields: dict, name: str) -> str:
    """Returns a field for a message."""
    return f"{fields[name]!r:.60}" if name in fields else "missing"
