"""Division of the rows of one raw split into train, validation and test.

A row's split depends on its number or its time alone, not on files or engines; that of an
interaction on the number of the first row with its user and item.
"""

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import ibis
import ibis.expr.types as ir

from dataloading.spec import rules
from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.engines.engine import ROW, Engine, count_rows, fetch_row
from preproc.events.times import time_number
from preproc.fitting.expressions import HASH_RANGE, hashed, text

DEFAULT_SHARES = "0.8,0.1,0.1"
_SPLITS = (TRAIN, VALIDATION, TEST)
_TOLERANCE = 1e-6  # of the sum of the shares


def parse_shares(text: str) -> dict[str, float]:
    """Returns the shares above 0 of train, validation and test, from text such as 0.8,0.1,0.1."""
    shares: list[float] = []
    with contextlib.suppress(ValueError):
        shares = [float(part) for part in text.split(",")]
    valid = len(shares) == len(_SPLITS) and all(share >= 0 for share in shares)
    if not valid or abs(sum(shares) - 1) > _TOLERANCE or not 0 < shares[0] < 1:
        raise ValueError(
            f"--split is '{text}'; expected three shares, of train, validation and test, that are "
            f"0 or more and add up to 1, e.g. {DEFAULT_SHARES}; 0 leaves a split out, but not train"
        )
    return {name: share for name, share in zip(_SPLITS, shares, strict=True) if share}


class SplitRequest(NamedTuple):
    """Shares of the splits, drawn at random, or in the order of a column of times."""

    shares: dict[str, float]
    seed: int = 0
    column: str | None = None

    @property
    def remedy(self) -> str:
        """Solutions where a split has no row."""
        if self.column is None:
            return "a larger share for it, more rows, or another --split_seed"
        return (
            f"a larger share for it, or a column with more different times than '{self.column}': "
            "rows of one time are not divided"
        )


def split_numbers(
    engine: Engine,
    table: ir.Table,
    request: SplitRequest,
    missing: tuple[str, ...],
    origin: str,
    pair: Sequence[str] = (),
) -> ir.IntegerValue:
    """Returns the number of the split of each row of a table, in the order of the shares.

    Args:
        pair: columns of user and item; all rows of a pair get one random split.

    Raises:
        ValueError: the column does not exist, or a value is missing or not a time.
    """
    bounds = list(itertools.accumulate(request.shares.values()))[:-1]
    if request.column is None:
        row = table[ROW]
        if pair:
            row = row.min().over(ibis.window(group_by=[text(table[n], missing) for n in pair]))
        drawn = hashed(row, request.seed)
        return _number([drawn < math.floor(bound * HASH_RANGE + 0.5) for bound in bounds])
    if request.column not in table.columns:
        raise ValueError(
            f"--split_by_time {request.column}: expected a column of {origin}, which has "
            f"{rules.listing(name for name in table.columns if not name.startswith('__'))}"
        )
    times = _times(engine, table, request.column, missing)
    ordered = table.select(time=times).order_by("time")
    num_rows = count_rows(engine, table)
    last = [max(1, math.floor(bound * num_rows + 0.5)) - 1 for bound in bounds]
    ends = [fetch_row(engine, ordered.limit(1, offset=offset))["time"] for offset in last]
    return _number([times <= end for end in ends])


def _times(
    engine: Engine, table: ir.Table, column: str, missing: tuple[str, ...]
) -> ir.NumericValue:
    """Returns the time of each row as a number; raises ValueError where it is missing."""
    values, title = table[column], f"--split_by_time {column}"
    if values.type().is_string():
        values = text(values, missing)
    elif values.type().is_nested():
        raise ValueError(f"{title}: expected times, got a column of {values.type()}")

    def first(condition: ir.BooleanValue) -> tuple[int, str, object] | None:
        rows = table.select(ROW, value=table[column], is_bad=condition)
        for row in engine.fetch(rows.filter(rows.is_bad).order_by(ROW).limit(1)).to_pylist():
            return row[ROW], engine.place(table, row[ROW], column), row["value"]
        return None

    if absent := first(values.isnull()):
        raise ValueError(f"{absent[1]}: {title}: expected a time, got no value")
    return time_number(engine, table, values, title, first)


def _number(conditions: list[ir.BooleanValue]) -> ir.IntegerValue:
    branches = [(condition, number) for number, condition in enumerate(conditions)]
    return ibis.cases(*branches, else_=len(branches))
