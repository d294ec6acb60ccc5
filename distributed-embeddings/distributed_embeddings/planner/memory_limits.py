"""Device and host memory of a rank: what fits, and what is offloaded first."""

from collections.abc import Sequence
from dataclasses import replace

from distributed_embeddings.planner.estimators import Workload
from distributed_embeddings.planner.partitioners import Slice, row_bounds
from distributed_embeddings.planner.types import DEVICE, HOST, Limits, Shard


class MemoryLimits:
    """Bytes that a rank may hold; None: unlimited."""

    def __init__(self, device_bytes: int | None, host_bytes: int | None):
        self.limit = {DEVICE: device_bytes, HOST: host_bytes}

    def fits(self, used: int, s: Slice, freed: int = 0) -> bool:
        limit = self.limit[s.device]
        return limit is None or used + s.size_bytes - freed <= limit

    def may_hold(self, slices: Sequence[Slice], world_size: int = 1) -> bool:
        """Returns True if the ranks together have room for all slices."""
        return all(
            limit is None
            or sum(s.size_bytes for s in slices if s.device == device) <= world_size * limit
            for device, limit in self.limit.items()
        )

    def holds(self, placement: Sequence[Sequence[Slice]]) -> bool:
        return all(map(self.may_hold, placement))


def free_memory(
    workload: Workload, limits: Limits, data_parallel: Sequence[int], row_sliced: Sequence[int]
) -> MemoryLimits:
    """Memory of a rank in addition to that of data-parallel and row-sliced tables."""
    if limits.device_memory_bytes is None:
        return MemoryLimits(None, limits.host_memory_bytes)
    taken = sum(workload.table_bytes(t) for t in data_parallel)
    for t in row_sliced:
        table = workload.tables[t]
        taken += workload.size_bytes(t, row_bounds(table.rows, workload.world_size)[1], table.dim)
    return MemoryLimits(limits.device_memory_bytes - taken, limits.host_memory_bytes)


def offload(
    workload: Workload, limits: Limits, memory: MemoryLimits, shards_by_rank: list[list[Shard]]
) -> list[list[Shard]] | None:
    """Applies both rules for host memory to each rank; None if a rank still does not fit."""
    result = []
    for shards in shards_by_rank:
        if limits.cpu_offloading_threshold_bytes is not None:
            shards = largest_to_host(workload, shards, limits.cpu_offloading_threshold_bytes)
        device_limit = memory.limit[DEVICE]
        if limits.host_memory_bytes is not None and device_limit is not None:
            shards = least_read_to_host(workload, shards, device_limit)
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
    """Moves a rank's largest shards to host memory, those beyond `threshold_bytes` of weights."""
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
    """Moves a rank's shards with the fewest lookups per byte to host memory until the rest fits."""
    sizes = [workload.size_bytes(s.table, s.rows, s.columns) for s in shards]
    result = list(shards)
    left = sum(size for size, s in zip(sizes, shards, strict=True) if s.device == DEVICE)
    order = sorted(
        range(len(shards)), key=lambda i: lookups_per_byte(workload, shards[i], sizes[i])
    )
    for i in order:
        if left <= device_bytes:
            break
        if shards[i].device == DEVICE:
            result[i] = replace(shards[i], device=HOST)
            left -= sizes[i]
    return result


def lookups_per_byte(
    workload: Workload, shard: Shard | Slice, size_bytes: int
) -> tuple[float, int]:
    """Sort key of offloading: lookups per byte, and among equals the largest first."""
    return workload.ids[shard.table] / size_bytes, -size_bytes
