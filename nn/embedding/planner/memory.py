"""Device and host memory of a rank: what fits, and what leaves the device first."""

from collections.abc import Sequence
from dataclasses import replace

from nn.embedding.planner.cost import Workload
from nn.embedding.planner.placement import Slice, row_bounds
from nn.embedding.planner.types import DEVICE, HOST, Limits, Shard

# Copies of a step's vectors and rows, in float32, that are in memory at a time: forward and
# backward, in one process, and those on their way to other ranks. Measured on a CPU with 26 tables
# of 128 columns, the peak memory of DLRM grows by 4.6 times the vectors of a sample with 1 id per
# feature, and with 10 by 1.2 times the further rows.
VECTOR_COPIES = 5
EXCHANGE_COPIES = 2
ROW_COPIES = 1.5


def step_bytes(workload: Workload) -> int:
    """Estimates the memory of a rank for the vectors of one step.

        4 * global_batch_size / world_size * (copies * V + (ROW_COPIES + state) * R)

    `V` are elements of a sample's vectors, `R` those of the rows that are looked up for it, `state`
    numbers of optimizer state for each element, and copies VECTOR_COPIES, and EXCHANGE_COPIES more
    on several ranks.
    """
    copies = VECTOR_COPIES + EXCHANGE_COPIES * (workload.world_size > 1)
    row_copies = ROW_COPIES + workload.state_bytes_per_element / 4
    elements = sum(
        table.dim * (copies * vectors + row_copies * ids)
        for table, vectors, ids in zip(workload.tables, workload.vectors, workload.ids, strict=True)
    )
    return int(4 * workload.global_batch_size / workload.world_size * elements)


def table_memory_bytes(
    workload: Workload, memory_bytes: float, reserved_fraction: float, dense_bytes: float | None
) -> int:
    """Memory of a rank that its tables and their optimizer state may take.

        memory_bytes - max(reserved_fraction * memory_bytes,
                           min(dense_bytes + step_bytes, memory_bytes / 2))

    No more than half is reserved for a step: it is an estimate, and small tables must not be
    refused because of a large batch.

    Args:
      reserved_fraction: for the dense model, activations, exchange buffers, the runtime's own and
        fragmentation.
      dense_bytes: weights, gradients and optimizer state that are not of tables; None: the reserve
        is the fraction, whatever a step needs.
    """
    left = int(memory_bytes * (1 - reserved_fraction))
    if dense_bytes is not None:
        needed = min(dense_bytes + step_bytes(workload), memory_bytes / 2)
        left = min(left, int(memory_bytes - needed))
    return left


class Memory:
    """Bytes a rank may hold; None is no limit."""

    def __init__(self, device_bytes: int | None, host_bytes: int | None):
        self.limit = {DEVICE: device_bytes, HOST: host_bytes}

    def fits(self, used: int, s: Slice, freed: int = 0) -> bool:
        limit = self.limit[s.device]
        return limit is None or used + s.size_bytes - freed <= limit

    def may_hold(self, slices: Sequence[Slice], world_size: int) -> bool:
        """False if the ranks together have no room for all."""
        return all(
            limit is None
            or sum(s.size_bytes for s in slices if s.device == device) <= world_size * limit
            for device, limit in self.limit.items()
        )

    def holds(self, placement: Sequence[Sequence[Slice]]) -> bool:
        return all(
            limit is None or sum(s.size_bytes for s in slices if s.device == device) <= limit
            for device, limit in self.limit.items()
            for slices in placement
        )


def free_memory(
    workload: Workload, limits: Limits, data_parallel: Sequence[int], row_sliced: Sequence[int]
) -> Memory:
    """What is left on a device beside data-parallel and row-sliced tables."""
    if limits.device_memory_bytes is None:
        return Memory(None, limits.host_memory_bytes)
    taken = sum(workload.table_bytes(t) for t in data_parallel)
    for t in row_sliced:
        table = workload.tables[t]
        taken += workload.size_bytes(t, row_bounds(table.rows, workload.world_size)[1], table.dim)
    return Memory(limits.device_memory_bytes - taken, limits.host_memory_bytes)


def offload(
    workload: Workload, limits: Limits, memory: Memory, shards_by_rank: list[list[Shard]]
) -> list[list[Shard]] | None:
    """Applies both rules for host memory rank by rank; None if a rank still does not fit."""
    result = []
    for shards in shards_by_rank:
        if limits.cpu_offloading_threshold_bytes is not None:
            shards = largest_to_host(workload, shards, limits.cpu_offloading_threshold_bytes)
        if limits.host_memory_bytes is not None and memory.limit[DEVICE] is not None:
            shards = least_read_to_host(workload, shards, memory.limit[DEVICE])
        for device, limit in memory.limit.items():
            size = sum(
                workload.size_bytes(s.table, s.rows, s.columns)
                for s in shards
                if s.device == device
            )
            if limit is not None and size > limit:
                return None
        result.append(shards)
    return result


def largest_to_host(
    workload: Workload, shards: Sequence[Shard], threshold_bytes: int
) -> list[Shard]:
    """Of one rank: by rising size, shards past `threshold_bytes` of weights go to host memory."""
    sizes = [workload.weight_bytes(s.table, s.rows, s.columns) for s in shards]
    result = list(shards)
    total = 0
    for i in sorted(range(len(shards)), key=sizes.__getitem__):
        total += sizes[i]
        if total > threshold_bytes:
            result[i] = replace(shards[i], device=HOST)
    return result


def least_read_to_host(
    workload: Workload, shards: Sequence[Shard], device_bytes: int
) -> list[Shard]:
    """Of one rank: shards with the fewest ids a byte go to host memory until the rest fits."""
    sizes = [workload.size_bytes(s.table, s.rows, s.columns) for s in shards]
    result = list(shards)
    left = sum(size for size, s in zip(sizes, shards, strict=True) if s.device == DEVICE)
    order = sorted(range(len(shards)), key=lambda i: reads_a_byte(workload, shards[i], sizes[i]))
    for i in order:
        if left <= device_bytes:
            break
        if shards[i].device == DEVICE:
            result[i] = replace(shards[i], device=HOST)
            left -= sizes[i]
    return result


def reads_a_byte(workload: Workload, part: Shard | Slice, size_bytes: int) -> tuple[float, int]:
    """Sort key of the budget's rule: ids a byte, and among equals the largest first."""
    return workload.ids[part.table] / size_bytes, -size_bytes
