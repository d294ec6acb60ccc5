"""Means, deviations and quantiles of numbers, exact and equal on every engine."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import ibis
import ibis.expr.types as ir

from preproc.engines.engine import Engine, fetch_row
from preproc.fitting.expressions import lists, number
from preproc.fitting.infer import COUNT, VALUE

_BITS = 30  # of a standard deviation, to which means are rounded


class Moments(NamedTuple):
    """Number of values in train, their mean, population standard deviation, least and most."""

    count: int
    mean: float = 0.0
    deviation: float = 0.0
    least: float = 0.0
    most: float = 0.0


def numbers_of(
    engine: Engine, counts: ir.Table, missing: Sequence[str], list_form: str = ""
) -> ir.Table:
    """Returns a table, stored as `numbers`, of the different numbers in train (`x`) and how often
    they occur (`n`).

    Args:
        counts: of `infer.count_values`.
        list_form: see `expressions.lists`; empty for single values.
    """
    value = counts[VALUE]
    value = lists(value, list_form, tuple(missing)).unnest() if list_form else value
    rows = counts.select(value=value, n=counts[COUNT])
    rows = finite(rows.select(x=number(rows.value, tuple(missing)), n=rows.n))
    return engine.store_table(rows.group_by("x").agg(n=rows.n.sum()), "numbers")


def finite(numbers: ir.Table) -> ir.Table:
    """Returns the rows whose `x` is a number; infinite ones are errors when they are encoded."""
    return numbers.filter(numbers.x.notnull() & ~numbers.x.isinf())


def moments(engine: Engine, numbers: ir.Table, log: bool = False) -> Moments:
    """Returns mean and deviation of `numbers_of`; `log`: of their signed log1p.

    Engines add in different orders. The mean is rounded to 2^-30 of the deviation, so that they
    agree on it; the float32 that a model gets is coarser.
    """
    x = numbers.x.cast("float64")
    if log:
        x = numbers.x.sign().cast("float64") * (numbers.x.abs() + 1).ln()
    rows = numbers.select(x=x, n=numbers.n)
    first = fetch_row(engine, rows.agg(count=rows.n.sum(), least=rows.x.min(), most=rows.x.max()))
    if not first["count"]:
        return Moments(0)
    ends = first["least"], first["most"]
    if ends[0] == ends[1]:
        return Moments(first["count"], ends[0], 0.0, *ends)
    # Relative to a value near them, so that a small deviation around a large mean is exact, and to
    # a power of two, so that squares are finite.
    middle = ends[0] / 2 + ends[1] / 2
    unit = 2.0 ** (math.frexp(ends[1] / 2 - ends[0] / 2)[1] - 1)
    x = (rows.x - middle) / unit
    offset = fetch_row(engine, rows.agg(sum=(x * rows.n).sum()))["sum"] / first["count"]
    squares = fetch_row(engine, rows.agg(sum=((x - offset) ** 2 * rows.n).sum()))["sum"]
    mean, deviation = middle + unit * offset, unit * math.sqrt(squares / first["count"])
    step = 2.0 ** (math.frexp(deviation)[1] - _BITS)
    rounded = round(mean / step) * step if math.isfinite(mean / step) else mean
    return Moments(first["count"], rounded, round(deviation / step) * step, *ends)


def few_values(engine: Engine, numbers: ir.Table, most: int) -> tuple[float, ...]:
    """Returns the different values of `numbers_of`, ascending; none of more than `most`."""
    rows = engine.fetch(numbers.order_by("x").limit(most + 1).select("x"))
    return tuple(map(float, rows["x"].to_pylist())) if len(rows) <= most else ()


def quantiles(engine: Engine, numbers: ir.Table, num_steps: int) -> list[float]:
    """Returns num_steps + 1 values at equally spaced ranks of `numbers_of`, the least first."""
    count = fetch_row(engine, numbers.agg(count=numbers.n.sum()))["count"]
    if not count:
        return []
    last = max(count - 1, 1)
    window = ibis.cumulative_window(order_by=numbers.x)
    ranked = numbers.mutate(end=numbers.n.sum().over(window).cast("int64"))
    ranked = ranked.mutate(step=((ranked.end - ranked.n) * num_steps + last - 1) // last)
    ranked = ranked.filter(ranked.step * last < ranked.end * num_steps).order_by("x")
    rows = engine.fetch(ranked.select("x", "step", "end")).to_pylist()
    values: list[float] = []
    for row in rows:
        step = row["step"]
        while step <= num_steps and step * last < row["end"] * num_steps:
            values.append(row["x"])
            step += 1
    return values + [values[-1]] * (num_steps + 1 - len(values))
