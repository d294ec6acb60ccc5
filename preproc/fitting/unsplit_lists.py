"""Texts that look like lists but are read as single values: other separators and brackets."""

from typing import NamedTuple

import ibis
import ibis.expr.types as ir

from preproc.engines.engine import Engine, fetch_row

SHARE = 0.2  # of the texts, that must have a separator
_BRACKETS = r"[\[\](){}'\"]"


class UnsplitLists(NamedTuple):
    """Lists in texts: the most frequent text with several values, and the number of different
    values in all of them."""

    example: str
    num_values: int


def bracketed(texts: ir.StringValue) -> ir.BooleanValue:
    """Returns whether each text has brackets around it."""
    starts = texts.startswith("[") | texts.startswith("{") | texts.startswith("(")
    return starts & (texts.endswith("]") | texts.endswith("}") | texts.endswith(")"))


def separators(texts: ir.StringValue) -> dict[str, ir.BooleanValue]:
    """Returns separator -> whether each text may be a list with it; the first one wins."""
    return {
        "|": texts.contains("|"),
        ",": texts.contains(","),
        " ": bracketed(texts) & texts.contains(" "),
    }


def unsplit_lists(
    engine: Engine, counts: ir.Table, value: str, count: str, separator: str, is_sure: bool
) -> UnsplitLists | None:
    """Returns what lists with a separator hold; None: the texts are single values.

    Args:
        counts: different texts in the column `value`, and their rows in the column `count`.
        is_sure: whether the texts are lists if they have no more values than combinations; names
            such as `Zug, ZG` have a comma, too, but the values of lists repeat.
    """
    texts = counts[value]
    # `split` is Spark's SPLIT, for which "|" is a regular expression.
    parts = texts.re_replace(_BRACKETS, "").re_split(f"[{separator}]")
    values = counts.select(value=parts.unnest())
    num_values = fetch_row(engine, values.agg(number=values.value.strip().nunique()))["number"]
    num_texts = fetch_row(engine, counts.agg(number=texts.count()))["number"]
    if num_values * (1 if is_sure else 2) > num_texts:
        return None
    first = counts.filter(separators(texts)[separator]).order_by([ibis.desc(count), value])
    ((example,),) = (row.values() for row in engine.fetch(first.limit(1).select(value)).to_pylist())
    return UnsplitLists(example, num_values)
