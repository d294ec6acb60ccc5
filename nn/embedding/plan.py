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

Names and meaning of thresholds and of the first three strategies: NVIDIA Merlin
distributed-embeddings.
"""

from collections.abc import Sequence
from dataclasses import replace

from nn.embedding.plan_cost import Objective, Workload
from nn.embedding.plan_layout import Plan
from nn.embedding.plan_memory import Memory, free_memory, offload
from nn.embedding.plan_misfit import misfit_message
from nn.embedding.plan_parts import (
    DATA_PARALLEL,
    DEVICE,
    HOST,
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
from nn.embedding.plan_placement import (
    PLACEMENTS,
    make_slices,
    merge_slices,
    place_basic,
    slice_counts,
    split_kinds,
)
from nn.embedding.plan_search import place_by_cost

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

# Share of device memory that is not for tables: dense model, activations, exchange buffers, the
# runtime's own and fragmentation. A round number to start from; a step on the device tells.
RESERVED_FRACTION = 0.15

# How much a rank's share of memory counts beside its share of time. Without a limit to device
# memory an even distribution is all the care that can be taken; within one, it is a tie-breaker.
MEMORY_WEIGHT = 1.0
MEMORY_WEIGHT_WITHIN_LIMIT = 0.1


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
      row_slice_threshold: elements; tables of at least as many are row-sliced. None or 0: none.
      data_parallel_threshold: elements; tables of at most as many are data-parallel. None or 0:
        none.
      cpu_offloading_threshold_bytes: of weights of a rank's table-parallel shards; by rising size,
        those past it go to host memory, so the largest first. None: off.
      device_memory_bytes: device memory of a rank; None: no limit.
      host_memory_bytes: host memory of a rank for what does not fit its device: shards with the
        fewest ids a byte go there first, no more than needed. None: none (but no limit to
        `cpu_offloading_threshold_bytes`). Row-sliced and data-parallel tables stay on devices.
      reserved_fraction: share of `device_memory_bytes` that is not for tables.
      global_batch_size: samples a step, all ranks together.
      state_bytes_per_element: of the optimizer, for each element of a table: SGD 0, momentum or
        Adagrad 4, Adam 8.
      state_bytes_per_row: of the optimizer, for each row: row-wise Adagrad 4.
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
    if device_memory_bytes is not None:
        device_memory_bytes = int(device_memory_bytes * (1 - reserved_fraction))
    if host_memory_bytes is not None:
        host_memory_bytes = int(host_memory_bytes)
    workload = Workload(
        tables=tables,
        features=features,
        world_size=world_size,
        global_batch_size=global_batch_size,
        state_bytes_per_element=state_bytes_per_element,
        state_bytes_per_row=state_bytes_per_row,
        exchange_itemsize=exchange_itemsize,
        id_itemsize=id_itemsize,
        dp_input=dp_input,
        hardware=hardware or Hardware(),
    )
    limits = Limits(
        column_slice_threshold=column_slice_threshold or None,
        row_slice_threshold=row_slice_threshold or None,
        data_parallel_threshold=data_parallel_threshold or None,
        cpu_offloading_threshold_bytes=cpu_offloading_threshold_bytes,
        device_memory_bytes=device_memory_bytes,
        host_memory_bytes=host_memory_bytes,
    )
    found = _solve(workload, limits, strategy)
    if found is None:
        raise PlanError(misfit_message(_solve, workload, limits, strategy))
    return found


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


def _solve(workload: Workload, limits: Limits, strategy: str, quick: bool = False) -> Plan | None:
    """The plan, None if it does not fit."""
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
