"""Search for a plan within limits: by a strategy, and with row slices where memory is short."""

from collections.abc import Sequence
from dataclasses import replace

from nn.embedding.planner.cost import Objective, Workload
from nn.embedding.planner.memory import Memory, free_memory, offload
from nn.embedding.planner.placement import (
    PLACEMENTS,
    make_slices,
    merge_slices,
    place_basic,
    slice_counts,
    split_kinds,
)
from nn.embedding.planner.search import place_by_cost
from nn.embedding.planner.sharding_plan import Plan
from nn.embedding.planner.types import DEVICE, HOST, Limits, Shard

# How much a rank's share of memory counts next to its share of time. Without a limit to device
# memory an even distribution is all the care that can be taken; within one, it is a tie-breaker.
MEMORY_WEIGHT = 1.0
MEMORY_WEIGHT_WITHIN_LIMIT = 0.1

MAX_ROW_SLICED = 8  # numbers of row-sliced tables that are tried


def solve_to_fit(workload: Workload, limits: Limits, strategy: str) -> Plan | None:
    """Returns the plan without limits of memory if it fits in them, else None."""
    unlimited = replace(limits, device_memory_bytes=None, host_memory_bytes=None)
    plan = _place(workload, unlimited, strategy)
    for cost in plan.costs:
        for used, limit in (
            (cost.device_bytes, limits.device_memory_bytes),
            (cost.host_bytes, limits.host_memory_bytes),
        ):
            if limit is not None and used > limit:
                return None
    return plan


def solve(workload: Workload, limits: Limits, strategy: str, quick: bool = False) -> Plan | None:
    """Returns the plan, None where nothing fits.

    With `cost` and `auto`, where column slices do not make the tables fit on the devices, the
    largest tables are cut into row slices, as few of them as possible: all ranks hold some rows of
    them. Where host memory makes them fit, too, the plan with the shorter step is taken. Column
    slices come first because their cost does not depend on which ids are frequent.

    Args:
      quick: the first plan that fits, to find out whether there is one.
    """
    plan = _place(workload, limits, strategy, quick)
    slices_rows = (
        strategy not in PLACEMENTS
        and limits.row_slice_threshold is None
        and limits.device_memory_bytes is not None
        and workload.dp_input
        and workload.world_size > 1
        and _has_room(workload, limits)
    )
    if not slices_rows or (plan and (quick or not _uses_host(plan))):
        return plan
    with_rows = None
    if limits.host_memory_bytes:
        on_device = replace(limits, host_memory_bytes=0)
        with_rows = _with_row_slices(workload, on_device, strategy, quick)
    if plan is None and with_rows is None:
        with_rows = _with_row_slices(workload, limits, strategy, quick)
    return min(filter(None, (plan, with_rows)), key=_step_s, default=None)


def _has_room(workload: Workload, limits: Limits) -> bool:
    """False if the ranks together have less memory than the tables need."""
    room = (limits.device_memory_bytes or 0) + (limits.host_memory_bytes or 0)
    size = sum(map(workload.table_bytes, range(len(workload.tables))))
    unlimited = (
        limits.host_memory_bytes is None and limits.cpu_offloading_threshold_bytes is not None
    )
    return unlimited or size <= workload.world_size * room


def _uses_host(plan: Plan) -> bool:
    return any(cost.host_bytes for cost in plan.costs)


def _with_row_slices(workload: Workload, limits: Limits, strategy: str, quick: bool) -> Plan | None:
    """Returns a plan with as few row-sliced tables as make it fit, None where none does."""
    sizes = sorted({table.num_elements for table in workload.tables}, reverse=True)
    for threshold in sizes[:MAX_ROW_SLICED]:
        sliced = replace(limits, row_slice_threshold=threshold)
        if _place(workload, sliced, strategy, quick=True):
            return _place(workload, sliced, strategy, quick)
    return None


def _step_s(plan: Plan) -> float:
    """Estimated time of lookups and exchange of the slowest rank."""
    workload = plan.workload
    rows = sum(workload.row_sliced_work_s(t) for t in plan.row_sliced_tables)
    return rows + max(
        sum(workload.work_s(s.table, s.columns, s.device) for s in shards)
        for shards in plan.table_shards
    )


def _place(workload: Workload, limits: Limits, strategy: str, quick: bool = False) -> Plan | None:
    """Returns the plan for given thresholds, None where it does not fit."""
    data_parallel, tables, row_sliced = split_kinds(workload, limits)
    objective = _objective(workload, limits, tables)
    memory = free_memory(workload, limits, data_parallel, row_sliced)
    if memory.limit[DEVICE] is not None and memory.limit[DEVICE] < 0:
        return None
    counts = slice_counts(workload, tables, limits.column_slice_threshold)

    def layout(name: str, shards: list[list[Shard]] | None) -> Plan | None:
        if shards is None:
            return None
        return Plan(
            workload=workload,
            limits=limits,
            strategy=name,
            table_shards=tuple(map(tuple, shards)),
            data_parallel_tables=tuple(data_parallel),
            row_sliced_tables=tuple(row_sliced),
            objective=objective.value(shards) / 2**32,
        )

    def by_size(name: str) -> list[list[Shard]] | None:
        slices = make_slices(workload, tables, counts)
        place = PLACEMENTS[name] if workload.world_size > 1 else place_basic
        shards = merge_slices(workload, place(slices, workload.world_size))
        return offload(workload, limits, memory, shards)

    def by_cost() -> list[list[Shard]] | None:
        # What `cpu_offloading_threshold_bytes` sends to host memory may be what did not fit.
        rooms = [memory]
        if limits.cpu_offloading_threshold_bytes is not None and memory.limit[DEVICE] is not None:
            rooms.append(Memory(None, None))
        for room in rooms:
            may_use_host = room.limit[HOST] is not None
            shards = place_by_cost(objective, tables, counts, room, may_use_host, quick)
            if shards is not None:
                shards = offload(workload, limits, memory, shards)
            if shards is not None:
                return shards
        return None

    if strategy in PLACEMENTS:
        return layout(strategy, by_size(strategy))
    balanced = layout("memory_balanced", by_size("memory_balanced"))
    if quick and balanced:
        return balanced
    cheapest = layout("cost", by_cost())
    if balanced is None or cheapest is None:
        found = cheapest or balanced
    elif strategy == "cost":
        found = min(cheapest, balanced, key=lambda p: p.objective)
    else:
        found = cheapest if cheapest.objective < balanced.objective else balanced
    return replace(found, strategy="cost") if found and strategy == "cost" else found


def _objective(workload: Workload, limits: Limits, tables: Sequence[int]) -> Objective:
    within_limit = limits.device_memory_bytes is not None
    weight = MEMORY_WEIGHT_WITHIN_LIMIT if within_limit else MEMORY_WEIGHT
    return Objective.of(workload, tables, weight)
