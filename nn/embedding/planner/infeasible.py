"""What to say when tables do not fit: what is needed, what there is, what would help."""

from collections.abc import Callable
from dataclasses import replace

from nn.embedding.planner.cost import Workload
from nn.embedding.planner.placement import split_kinds
from nn.embedding.planner.report import format_bytes
from nn.embedding.planner.types import Limits

_MAX_WORLD_SIZES = 12  # tried for "how many ranks would do?"
_MAX_MORE_RANKS = 64  # times the ranks asked for
_MAX_ROW_THRESHOLDS = 4  # tried: the sizes of the largest tables


def misfit_message(
    solve: Callable[..., object | None], workload: Workload, limits: Limits, strategy: str
) -> str:
    """Needed, there, and ways out; those that are said to do were tried.

    Args:
      solve: (workload, limits, strategy, quick) -> a plan or None.
    """

    def fits(strategy: str = "auto", limits: Limits = limits, **changes) -> bool:
        return solve(replace(workload, **changes), limits, strategy, True) is not None

    sizes = [workload.table_bytes(t) for t in range(len(workload.tables))]
    state = sum(workload.state_bytes(table.rows, table.dim) for table in workload.tables)
    total, largest = sum(sizes), max(range(len(sizes)), key=sizes.__getitem__)
    room = workload.world_size * (
        (limits.device_memory_bytes or 0) + (limits.host_memory_bytes or 0)
    )
    ways = []
    if strategy not in ("auto", "cost"):
        if fits():
            ways.append("strategy='auto' cuts tables where memory asks for it: it fits")
        else:
            ways.append("strategy='auto' cuts tables where memory asks for it, a start")
    world_size = _ranks_that_do(fits, workload, limits, strategy, sizes)
    if world_size:
        ways.append(f"more ranks: {world_size} would do")
    if workload.dp_input:
        for threshold in _row_thresholds(workload):
            if fits(limits=replace(limits, row_slice_threshold=threshold)):
                ways.append(f"row_slice_threshold={threshold}: it fits")
                break
    if limits.data_parallel_threshold:
        without = fits(limits=replace(limits, data_parallel_threshold=None))
        so = "without it, it fits" if without else "fewer copies on every rank"
        ways.append(f"a smaller data_parallel_threshold: {so}")
    host_bytes = _host_bytes_that_do(fits, workload, limits, sizes)
    if host_bytes:
        ways.append(
            f"host memory for what is read least: host_memory_bytes={host_bytes} "
            f"({format_bytes(host_bytes)} a rank) would do"
        )
    if state:
        without = fits(state_bytes_per_element=0.0, state_bytes_per_row=0.0)
        ways.append(
            "an optimizer with less state"
            + (
                ": without any (SGD) it fits"
                if without
                else ", but even without any it is too much"
            )
        )
    if limits.cpu_offloading_threshold_bytes is not None:
        ways.append("another cpu_offloading_threshold_bytes: what is past it goes to host memory")
    smaller = "smaller tables (smaller dim, fewer rows by a frequency threshold)"
    if limits.device_memory_bytes is not None and room < total:
        smaller += f": {100 * room / total:.0f} % of the bytes have room"
    ways.append(smaller)
    places = []
    if limits.device_memory_bytes is not None:
        places.append(f"{format_bytes(limits.device_memory_bytes)} of device memory for tables")
    if limits.host_memory_bytes is not None:
        places.append(f"{format_bytes(limits.host_memory_bytes)} of host memory")
    lines = [
        f"The tables do not fit with strategy {strategy!r}. Needed: {format_bytes(total)} "
        f"({format_bytes(total - state)} of weights, {format_bytes(state)} of optimizer state), "
        f"the largest table {workload.tables[largest].name!r} {format_bytes(sizes[largest])}. "
        f"There: {workload.world_size} ranks with {' and '.join(places)} each, "
        f"{format_bytes(room)} in all. Ways out:"
    ]
    lines += [f"  {i}) {way}" for i, way in enumerate(ways, 1)]
    return "\n".join(lines)


def _ranks_that_do(
    fits: Callable[..., bool], workload: Workload, limits: Limits, strategy: str, sizes: list[int]
) -> int | None:
    """A number of ranks with which it fits, None if none was found."""
    copies = sum(sizes[t] for t in split_kinds(workload, limits)[0])
    room = (limits.device_memory_bytes or 0) + (limits.host_memory_bytes or 0) - copies
    if room <= 0:
        return None
    world_size = max(workload.world_size + 1, -(-(sum(sizes) - copies) // room))
    most = _MAX_MORE_RANKS * workload.world_size
    if not limits.row_slice_threshold:  # then a rank holds at least a column
        most = min(most, sum(table.dim for table in workload.tables))
    for _ in range(_MAX_WORLD_SIZES):
        if world_size > most:
            break
        if fits(strategy, world_size=world_size):
            return world_size
        world_size += max(1, world_size // 8)
    return None


def _host_bytes_that_do(
    fits: Callable[..., bool], workload: Workload, limits: Limits, sizes: list[int]
) -> int | None:
    """Host memory of a rank with which it fits: the share of what is missing, or a multiple."""
    missing = sum(sizes) - workload.world_size * (limits.device_memory_bytes or 0)
    share = -(-max(missing, max(sizes)) // workload.world_size)
    for host_bytes in (share * 5 // 4, 2 * share, 4 * share, 8 * share, sum(sizes)):
        if fits(limits=replace(limits, host_memory_bytes=host_bytes)):
            return host_bytes
    return None


def _row_thresholds(workload: Workload) -> list[int]:
    sizes = sorted({table.num_elements for table in workload.tables}, reverse=True)
    return sizes[:_MAX_ROW_THRESHOLDS]
