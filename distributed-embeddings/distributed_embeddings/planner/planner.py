"""Embedding sharding planner (pure Python): equal arguments give equal plans on every rank."""

from dataclasses import replace

from distributed_embeddings.planner.estimators import Workload
from distributed_embeddings.planner.infeasible import infeasible_report
from distributed_embeddings.planner.partitioners import PARTITIONERS
from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.solve import solve, solve_to_fit
from distributed_embeddings.planner.storage_reservation import MemoryBudget
from distributed_embeddings.planner.types import Limits, PlanError

STRATEGIES = (*PARTITIONERS, "cost", "auto")

NO_LIMITS = Limits()


def plan(
    workload: Workload,
    limits: Limits = NO_LIMITS,
    strategy: str = "auto",
    budget: MemoryBudget | None = None,
) -> Plan:
    """Distributes tables over ranks.

    Each table is sharded in one of three ways, by its number of elements (rows x dim):

    - data-parallel (at most `data_parallel_threshold`): a replica on every rank;
    - row-sliced (at least `row_slice_threshold`): a run of rows on every rank;
    - table-parallel: whole or in column slices (`column_slice_threshold`), on ranks chosen by the
      strategy:

      - `basic`: round robin;
      - `memory_balanced`: by size, in zigzag order over ranks;
      - `memory_optimized`: by size, each to the rank with the fewest bytes;
      - `cost`: by estimated time and memory (search.py);
      - `auto`: `cost` or `memory_balanced`, whichever has the lower `estimators.Objective`.

    On one rank every table is table-parallel. Within a memory limit, `cost` and `auto` choose the
    kind of sharding themselves (solve.py). Thresholds and the first three strategies are those of
    NVIDIA Merlin distributed-embeddings.

    Args:
        budget: Memory of a rank, instead of that of `limits`. With `only_to_fit` it shapes the plan
            only where the plan without it does not fit.

    Raises:
        PlanError: The tables do not fit; the message states what is needed and lists solutions.
        ValueError: The strategy is unknown, or thresholds contradict model-parallel input.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if not workload.dp_input and (limits.row_slice_threshold or limits.data_parallel_threshold):
        raise ValueError(
            "row_slice_threshold and data_parallel_threshold need dp_input=True: row-sliced and "
            "data-parallel tables are read by every rank, but with model-parallel input a rank "
            "gets the ids of its own tables only. Drop the thresholds or use data-parallel input"
        )
    limits = replace(
        limits,
        column_slice_threshold=limits.column_slice_threshold or None,
        data_parallel_threshold=limits.data_parallel_threshold or None,
    )
    result = None
    if budget is not None:
        limits = replace(
            limits,
            device_memory_bytes=budget.table_bytes(workload),
            host_memory_bytes=budget.host_bytes,
        )
        if budget.only_to_fit:
            result = solve_to_fit(workload, limits, strategy)
    result = result or solve(workload, limits, strategy)
    if result is None:
        raise PlanError(infeasible_report(workload, limits, strategy))
    return result
