"""Lines of strict JSON -> Parquet with Arrow's own parser, some megabytes at a time.

It is only sure of good lines. Where any line may not be one (`review_lines.py` and
`metadata_lines.py` say which are) it gives up, and somebody slower looks at each.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from preproc.amazon_books.lines import metadata_lines, review_lines
from preproc.raw_files import BYTE_ORDER_MARK

_BLOCK_BYTES = 32 << 20  # of lines that are read at a time, a row group
_PART_BYTES = 4 << 20  # of these, what a thread parses at a time
_REVIEW = pa.schema(
    [
        (review_lines.USER, pa.string()),
        (review_lines.ITEM, pa.string()),
        (review_lines.TIME, pa.int64()),
    ]
)
_METADATA = pa.schema(
    [
        (metadata_lines.ITEM, pa.string()),
        (metadata_lines.CATEGORIES, pa.list_(pa.list_(pa.string()))),
    ]
)


def stage_reviews(source: Path, target: Path) -> bool:
    """Makes a Parquet file of `review_lines.SCHEMA` of a plain file.

    Returns:
        False, and it does not matter what `target` is, if a line may not be a good one.
    """
    return _stage(source, target, _REVIEW, review_lines.SCHEMA, _events)


def stage_metadata(source: Path, target: Path) -> bool:
    """Likewise, of `metadata_lines.SCHEMA`; Python literals are not for this reader."""
    return _stage(source, target, _METADATA, metadata_lines.SCHEMA, _categories)


def _stage(
    source: Path, target: Path, fields: pa.Schema, schema: pa.Schema, columns: Callable
) -> bool:
    """columns: a table of the fields -> the columns of the file, or None where a line is bad."""
    parsing = pa_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    reading = pa_json.ReadOptions(block_size=_PART_BYTES)
    with pq.ParquetWriter(target, schema) as writer:
        for block in _blocks(source):
            try:
                parsed = pa_json.read_json(pa.BufferReader(block), reading, parsing)
                parsed.validate(full=True)  # above all that text is UTF-8
            except (pa.ArrowInvalid, UnicodeDecodeError):
                return False
            found = columns(parsed.combine_chunks())
            if found is None or len(parsed) != _num_lines(block):
                return False
            writer.write_table(pa.Table.from_arrays(found, schema=schema))
    return True


def _blocks(plain: Path) -> Iterator[bytes]:
    """Whole lines, some at a time, without a byte order mark, and without space at the end; a part
    of a line that is longer than a block."""
    with open(plain, "rb") as file:
        rest = file.read(_BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
        while rest:
            more = file.read(_BLOCK_BYTES)
            cut = (rest.rfind(b"\n") + 1 if more else 0) or len(rest)
            block = rest[:cut].rstrip(b" \t\r\n")
            if block:
                yield block
            rest = rest[cut:] + more


def _num_lines(block: bytes) -> int | None:
    """How many lines there are if each begins with an opening brace and ends with a closing one.

    Arrow's parser cares about objects and not about lines. With as many objects as such lines, each
    line is an object: no object goes on behind a line's end, as a comma would have to be there.
    """
    text = np.frombuffer(block, np.uint8)
    line_feeds = np.flatnonzero(text == ord("\n"))
    first = np.concatenate([[0], line_feeds + 1])
    last = np.concatenate([line_feeds, [len(text)]]) - 1
    last -= text[last] == ord("\r")
    is_object = (text[first] == ord("{")) & (text[last] == ord("}"))
    return len(first) if is_object.all() else None


def _events(fields: pa.Table) -> list[pa.Array] | None:
    users, items, times = (column.combine_chunks() for column in fields.columns)
    is_good = _is_named(users) and _is_named(items) and not times.null_count
    return [users, items, times] if is_good else None


def _categories(fields: pa.Table) -> list[pa.Array] | None:
    """Items and the last names of their last lists, null where there is none or an empty one."""
    items, lists = (column.combine_chunks() for column in fields.columns)
    paths = lists.flatten()
    names = paths.flatten()
    if not _is_named(items) or paths.null_count or names.null_count:
        return None
    last = _last(lists, _last(paths, names))
    return [items, pc.if_else(pc.equal(last, ""), None, last)]


def _is_named(values: pa.Array) -> bool:
    """Whether there is text everywhere."""
    return not values.null_count and not pc.any(pc.equal(values, "")).as_py()


def _last(lists: pa.ListArray, elements: pa.Array) -> pa.Array:
    """The last element of each list, null where there is none.

    elements: the lists' own, or something else in their places.
    """
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    is_empty = pc.equal(pc.fill_null(pc.list_value_length(lists), 0), 0)
    return elements.take(pc.if_else(is_empty, None, pc.subtract(ends, 1)))
