"""Order of events of one user at one time.

It is that of the rows of the log, unless the log has such events in an order that follows from
their items: sorted by item, or by a property of items. The last event of a user, which is held out,
would be predictable from the item alone. Their order is a hash of their rows then.
"""

import ibis
from ibis.expr import types as ir

from preproc.checks.equal_times import TiedEvents
from preproc.engines.engine import Engine, count_rows, fetch_row
from preproc.fitting.expressions import hashed

ROW, TIE_ORDER = "row", "tie_order"  # columns of events
SAMPLE_EVENTS = 200_000
_HASH_STEP = 1 << 32  # between the orders of two hashes: no log has more rows


def order_ties(engine: Engine, events: ir.Table, seed: int) -> tuple[ir.Table, TiedEvents]:
    """Returns events with `tie_order`, by which events of one user and time are sorted.

    Args:
        events: a stored table: user, item, time, and row, the number of the row in the log.
    """
    ties = measure_ties(engine, events)
    order = events[ROW]
    if ties.of_items:
        order = hashed(order, seed) * _HASH_STEP + order
    return events.select("user", "item", "time", **{TIE_ORDER: order.cast("int64")}), ties


def measure_ties(engine: Engine, events: ir.Table) -> TiedEvents:
    """Measures the ties of events; of a large log, those of a sample, the same on every engine."""
    num_events = count_rows(engine, events)
    step = max(1, -(-num_events // SAMPLE_EVENTS))
    tied = events
    if step > 1:
        sampled = events.filter(events[ROW] % step == 0)
        tied = events.semi_join(sampled, ["user", "time"]).select("user", "item", "time", ROW)
    rows = ibis.window(group_by=["user", "time"], order_by=ROW)
    size = tied.count().over(ibis.window(group_by=["user", "time"]))
    neighbours = tied.select(
        "item",
        size=size,
        before=tied.item.lag().over(rows),
        place=2 * ibis.row_number().over(rows) + 1 - size,  # 0 in the middle
        is_sampled=tied[ROW] % step == 0,
    )
    neighbours = engine.store_table(neighbours, "ties")
    counts = fetch_row(
        engine,
        neighbours.aggregate(
            events=neighbours.is_sampled.sum(),
            tied=(neighbours.is_sampled & (neighbours["size"] > 1)).sum(),
            pairs=(neighbours.item != neighbours.before).sum(),
            ascending=(neighbours.item > neighbours.before).sum(),
        ),
    )
    counts |= _predicted(engine, neighbours)
    return TiedEvents(**{name: int(count or 0) for name, count in counts.items()})


def _predicted(engine: Engine, neighbours: ir.Table) -> dict[str, int]:
    """Counts pairs whose order follows from the places of their items in all other ties."""
    tied = neighbours.filter(neighbours["size"] > 1)
    places = tied.group_by("item").aggregate(total=tied.place.sum(), num=tied.count() - 1)
    earlier = places.select(before="item", total_before="total", num_before="num")
    pairs = tied.filter(tied.item != tied.before).select("item", "before", "place")
    each = pairs.join(places, "item").join(earlier, "before")
    # Mean places of the two items, each times both numbers of ties.
    later = (each.total - each.place) * each.num_before
    sooner = (each.total_before - each.place + 2) * each.num
    is_known = (each.num > 0) & (each.num_before > 0)
    return fetch_row(
        engine,
        each.aggregate(
            predictable=(is_known & (later != sooner)).sum(),
            predicted=(is_known & (later > sooner)).sum(),
        ),
    )
