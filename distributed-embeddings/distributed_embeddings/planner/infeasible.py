"""Error report for an infeasible plan, with solutions that were verified."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from distributed_embeddings.planner.estimators import Workload
from distributed_embeddings.planner.partitioners import split_kinds
from distributed_embeddings.planner.plan_text import format_bytes
from distributed_embeddings.planner.solve import solve
from distributed_embeddings.planner.types import Limits

_MAX_WORLD_SIZES = 12  # numbers of ranks that are tried
_MAX_MORE_RANKS = 64  # times the current number of ranks
_MAX_ROW_THRESHOLDS = 4  # tried: the sizes of the largest tables


def infeasible_report(workload: Workload, limits: Limits, strategy: str) -> str:
    """Returns the memory that is required and available, and solutions that were tried."""
    problem = _Infeasible(workload, limits, strategy)
    sizes, state = problem.sizes, problem.state_bytes
    total, largest = sum(sizes), max(range(len(sizes)), key=sizes.__getitem__)
    memories = []
    if limits.device_memory_bytes is not None:
        memories.append(f"{format_bytes(limits.device_memory_bytes)} of device memory for tables")
    if limits.host_memory_bytes is not None:
        memories.append(f"{format_bytes(limits.host_memory_bytes)} of host memory")
    lines = [
        f"The tables do not fit with strategy {strategy!r}. Required: {format_bytes(total)} "
        f"({format_bytes(total - state)} of weights, {format_bytes(state)} of optimizer state), "
        f"the largest table {workload.tables[largest].name!r} {format_bytes(sizes[largest])}. "
        f"Available: {workload.world_size} ranks with {' and '.join(memories)} each, "
        f"{format_bytes(problem.available_bytes)} in total. Possible solutions:"
    ]
    lines += [f"  {i}) {solution}" for i, solution in enumerate(problem.solutions(), 1)]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Infeasible:
    """Workload without a plan within its limits."""

    workload: Workload
    limits: Limits
    strategy: str

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes of each table with its optimizer state."""
        return [self.workload.table_bytes(t) for t in range(len(self.workload.tables))]

    @property
    def state_bytes(self) -> int:
        tables = self.workload.tables
        return sum(self.workload.state_bytes(table.rows, table.dim) for table in tables)

    @property
    def rank_bytes(self) -> int:
        """Memory of a rank."""
        return (self.limits.device_memory_bytes or 0) + (self.limits.host_memory_bytes or 0)

    @property
    def available_bytes(self) -> int:
        return self.workload.world_size * self.rank_bytes

    def fits_with(self, **limits: int | None) -> bool:
        """Returns whether a plan exists with other limits."""
        return solve(self.workload, replace(self.limits, **limits), "auto", True) is not None

    def solutions(self) -> Iterator[str]:
        """Yields solutions, the least intrusive first."""
        limits, workload = self.limits, self.workload
        if self.strategy not in ("auto", "cost"):
            result = "sufficient" if self.fits_with() else "not sufficient alone"
            yield f"strategy='auto' cuts tables where memory requires it: {result}"
        if world_size := self._sufficient_ranks():
            yield f"more ranks: {world_size} are sufficient"
        if (threshold := self._sufficient_row_threshold()) is not None:
            yield f"row_slice_threshold={threshold}: sufficient"
        if limits.data_parallel_threshold:
            fits = self.fits_with(data_parallel_threshold=None)
            result = "none is sufficient" if fits else "fewer replicas on every rank"
            yield f"a smaller data_parallel_threshold: {result}"
        if host_bytes := self._sufficient_host_bytes():
            yield (
                f"host memory for the least read tables: host_memory_bytes={host_bytes} "
                f"({format_bytes(host_bytes)} per rank) is sufficient"
            )
        if self.state_bytes:
            stateless = replace(workload, state_bytes_per_element=0.0, state_bytes_per_row=0.0)
            fits = solve(stateless, limits, "auto", True) is not None
            result = "none (SGD) is sufficient" if fits else "not sufficient alone, not even none"
            yield f"an optimizer with less state: {result}"
        if limits.cpu_offloading_threshold_bytes is not None:
            yield "another cpu_offloading_threshold_bytes: tables beyond it go to host memory"
        smaller = "smaller tables (smaller dim, fewer rows by a frequency threshold)"
        if limits.device_memory_bytes is not None and self.available_bytes < sum(self.sizes):
            share = self.available_bytes / sum(self.sizes)
            smaller += f": {100 * share:.0f} % of the bytes fit"
        yield smaller

    def _sufficient_ranks(self) -> int | None:
        """Tries numbers of ranks, from the least one with enough memory on."""
        workload = self.workload
        copies = sum(self.sizes[t] for t in split_kinds(workload, self.limits)[0])
        room = self.rank_bytes - copies
        if room <= 0:
            return None
        world_size = max(workload.world_size + 1, -(-(sum(self.sizes) - copies) // room))
        maximum = _MAX_MORE_RANKS * workload.world_size
        if not self.limits.row_slice_threshold:  # then a rank holds at least a column
            maximum = min(maximum, sum(table.dim for table in workload.tables))
        for _ in range(_MAX_WORLD_SIZES):
            if world_size > maximum:
                break
            enlarged = replace(workload, world_size=world_size)
            if solve(enlarged, self.limits, self.strategy, True) is not None:
                return world_size
            world_size += max(1, world_size // 8)
        return None

    def _sufficient_row_threshold(self) -> int | None:
        if not self.workload.dp_input:
            return None
        thresholds = sorted({table.num_elements for table in self.workload.tables}, reverse=True)
        for threshold in thresholds[:_MAX_ROW_THRESHOLDS]:
            if self.fits_with(row_slice_threshold=threshold):
                return threshold
        return None

    def _sufficient_host_bytes(self) -> int | None:
        """Tries host memory per rank: its share of the missing bytes, or a multiple."""
        sizes, world_size = self.sizes, self.workload.world_size
        missing = sum(sizes) - world_size * (self.limits.device_memory_bytes or 0)
        share = -(-max(missing, max(sizes)) // world_size)
        for host_bytes in (share * 5 // 4, 2 * share, 4 * share, 8 * share, sum(sizes)):
            if self.fits_with(host_memory_bytes=host_bytes):
                return host_bytes
        return None
