"""Who holds which slice of which table: a pure function of sizes, printed, tested, obeyed.

`plan` decides, for any number of ranks and without starting one, which rank holds which rows and
columns of which table, on the device or in host memory. The layer obeys; nobody else decides. The
same arguments give the same plan everywhere: every rank of a job plans for itself.

Each table takes part in one of three ways, by its number of elements (rows x dim):

- data-parallel (at most `data_parallel_threshold`): a copy on every rank;
- row-sliced (at least `row_slice_threshold`): a run of rows on every rank;
- table-parallel: whole or in column slices (`column_slice_threshold`), placed by a strategy:
  `basic` round robin; `memory_balanced` by size to and fro; `memory_optimized` by size to the
  emptiest rank; `cost` by estimated time and memory (plan_search.py); `auto` takes `cost` where its
  objective (plan_cost.Objective) is less than that of `memory_balanced`, else the latter.

Within a limit of memory, `cost` and `auto` choose the kind themselves (plan_solve.py).

Names and meaning of thresholds and of the first three strategies: NVIDIA Merlin
distributed-embeddings.
"""

from collections.abc import Sequence

from nn.embedding.planner.cost import Workload
from nn.embedding.planner.infeasible import misfit_message
from nn.embedding.planner.memory import table_memory_bytes
from nn.embedding.planner.placement import PLACEMENTS
from nn.embedding.planner.sharding_plan import Plan
from nn.embedding.planner.solve import solve, solve_to_fit
from nn.embedding.planner.types import (
    DATA_PARALLEL,
    DEVICE,
    HOST,
    RESERVED_FRACTION,
    ROW_SLICED,
    TABLE_PARALLEL,
    Feature,
    Group,
    Hardware,
    Limits,
    Lookup,
    Piece,
    PlanError,
    Shard,
    Table,
)

__all__ = [
    "DATA_PARALLEL",
    "DEVICE",
    "HOST",
    "ROW_SLICED",
    "STRATEGIES",
    "TABLE_PARALLEL",
    "Feature",
    "Group",
    "Hardware",
    "Lookup",
    "Piece",
    "Plan",
    "PlanError",
    "Shard",
    "Table",
    "plan",
]

STRATEGIES = (*PLACEMENTS, "cost", "auto")


