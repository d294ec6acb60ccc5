"""Plan as text: a line per rank, totals, imbalance, the network, the shards of each rank."""

from collections.abc import Sequence

from distributed_embeddings.planner.estimators import RankCost, imbalance
from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.traffic import (
    COPIES,
    DENSE,
    GRADIENTS,
    IDS,
    VECTORS,
    RankTraffic,
    traffic,
)
from distributed_embeddings.planner.types import HOST, Shard

_SHOWN_SHARDS = 24  # of one rank

# Of one rank, Gbit/s per direction: Ethernet, Ethernet, InfiniBand HDR, NVLink of an A100. Nominal;
# a program gets less.
_LINKS = (10, 100, 200, 2400)
_HEADINGS = (
    *("rank", "shards", "rows", "columns", "weights", "state", "on device", "on host"),
    *("ids", "vectors", "gradients", "all-reduce", "work"),
)


def format_bytes(size_bytes: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.4g} TiB"


def report(
    plan: Plan,
    max_ranks: int = 32,
    *,
    ranks_per_machine: int | None = None,
    dense_bytes: float | None = None,
) -> str:
    """Returns a plan as text.

    Args:
        max_ranks: Ranks to show at most; totals and imbalance include all.
        ranks_per_machine: Consecutive ranks that share a machine, of which the last may have fewer;
            None: one machine has all.
        dense_bytes: Gradients of all weights that are not in tables; None: unknown.

    Raises:
        ValueError: ranks_per_machine below 1.
    """
    costs = plan.costs
    sent = traffic(plan, ranks_per_machine=ranks_per_machine, dense_bytes=dense_bytes or 0)
    works = [_work_s(plan, *pair) for pair in zip(costs, sent, strict=True)]

    def cells(rank: int, note: str = "") -> tuple[str, ...]:
        return _cells(f"{rank}{note}", [costs[rank]], [sent[rank]], [works[rank]])

    shown = range(min(max_ranks, plan.world_size))
    rows = [_HEADINGS, *map(cells, shown)]
    if len(shown) < plan.world_size:
        rows.append(("...",) + ("",) * (len(_HEADINGS) - 1))
        fullest = max(costs, key=lambda c: (c.memory_bytes, -c.rank))
        rows.append(cells(fullest.rank, " (fullest)"))
    rows.append(_cells("all", costs, sent, works))
    lines = [*_heading(plan), *_aligned(rows)]
    lines.append(
        f"imbalance (max / mean): memory {imbalance([c.memory_bytes for c in costs]):.3f}, "
        f"device memory {imbalance([c.device_bytes for c in costs]):.3f}, "
        f"all-to-all bytes sent {imbalance(list(map(_all_to_all, sent))):.3f}, "
        f"work {imbalance(works):.3f}"
    )
    dense = "" if dense_bytes is None else " and of the dense layers"
    lines.append(
        "bytes per step that the rank sends to others: ids and vectors (forward), gradients "
        f"(backward), all-reduce (gradients of copied tables{dense}); work: estimated ms of "
        "lookups and exchange"
    )
    if plan.world_size > 1:
        lines += _network(plan, sent, ranks_per_machine)
        lines[-1] += "" if dense else "; without gradients of the dense layers"
    lines += _named("on every rank", plan, plan.data_parallel_tables, "data-parallel")
    lines += _named("rows on every rank", plan, plan.row_sliced_tables, "row-sliced")
    for rank in shown:
        lines.append(f"rank {rank}: {_shard_names(plan, plan.table_shards[rank])}")
    return "\n".join(lines)


def _heading(plan: Plan) -> list[str]:
    w, limits = plan.workload, plan.limits
    tables = range(len(w.tables))
    weights = sum(w.weight_bytes(t, w.tables[t].rows, w.tables[t].dim) for t in tables)
    state = sum(w.state_bytes(w.tables[t].rows, w.tables[t].dim) for t in tables)
    elements = sum(table.num_elements for table in w.tables)
    lines = [
        f"{len(tables)} tables, {len(w.features)} features, {elements:,} parameters: "
        f"{format_bytes(weights)} of weights, {format_bytes(state)} of optimizer state "
        f"on {plan.world_size} ranks, strategy {plan.strategy}, "
        f"global batch {w.global_batch_size:,}"
    ]
    if plan.memory_note:
        lines.append(plan.memory_note)
    elif limits.device_memory_bytes is not None:
        line = f"device memory for tables: {format_bytes(limits.device_memory_bytes)} per rank"
        if limits.host_memory_bytes is not None:
            line += f"; host memory: {format_bytes(limits.host_memory_bytes)} per rank"
        lines.append(line)
    return lines


