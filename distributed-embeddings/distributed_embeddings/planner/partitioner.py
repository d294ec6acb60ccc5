"""Partitioner `cost`: slices where memory requires it, largest first, then moves and swaps."""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from distributed_embeddings.planner.estimators import Objective
from distributed_embeddings.planner.memory_limits import MemoryLimits, lookups_per_byte
from distributed_embeddings.planner.partitioners import (
    Slice,
    make_slices,
    merge_slices,
    place_memory_balanced,
    place_memory_optimized,
)
from distributed_embeddings.planner.types import DEVICE, HOST, Shard

# The search is bounded by counts, not by a clock: every rank of a job must find the same plan.
MAX_PROBES = 100_000  # pairs of ranks' slices examined, in each local search
MAX_PARTNERS = 16  # least loaded ranks that the busiest one trades with
MAX_HALVINGS = 10  # of the greatest size of a slice
EXTRA_HALVINGS = 3  # beyond the first that fits
FINER_GAIN = 0.05  # that smaller slices must bring: each costs operations that no load counts

Placement = list[list[Slice]]


def place_by_cost(
    objective: Objective,
    tables: Sequence[int],
    base_counts: Sequence[int],
    memory: MemoryLimits,
    use_host: bool,
    quick: bool = False,
) -> list[list[Shard]] | None:
    """Returns the shards of each rank with the least objective, None where nothing fits.

    With a limit of device memory, slices are halved until they fit, and further if that evens out
    the ranks by more than FINER_GAIN. Only if that is not enough, the slices with the fewest
    lookups per byte go to host memory, no more of them than needed.

    Args:
        base_counts: Column slices of each table, before memory requires more.
        quick: Whether to return the first placement that fits.
    """
    workload, device_limit = objective.workload, memory.limit[DEVICE]
    needed = sum(workload.table_bytes(t) for t in tables)
    fits = device_limit is None or needed <= workload.world_size * device_limit
    best = None
    for is_tried, make_starts in ((fits, _starts_on_devices), (use_host, _starts_with_host)):
        if best is None and is_tried:
            slicings = _slicings(objective, tables, base_counts, memory)
            starts = (make_starts(objective, slices, memory) for slices in slicings)
            best = _least(objective, starts, memory, quick)
    return best


def _least(
    objective: Objective, starts: Iterable[Iterable[Placement]], memory: MemoryLimits, quick: bool
) -> list[list[Shard]] | None:
    """Returns the best placement of the first slicing that fits and of EXTRA_HALVINGS more."""
    best, best_value, halvings = None, 0, 0
    for placements in starts:
        to_beat = None if best is None else best_value * (1 - FINER_GAIN)
        for placement in placements:
            if not quick:
                placement = improve(placement, memory)
            in_order = [sorted(s, key=lambda s: (s.table, s.width)) for s in placement]
            shards = merge_slices(objective.workload, in_order)
            value = objective.value(shards)
            if to_beat is None or value < to_beat:
                best, best_value, to_beat = shards, value, value
            if quick:
                return best
        halvings += best is not None
        if halvings > EXTRA_HALVINGS:
            break
    return best


def _slicings(
    objective: Objective, tables: Sequence[int], base_counts: Sequence[int], memory: MemoryLimits
) -> Iterator[list[Slice]]:
    """Yields slices by `base_counts`, then with smaller limits of the bytes and load of a slice."""
    workload, limit = objective.workload, memory.limit[DEVICE]
    if limit is None:
        yield make_slices(workload, tables, base_counts)
        return
    even_load = int(2**32 * (1 + objective.memory_weight))
    max_slices = 16 * (workload.world_size + len(tables)) + 1000
    counts = None
    for halvings in range(MAX_HALVINGS + 1):
        before = counts
        max_bytes = max(limit >> halvings, 1)
        max_load = (even_load << 1) >> halvings if halvings else None
        counts = [
            _count_for(objective, t, count, max_bytes, max_load)
            for t, count in zip(tables, base_counts, strict=True)
        ]
        if before is not None and sum(counts) > max_slices:
            return
        if counts != before:
            yield make_slices(workload, tables, counts)