def plan(
    tables: Sequence[Table],
    world_size: int,
    *,
    strategy: str = "auto",
    input_table_map: Sequence[int] | None = None,
    hotness: Sequence[float] | None = None,
    combined: Sequence[bool] | None = None,
    column_slice_threshold: int | None = None,
    row_slice_threshold: int | None = None,
    data_parallel_threshold: int | None = None,
    cpu_offloading_threshold_bytes: int | None = None,
    device_memory_bytes: int | None = None,
    host_memory_bytes: int | None = None,
    reserved_fraction: float = RESERVED_FRACTION,
    global_batch_size: int = 65536,
    state_bytes_per_element: float = 0.0,
    state_bytes_per_row: float = 0.0,
    scratch_bytes_per_element: float = 0.0,
    dense_bytes: float = 0.0,
    only_to_fit: bool = False,
    exchange_itemsize: int = 4,
    id_itemsize: int = 8,
    dp_input: bool = True,
    hardware: Hardware | None = None,
) -> Plan:
    """Distributes tables over ranks.

    Args:
      tables: the tables; none is fine.
      world_size: number of ranks; on one, every table is table-parallel.
      strategy: one of STRATEGIES.
      input_table_map: for each input (feature) the number of its table; None: input i, table i.
      hotness: for each input the ids a sample, the mean where they vary; None: 1.
      combined: for each input whether a sample's rows become one vector; None: all.
      column_slice_threshold: elements; a larger table is cut into the least power of 2 of slices
        that are no larger, but at most one a rank. None or 0: only if tables are fewer than ranks,
        or, with `cost` and `auto`, if `device_memory_bytes` asks for it.
      row_slice_threshold: elements; tables of at least as many are row-sliced. None: none, but
        with `cost` and `auto` the largest tables if they do not fit otherwise. 0: none.
      data_parallel_threshold: elements; tables of at most as many are data-parallel. None or 0:
        none.
      cpu_offloading_threshold_bytes: of weights of a rank's table-parallel shards; by rising size,
        those past it go to host memory, so the largest first. None: off.
      device_memory_bytes: device memory of a rank; None: no limit.
      host_memory_bytes: host memory of a rank for what does not fit its device: shards with the
        fewest ids a byte go there first, no more than needed. None: none (but no limit to
        `cpu_offloading_threshold_bytes`). Row-sliced and data-parallel tables stay on devices.
      reserved_fraction: share of `device_memory_bytes` that is not for tables; with `only_to_fit`
        more where a step needs more, see plan_memory.step_bytes.
      global_batch_size: samples a step, all ranks together.
      state_bytes_per_element: of the optimizer, for each element of a table: SGD 0, momentum or
        Adagrad 4, Adam 8.
      state_bytes_per_row: of the optimizer, for each row: row-wise Adagrad 4.
      scratch_bytes_per_element: memory that an update needs for a while, for each element of a
        table: Adam that moves all rows 8; others need it for the rows of a batch only.
      dense_bytes: weights, gradients and optimizer state that are not of tables.
      only_to_fit: the limits of memory shape the plan only where the plan without them does not
        fit. False: within a limit, tables are also cut where that evens out the ranks.
      exchange_itemsize: bytes of an element of a vector on its way.
      id_itemsize: bytes of an id on its way.
      dp_input: each rank gets its samples' ids of all features, and ids are exchanged; False: it
        gets all samples' ids of the features that it looks up.
      hardware: speeds that weigh look-ups against exchange.

    Raises:
      PlanError: it does not fit; the message says what is needed and what would help.
      ValueError: an argument is out of range.
    """
    tables = tuple(tables)
    features = _features(tables, input_table_map, hotness, combined)
    _check_ranges(
        0,
        column_slice_threshold=column_slice_threshold,
        row_slice_threshold=row_slice_threshold,
        data_parallel_threshold=data_parallel_threshold,
        cpu_offloading_threshold_bytes=cpu_offloading_threshold_bytes,
        device_memory_bytes=device_memory_bytes,
        host_memory_bytes=host_memory_bytes,
        state_bytes_per_element=state_bytes_per_element,
        state_bytes_per_row=state_bytes_per_row,
        scratch_bytes_per_element=scratch_bytes_per_element,
        dense_bytes=dense_bytes,
    )
    _check_ranges(
        1,
        world_size=world_size,
        global_batch_size=global_batch_size,
        exchange_itemsize=exchange_itemsize,
        id_itemsize=id_itemsize,
    )
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if not 0 <= reserved_fraction < 1:
        raise ValueError(f"reserved_fraction must be in [0, 1), got {reserved_fraction}")
    if not dp_input and (row_slice_threshold or data_parallel_threshold):
        raise ValueError(
            "row_slice_threshold and data_parallel_threshold need dp_input=True: row-sliced and "
            "data-parallel tables are read by every rank, but with model-parallel input a rank "
            "gets the ids of its own tables only. Drop the thresholds or use data-parallel input"
        )
    workload = Workload(
        tables=tables,
        features=features,
        world_size=world_size,
        global_batch_size=global_batch_size,
        state_bytes_per_element=state_bytes_per_element,
        state_bytes_per_row=state_bytes_per_row,
        scratch_bytes_per_element=scratch_bytes_per_element,
        exchange_itemsize=exchange_itemsize,
        id_itemsize=id_itemsize,
        dp_input=dp_input,
        hardware=hardware or Hardware(),
    )
    if device_memory_bytes is not None:
        device_memory_bytes = table_memory_bytes(
            workload, device_memory_bytes, reserved_fraction, dense_bytes if only_to_fit else None
        )
    limits = Limits(
        column_slice_threshold=column_slice_threshold or None,
        row_slice_threshold=row_slice_threshold,
        data_parallel_threshold=data_parallel_threshold or None,
        cpu_offloading_threshold_bytes=cpu_offloading_threshold_bytes,
        device_memory_bytes=device_memory_bytes,
        host_memory_bytes=None if host_memory_bytes is None else int(host_memory_bytes),
    )
    result = solve_to_fit(workload, limits, strategy) if only_to_fit else None
    result = result or solve(workload, limits, strategy)
    if result is None:
        raise PlanError(misfit_message(solve, workload, limits, strategy))
    return result


def _check_ranges(least: int, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def _features(
    tables: Sequence[Table],
    input_table_map: Sequence[int] | None,
    hotness: Sequence[float] | None,
    combined: Sequence[bool] | None,
) -> tuple[Feature, ...]:
    for table in tables:
        if min(table.rows, table.dim, table.itemsize) < 1:
            raise ValueError(f"rows, dim and itemsize of a table must be at least 1, got {table}")
    if input_table_map is None:
        input_table_map = range(len(tables))
    num_inputs = len(input_table_map)
    hotness = [1.0] * num_inputs if hotness is None else hotness
    combined = [True] * num_inputs if combined is None else combined
    for name, values in (("hotness", hotness), ("combined", combined)):
        if len(values) != num_inputs:
            raise ValueError(f"{name} has {len(values)} entries for {num_inputs} inputs")
    for f, (t, h) in enumerate(zip(input_table_map, hotness, strict=True)):
        if not 0 <= t < len(tables):
            raise ValueError(
                f"input_table_map[{f}] is {t}, but tables are numbered 0 to {len(tables) - 1}"
            )
        if not h >= 0:
            raise ValueError(f"hotness[{f}] must not be negative, got {h}")
    return tuple(
        Feature(int(t), float(h), bool(c))
        for t, h, c in zip(input_table_map, hotness, combined, strict=True)
    )