def _work_s(plan: Plan, c: RankCost, t: RankTraffic) -> float:
    """Time of lookups and exchange of a rank's tables, for the samples of all ranks."""
    exchanged = t.received(IDS) + t.sent(VECTORS) + t.received(GRADIENTS) + t.sent(COPIES)
    return c.lookup_s + exchanged / plan.workload.hardware.exchange_bytes_per_s


def _all_to_all(t: RankTraffic) -> float:
    return sum(map(t.sent, (IDS, VECTORS, GRADIENTS)))


def _network(plan: Plan, sent: Sequence[RankTraffic], ranks_per_machine: int | None) -> list[str]:
    """Bytes over a rank's link in the busier direction, and their minimum time."""
    note = "bytes that a rank sends, or receives if that is more; ms at the speed of its own link"
    rows = [("network, per step", "mean", "largest", *(f"{speed:,} Gbit/s" for speed in _LINKS))]
    links = [("between ranks", [t.busiest_direction for t in sent])]
    if ranks_per_machine is not None and ranks_per_machine < plan.world_size:
        name = f"between machines of {_ranks(ranks_per_machine)}"
        if rest := plan.world_size % ranks_per_machine:
            name += f", the last of {rest}"
        links.append((name, [t.busiest_direction_between for t in sent]))
    elif ranks_per_machine is not None:
        count = plan.world_size
        note += f"; one machine has {'both' if count == 2 else f'all {count}'} ranks"
    for name, sizes in links:
        largest = max(sizes)
        times = (f"{largest * 8 / (speed * 1e9) * 1e3:.3g} ms" for speed in _LINKS)
        mean = format_bytes(sum(sizes) / len(sizes))
        rows.append((name, mean, format_bytes(largest), *times))
    lines = _aligned(rows)
    if plan.row_sliced_tables:
        note += "; row slices as if ids were uniform (skewed ones repeat, and send less)"
    return [*lines, note]


def _ranks(count: int) -> str:
    return f"{count:,} rank" + ("s" if count > 1 else "")


def _cells(
    name: str, costs: Sequence[RankCost], sent: Sequence[RankTraffic], works_s: Sequence[float]
) -> tuple[str, ...]:
    """Returns a row of the table, summed over ranks."""
    counts = [sum(getattr(c, name) for c in costs) for name in ("num_shards", "rows", "columns")]
    sizes = ("weight_bytes", "state_bytes", "device_bytes", "host_bytes")
    kinds = ((IDS,), (VECTORS,), (GRADIENTS,), (COPIES, DENSE))
    return (
        name,
        *(f"{count:,}" for count in counts),
        *(format_bytes(sum(getattr(c, name) for c in costs)) for name in sizes),
        *(format_bytes(sum(t.sent(kind) for t in sent for kind in some)) for some in kinds),
        f"{1000 * sum(works_s):.3f}",
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _named(label: str, plan: Plan, tables: tuple[int, ...], kind: str) -> list[str]:
    if not tables:
        return []
    return [f"{label} ({kind}): {_listed([plan.tables[t].name for t in tables])}"]


def _shard_names(plan: Plan, shards: tuple[Shard, ...]) -> str:
    if not shards:
        return "no table-parallel shard"
    texts = []
    for s in shards:
        table = plan.tables[s.table]
        text = table.name
        if s.columns < table.dim:
            text += f"[:, {s.column_start}:{s.column_end}]"
        texts.append(text + (" (host)" if s.device == HOST else ""))
    return _listed(texts)


def _listed(texts: list[str]) -> str:
    more = len(texts) - _SHOWN_SHARDS
    return ", ".join(texts[:_SHOWN_SHARDS]) + (f" and {more} more" if more > 0 else "")