def _count_for(
    objective: Objective, t: int, count: int, max_bytes: int, max_load: int | None
) -> int:
    """Returns the column slices of a table: `count` doubled until a slice is within both limits."""
    workload = objective.workload
    table = workload.tables[t]
    max_count = min(workload.world_size, table.dim)
    while count < max_count:
        width = -(-table.dim // count)
        if workload.size_bytes(t, table.rows, width) <= max_bytes and (
            max_load is None or objective.load(t, width, DEVICE) <= max_load
        ):
            break
        count = min(2 * count, max_count)
    return count


def _weigh(objective: Objective, slices: Sequence[Slice], device: str = DEVICE) -> list[Slice]:
    loads: dict[tuple[int, int], int] = {}
    weighed = []
    for s in slices:
        key = s.table, s.width
        if key not in loads:
            loads[key] = objective.load(s.table, s.width, device)
        weighed.append(replace(s, load=loads[key], device=device))
    return weighed


def _starts_on_devices(
    objective: Objective, slices: Sequence[Slice], memory: MemoryLimits
) -> Iterator[Placement]:
    return _starts(_weigh(objective, slices), objective.workload.world_size, memory)


def _starts(slices: list[Slice], world_size: int, memory: MemoryLimits) -> Iterator[Placement]:
    """Yields placements that fit: by load, by size in zigzag order, and by size alone."""
    if not memory.may_hold(slices, world_size):
        return
    by_load = place_largest_first(slices, [[]] * world_size, memory)
    if by_load is not None:
        yield by_load
    zigzag = place_memory_balanced(slices, world_size)
    if memory.holds(zigzag):
        yield zigzag
    if by_load is None:
        by_size = place_memory_optimized(slices, world_size)
        if memory.holds(by_size):
            yield by_size


def place_largest_first(
    slices: Sequence[Slice], initial: Sequence[Sequence[Slice]], memory: MemoryLimits
) -> Placement | None:
    """Places slices by decreasing load on the least loaded rank that has room; None if none has.

    Only the MAX_PARTNERS least loaded ranks are tried, then the rank with the most free memory.
    """
    placement = [list(rank_slices) for rank_slices in initial]
    loads = _sums(placement)
    used = {device: _sums(placement, device) for device in (DEVICE, HOST)}
    # Heaps of (load or bytes, rank); outdated entries are dropped when they reach the top.
    by_load = [(load, rank) for rank, load in enumerate(loads)]
    by_used = {
        device: [(size, rank) for rank, size in enumerate(sizes)] for device, sizes in used.items()
    }
    for heap in (by_load, *by_used.values()):
        heapq.heapify(heap)
    for s in sorted(slices, key=lambda s: (-s.load, -s.size_bytes, s.table)):
        used_bytes = used[s.device]
        _drop_stale(by_used[s.device], used_bytes)
        emptiest = by_used[s.device][0][1]
        if not memory.fits(used_bytes[emptiest], s):
            return None
        full, rank = [], emptiest
        for _ in range(min(MAX_PARTNERS, len(placement))):
            _drop_stale(by_load, loads)
            if not by_load:
                break
            if memory.fits(used_bytes[by_load[0][1]], s):
                rank = by_load[0][1]
                break
            full.append(heapq.heappop(by_load))
        for entry in full:
            heapq.heappush(by_load, entry)
        loads[rank] += s.load
        used_bytes[rank] += s.size_bytes
        if s.load:
            heapq.heappush(by_load, (loads[rank], rank))
        heapq.heappush(by_used[s.device], (used_bytes[rank], rank))
        placement[rank].append(s)
    return placement


def _sums(placement: Sequence[Sequence[Slice]], device: str | None = None) -> list[int]:
    """Returns for each rank the sum of loads, or of bytes on `device`."""
    if device is None:
        return [sum(s.load for s in slices) for slices in placement]
    return [sum(s.size_bytes for s in slices if s.device == device) for slices in placement]


def _drop_stale(heap: list[tuple[int, int]], values: list[int]) -> None:
    while heap and heap[0][0] != values[heap[0][1]]:
        heapq.heappop(heap)


def improve(placement: Sequence[Sequence[Slice]], memory: MemoryLimits) -> Placement:
    """Moves or swaps slices of the busiest rank, until none lowers the load of its pair."""
    ranks = [sorted(slices, key=lambda s: s.load) for slices in placement]
    loads = _sums(ranks)
    used = {device: _sums(ranks, device) for device in (DEVICE, HOST)}
    even = sum(loads) / len(loads)
    probes = 0
    while probes < MAX_PROBES:
        busiest = max(range(len(ranks)), key=lambda r: (loads[r], -r))
        if loads[busiest] <= 1.001 * even:
            break
        best = None
        partners = heapq.nsmallest(MAX_PARTNERS, range(len(ranks)), key=lambda r: (loads[r], r))
        for partner in partners:
            gap = loads[busiest] - loads[partner]
            if gap <= 0:
                break
            probes += len(ranks[busiest]) + len(ranks[partner])
            trade = _best_trade(ranks, used, memory, busiest, partner, gap)
            if trade and (best is None or trade[0] < best[0]):
                best = (trade[0], partner, *trade[1:])
        if best is None:
            break
        _, partner, i, j = best
        sent = ranks[busiest].pop(i)
        received = ranks[partner].pop(j) if j is not None else None
        for s, giver, taker in ((sent, busiest, partner), (received, partner, busiest)):
            if s is not None:
                ranks[taker].insert(bisect_left(ranks[taker], s.load, key=lambda s: s.load), s)
                loads[giver] -= s.load
                loads[taker] += s.load
                used[s.device][giver] -= s.size_bytes
                used[s.device][taker] += s.size_bytes
    return ranks


def _best_trade(
    ranks: Placement,
    used: dict[str, list[int]],
    memory: MemoryLimits,
    giver: int,
    taker: int,
    gap: int,
) -> tuple[int, int, int | None] | None:
    """Returns the trade with the least maximum load of the pair, None if none lowers it.

    Returns:
        (that load minus the giver's, which is `gap` above the taker's; number of the slice to give;
        number of the slice to take for it, or None).
    """
    best = None
    candidates = ranks[taker]
    loads = [s.load for s in candidates]
    for i, sent in enumerate(ranks[giver]):
        around = bisect_left(loads, sent.load - gap // 2)
        for j in (None, around - 1, around):
            if j is not None and not 0 <= j < len(candidates):
                continue
            received = candidates[j] if j is not None else None
            shift = sent.load - (received.load if received else 0)
            if not 0 < shift < gap:
                continue
            if best is not None and max(-shift, shift - gap) >= best[0]:
                continue
            if _trade_fits(used, memory, giver, taker, sent, received):
                best = (max(-shift, shift - gap), i, j)
    return best


def _trade_fits(
    used: dict[str, list[int]],
    memory: MemoryLimits,
    giver: int,
    taker: int,
    sent: Slice,
    received: Slice | None,
) -> bool:
    freed = received.size_bytes if received and received.device == sent.device else 0
    if not memory.fits(used[sent.device][taker], sent, freed):
        return False
    if received is None:
        return True
    freed = sent.size_bytes if received.device == sent.device else 0
    return memory.fits(used[received.device][giver], received, freed)


def _starts_with_host(
    objective: Objective, slices: Sequence[Slice], memory: MemoryLimits
) -> Iterator[Placement]:
    """Yields a placement with the least read slices in host memory, no more of them than needed."""
    world_size = objective.workload.world_size
    device = _weigh(objective, slices, DEVICE)
    host = _weigh(objective, slices, HOST)
    order = sorted(
        range(len(slices)),
        key=lambda i: lookups_per_byte(objective.workload, slices[i], slices[i].size_bytes),
    )

    def place_rest(num_on_host: int) -> Placement | None:
        rest = [device[i] for i in order[num_on_host:]]
        return next(_starts(rest, world_size, memory), None)

    low, high = -1, len(slices)  # low does not fit, high does: it leaves the devices empty
    best = place_rest(high)
    while high - low > 1:
        middle = (low + high) // 2
        placement = place_rest(middle)
        if placement is None:
            low = middle
        else:
            high, best = middle, placement
    if best is None:
        return
    placement = place_largest_first([host[i] for i in order[:high]], best, memory)
    if placement is not None:
        yield placement
