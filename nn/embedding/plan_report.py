"""A plan as text, and what to say when there is none."""

from typing import TYPE_CHECKING

from nn.embedding.plan_cost import RankCost, imbalance
from nn.embedding.plan_parts import HOST, Shard

if TYPE_CHECKING:
    from nn.embedding.plan_layout import Plan

_SHOWN_SHARDS = 24  # of one rank
_HEADINGS = (
    "rank",
    "shards",
    "rows",
    "columns",
    "weights",
    "state",
    "on device",
    "on host",
    "ids",
    "vectors",
    "gradients",
    "all-reduce",
    "work",
)


def format_bytes(size_bytes: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.4g} TiB"


def report(plan: "Plan", max_ranks: int) -> str:
    costs = plan.costs
    shown = list(range(min(max_ranks, plan.world_size)))
    rows = [_HEADINGS, *(_cells(f"{rank}", costs[rank]) for rank in shown)]
    if len(shown) < plan.world_size:
        rows.append(("...",) + ("",) * (len(_HEADINGS) - 1))
        fullest = max(costs, key=lambda c: (c.memory_bytes, -c.rank))
        rows.append(_cells(f"{fullest.rank} (fullest)", fullest))
    rows.append(_totals(costs))
    lines = _heading(plan)
    lines += _aligned(rows)
    lines.append(
        f"imbalance (max / mean): memory {imbalance([c.memory_bytes for c in costs]):.3f}, "
        f"device memory {imbalance([c.device_bytes for c in costs]):.3f}, "
        f"all-to-all bytes sent {imbalance([c.alltoall_bytes for c in costs]):.3f}, "
        f"work {imbalance([c.work_s for c in costs]):.3f}"
    )
    lines.append(
        "ids, vectors, gradients: all-to-all bytes a step that the rank sends to others (ids and "
        "vectors forward, gradients backward); work: estimated ms of look-ups and exchange"
    )
    lines += _named("on every rank", plan, plan.data_parallel_tables, "data-parallel")
    lines += _named("rows on every rank", plan, plan.row_sliced_tables, "row-sliced")
    for rank in shown:
        lines.append(f"rank {rank}: {_holds(plan, plan.table_shards[rank])}")
    return "\n".join(lines)


def _heading(plan: "Plan") -> list[str]:
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
    if limits.device_memory_bytes is not None:
        line = f"device memory for tables: {format_bytes(limits.device_memory_bytes)} a rank"
        if limits.host_memory_bytes is not None:
            line += f"; host memory: {format_bytes(limits.host_memory_bytes)} a rank"
        lines.append(line)
    return lines


def _cells(name: str, c: RankCost) -> tuple[str, ...]:
    return (
        name,
        f"{c.num_shards:,}",
        f"{c.rows:,}",
        f"{c.columns:,}",
        format_bytes(c.weight_bytes),
        format_bytes(c.state_bytes),
        format_bytes(c.device_bytes),
        format_bytes(c.host_bytes),
        format_bytes(c.id_bytes),
        format_bytes(c.vector_bytes),
        format_bytes(c.gradient_bytes),
        format_bytes(c.allreduce_bytes),
        f"{1000 * c.work_s:.3f}",
    )


def _totals(costs: tuple[RankCost, ...]) -> tuple[str, ...]:
    counts = [sum(getattr(c, name) for c in costs) for name in ("num_shards", "rows", "columns")]
    sizes = (
        "weight_bytes",
        "state_bytes",
        "device_bytes",
        "host_bytes",
        "id_bytes",
        "vector_bytes",
        "gradient_bytes",
        "allreduce_bytes",
    )
    return (
        "all",
        *(f"{count:,}" for count in counts),
        *(format_bytes(sum(getattr(c, name) for c in costs)) for name in sizes),
        f"{1000 * sum(c.work_s for c in costs):.3f}",
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _named(label: str, plan: "Plan", tables: tuple[int, ...], kind: str) -> list[str]:
    if not tables:
        return []
    names = ", ".join(plan.tables[t].name for t in tables[:_SHOWN_SHARDS])
    more = len(tables) - _SHOWN_SHARDS
    return [f"{label} ({kind}): {names}" + (f" and {more} more" if more > 0 else "")]


def _holds(plan: "Plan", shards: tuple[Shard, ...]) -> str:
    if not shards:
        return "no table-parallel shard"
    texts = []
    for s in shards[:_SHOWN_SHARDS]:
        table = plan.tables[s.table]
        text = table.name
        if s.columns < table.dim:
            text += f"[:, {s.column_start}:{s.column_end}]"
        texts.append(text + (" (host)" if s.device == HOST else ""))
    more = len(shards) - _SHOWN_SHARDS
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")
