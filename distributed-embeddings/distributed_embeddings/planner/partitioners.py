"""Slices of tables, and partitioners by order or by size alone.

The rules and the names are those of NVIDIA Merlin distributed-embeddings, so that a program written
for it finds its tables on the same ranks.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from distributed_embeddings.planner.estimators import Workload
from distributed_embeddings.planner.types import DEVICE, Limits, Shard


@dataclass(frozen=True, slots=True)
class Slice:
    """All rows and `width` columns of a table, before it has a rank; `load`: see `Objective`."""

    table: int
    width: int
    size_bytes: int
    load: int = 0
    device: str = DEVICE


def split_kinds(workload: Workload, limits: Limits) -> tuple[list[int], list[int], list[int]]:
    """Returns the numbers of the data-parallel, table-parallel and row-sliced tables.

    A table of at most `data_parallel_threshold` elements is data-parallel, else one of at least
    `row_slice_threshold` is row-sliced. On one rank all are table-parallel.
    """
    groups: tuple[list[int], list[int], list[int]] = ([], [], [])
    for t, table in enumerate(workload.tables):
        kind = 1
        if workload.world_size > 1:
            if table.num_elements <= (limits.data_parallel_threshold or -1):
                kind = 0
            elif limits.row_slice_threshold and table.num_elements >= limits.row_slice_threshold:
                kind = 2
        groups[kind].append(t)
    return groups


def row_bounds(rows: int, world_size: int) -> list[int]:
    """Returns the first row of each rank's run, and the end; the first runs may be a row longer."""
    share, extra = divmod(rows, world_size)
    return [rank * share + min(rank, extra) for rank in range(world_size + 1)]


def column_widths(dim: int, num_slices: int) -> list[int]:
    """Returns the widths of nearly even column slices, the wider ones first."""
    share, extra = divmod(dim, num_slices)
    return [share + (i < extra) for i in range(num_slices)]


def num_column_slices(num_elements: int, dim: int, threshold: float, world_size: int) -> int:
    """Returns the least power of 2 of slices within `threshold` elements; at most one per rank."""
    limit = min(world_size, dim)
    num_slices = 1
    while num_elements > threshold * num_slices and num_slices < limit:
        num_slices *= 2
    return min(num_slices, limit)


def threshold_for_all_ranks(num_elements: Sequence[int], world_size: int) -> int | None:
    """Returns a threshold with which every rank has a slice; None if there are enough tables."""
    heap = [-n for n in num_elements]
    heapq.heapify(heap)
    threshold = None
    while heap and len(heap) < world_size:
        largest = -heapq.heappop(heap)
        threshold = largest - 1
        for _ in range(2):
            heapq.heappush(heap, -(largest // 2))
    return threshold


def slice_counts(workload: Workload, tables: Sequence[int], threshold: int | None) -> list[int]:
    """Returns the number of column slices of each of `tables`, by threshold."""
    sizes = [workload.tables[t].num_elements for t in tables]
    if not threshold:
        threshold = threshold_for_all_ranks(sizes, workload.world_size)
    if threshold is None:
        return [1] * len(tables)
    return [
        num_column_slices(size, workload.tables[t].dim, threshold, workload.world_size)
        for t, size in zip(tables, sizes, strict=True)
    ]


def make_slices(workload: Workload, tables: Sequence[int], counts: Sequence[int]) -> list[Slice]:
    """Returns the slices in the order of tables and columns."""
    slices = []
    for t, count in zip(tables, counts, strict=True):
        table = workload.tables[t]
        sizes: dict[int, int] = {}
        for width in column_widths(table.dim, count):
            if width not in sizes:
                sizes[width] = workload.size_bytes(t, table.rows, width)
            slices.append(Slice(t, width, sizes[width]))
    return slices


def place_basic(slices: Sequence[Slice], world_size: int) -> list[list[Slice]]:
    """Deals slices round robin, in the order of the tables."""
    return [list(slices[rank::world_size]) for rank in range(world_size)]


def place_memory_balanced(slices: Sequence[Slice], world_size: int) -> list[list[Slice]]:
    """Deals slices by decreasing size, in zigzag order over ranks."""
    order = sorted(slices, key=lambda s: (s.size_bytes, s.table), reverse=True)
    period = 2 * world_size
    return [order[rank::period] + order[period - 1 - rank :: period] for rank in range(world_size)]


def place_memory_optimized(slices: Sequence[Slice], world_size: int) -> list[list[Slice]]:
    """Gives slices by decreasing size to the rank with the fewest bytes."""
    order = sorted(slices, key=lambda s: (s.size_bytes, s.table), reverse=True)
    # Equal bytes: the lists of tables decide, then the number of the bin.
    heap: list[tuple[int, list[int], int]] = [(0, [], i) for i in range(world_size)]
    slices_of_bin: list[list[Slice]] = [[] for _ in range(world_size)]
    for s in order:
        size_bytes, ids, i = heap[0]
        slices_of_bin[i].append(s)
        heapq.heapreplace(heap, (size_bytes + s.size_bytes, [*ids, s.table], i))
    return [slices_of_bin[i] for _, _, i in sorted(heap)]


PARTITIONERS = {
    "basic": place_basic,
    "memory_balanced": place_memory_balanced,
    "memory_optimized": place_memory_optimized,
}


def merge_slices(
    workload: Workload, slices_by_rank: Sequence[Sequence[Slice]]
) -> list[list[Shard]]:
    """Assigns columns to slices, increasing with the rank; merges slices of one table on a rank."""
    next_column = [0] * len(workload.tables)
    shards_by_rank = []
    for rank, slices in enumerate(slices_by_rank):
        widths: dict[tuple[int, str], int] = {}
        for s in slices:
            widths[s.table, s.device] = widths.get((s.table, s.device), 0) + s.width
        shards = []
        for (t, device), width in widths.items():
            start = next_column[t]
            next_column[t] += width
            rows = workload.tables[t].rows
            shards.append(Shard(t, rank, 0, rows, start, start + width, device=device))
        shards_by_rank.append(shards)
    return shards_by_rank
