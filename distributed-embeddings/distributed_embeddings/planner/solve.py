"""Search for a plan within limits: by a strategy, and with row slices where memory is short."""

from dataclasses import dataclass, replace
from functools import cached_property

from distributed_embeddings.planner.estimators import Objective, Workload
from distributed_embeddings.planner.memory_limits import MemoryLimits, free_memory, offload
from distributed_embeddings.planner.partitioner import place_by_cost
from distributed_embeddings.planner.partitioners import (
    PARTITIONERS,
    make_slices,
    merge_slices,
    place_basic,
    slice_counts,
    split_kinds,
)
from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.types import DEVICE, HOST, Limits, Shard

# Weight of a rank's share of memory relative to its share of time. Without a limit of device memory
# an even distribution is the only precaution; within one it is a tie-breaker.
MEMORY_WEIGHT = 1.0
MEMORY_WEIGHT_WITHIN_LIMIT = 0.1

MAX_ROW_SLICED = 8  # sizes of tables tried as the row slice threshold


def solve_to_fit(workload: Workload, limits: Limits, strategy: str) -> Plan | None:
    """Returns the plan made without memory limits if it is within them, else None."""
    unlimited = replace(limits, device_memory_bytes=None, host_memory_bytes=None)
    plan = _place(workload, unlimited, strategy)
    assert plan is not None  # nothing limits it
    for limit, sizes in (
        (limits.device_memory_bytes, [cost.device_bytes for cost in plan.costs]),
        (limits.host_memory_bytes, [cost.host_bytes for cost in plan.costs]),
    ):
        if limit is not None and max(sizes) > limit:
            return None
    return plan


def solve(workload: Workload, limits: Limits, strategy: str, quick: bool = False) -> Plan | None:
    """Returns the plan, None where none fits.

    With `cost` and `auto`, where column slices do not make the tables fit on the devices, as few as
    possible of the largest tables are cut into row slices. Where host memory also makes them fit,
    the plan with the shorter step is taken. Column slices come first because their cost does not
    depend on which ids are frequent. `quick` returns the first plan that fits.
    """
    plan = _place(workload, limits, strategy, quick)
    may_slice_rows = (
        strategy not in PARTITIONERS
        and limits.row_slice_threshold is None
        and limits.device_memory_bytes is not None
        and workload.dp_input
        and workload.world_size > 1
        and _has_room(workload, limits)
    )
    if not may_slice_rows or (plan and (quick or not any(cost.host_bytes for cost in plan.costs))):
        return plan
    with_row_slices = None
    if limits.host_memory_bytes:
        on_device = replace(limits, host_memory_bytes=0)
        with_row_slices = _add_row_slices(workload, on_device, strategy, quick)
    if plan is None and with_row_slices is None:
        with_row_slices = _add_row_slices(workload, limits, strategy, quick)
    return min(filter(None, (plan, with_row_slices)), key=_step_s, default=None)


def _has_room(workload: Workload, limits: Limits) -> bool:
    """Returns True if the ranks together have the memory that the tables need."""
    room = (limits.device_memory_bytes or 0) + (limits.host_memory_bytes or 0)
    size = sum(map(workload.table_bytes, range(len(workload.tables))))
    unlimited = (
        limits.host_memory_bytes is None and limits.cpu_offloading_threshold_bytes is not None
    )
    return unlimited or size <= workload.world_size * room


def _add_row_slices(workload: Workload, limits: Limits, strategy: str, quick: bool) -> Plan | None:
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
    placement = _Placement(workload, limits)
    device_limit = placement.memory.limit[DEVICE]
    if device_limit is not None and device_limit < 0:
        return None
    if strategy in PARTITIONERS:
        return placement.by_size(strategy)
    balanced = placement.by_size("memory_balanced")
    if quick and balanced:
        return balanced
    cheapest = placement.by_cost(quick)
    # The first of two equal ones is taken.
    plans = (cheapest, balanced) if strategy == "cost" else (balanced, cheapest)
    result = min(filter(None, plans), key=lambda plan: plan.objective, default=None)
    return replace(result, strategy="cost") if result and strategy == "cost" else result


@dataclass(frozen=True)
class _Placement:
    """Placement of the table-parallel tables for given thresholds."""

    workload: Workload
    limits: Limits

    @cached_property
    def kinds(self) -> tuple[list[int], list[int], list[int]]:
        return split_kinds(self.workload, self.limits)

    @cached_property
    def objective(self) -> Objective:
        within_limit = self.limits.device_memory_bytes is not None
        weight = MEMORY_WEIGHT_WITHIN_LIMIT if within_limit else MEMORY_WEIGHT
        return Objective.from_workload(self.workload, self.kinds[1], weight)

    @cached_property
    def memory(self) -> MemoryLimits:
        return free_memory(self.workload, self.limits, self.kinds[0], self.kinds[2])

    @cached_property
    def counts(self) -> list[int]:
        return slice_counts(self.workload, self.kinds[1], self.limits.column_slice_threshold)

    def by_size(self, strategy: str) -> Plan | None:
        """Places slices by order or size alone."""
        world_size = self.workload.world_size
        slices = make_slices(self.workload, self.kinds[1], self.counts)
        partition = PARTITIONERS[strategy] if world_size > 1 else place_basic
        return self._offloaded(strategy, merge_slices(self.workload, partition(slices, world_size)))

    def by_cost(self, quick: bool) -> Plan | None:
        """Places slices by estimated time and memory."""
        memories = [self.memory]
        # Offloading by `cpu_offloading_threshold_bytes` may free the memory that is missing.
        offloads = self.limits.cpu_offloading_threshold_bytes is not None
        if offloads and self.memory.limit[DEVICE] is not None:
            memories.append(MemoryLimits(None, None))
        for memory in memories:
            use_host = memory.limit[HOST] is not None
            shards = place_by_cost(
                self.objective, self.kinds[1], self.counts, memory, use_host, quick
            )
            if shards is not None and (plan := self._offloaded("cost", shards)):
                return plan
        return None

    def _offloaded(self, strategy: str, shards_by_rank: list[list[Shard]]) -> Plan | None:
        shards = offload(self.workload, self.limits, self.memory, shards_by_rank)
        if shards is None:
            return None
        return Plan(
            workload=self.workload,
            limits=self.limits,
            strategy=strategy,
            table_shards=tuple(map(tuple, shards)),
            data_parallel_tables=tuple(self.kinds[0]),
            row_sliced_tables=tuple(self.kinds[2]),
            objective=self.objective.value(shards) / 2**32,
        )
