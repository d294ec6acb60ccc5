"""Memory that the embedding tables of a rank may use: of its GPU, or of the machine."""

from pathlib import Path
from typing import NamedTuple

from distributed_embeddings.collectives import World

from runtime.hardware.gpu import Gpu

# Hierarchies of control groups, by their names in /proc/self/cgroup ("" is version 2): folder,
# files with the limit and the usage in bytes, and the prefix of names in memory.stat which count
# the groups below, too.
_HIERARCHIES = {
    "": ("", "memory.max", "memory.current", ""),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
_CACHED = ("active_file", "inactive_file")  # pages of files, which Linux frees on demand


class RankMemory(NamedTuple):
    """Memory of one rank in bytes; None where it is not known.

    Attributes:
        device_bytes: total memory of the rank's GPU; on a CPU its share of the machine's available
            memory, which `source` describes for messages.
        host_bytes: with a GPU, that share; None on a CPU, where it is the same memory.
    """

    device_bytes: int | None = None
    host_bytes: int | None = None
    source: str = ""


def read_memory(kind: str, gpu: Gpu | None, num_local_ranks: int) -> RankMemory:
    """Reads the memory of this rank; `gpu` is its GPU, if the driver describes it."""
    available = available_bytes()
    share = None if available is None else available // num_local_ranks
    if kind == "GPU":
        return RankMemory(gpu and gpu.memory_bytes, share, "total memory of the GPU")
    ranks = f", shared by {num_local_ranks} ranks" if num_local_ranks > 1 else ""
    return RankMemory(share, None, f"available memory of the machine{ranks}")


def agree_on_memory(memory: RankMemory, world: World) -> RankMemory:
    """Returns the least memory of all ranks, the same on every rank; a collective.

    All ranks compute one plan, so they must use the same figures. A figure that one rank does not
    know is unknown to all.
    """
    by_rank = world.gather_objects(list(memory), "memory")

    def least(values: tuple[int | None, ...]) -> int | None:
        known = [value for value in values if value is not None]
        return min(known) if len(known) == len(values) else None

    device_bytes, host_bytes, _ = zip(*by_rank, strict=True)
    smallest = least(device_bytes)
    source = memory.source if smallest is None else by_rank[device_bytes.index(smallest)][2]
    return RankMemory(smallest, least(host_bytes), source)


def available_bytes(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Returns the memory that this process can still allocate, None if Linux does not report it.

    It is the available memory of the machine, or what the control groups of this process leave of
    their limits where that is less. `proc` and `groups` are mount points.
    """
    amounts = []
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            amounts.append(int(value.split()[0]) * 1024)
    for line in _lines(proc / "self/cgroup"):
        _, hierarchy, path = line.split(":", 2)
        if hierarchy not in _HIERARCHIES:
            continue
        folder, *files = _HIERARCHIES[hierarchy]
        # Limits of all groups above hold, too. In a container the path may be that of the host,
        # and the group of the container is the uppermost that is visible.
        own = Path(path.strip("/"))
        for group in (own, *own.parents):
            left = _left_in_group(groups / folder / group, *files)
            if left is not None:
                amounts.append(left)
    return max(min(amounts), 0) if amounts else None


def _left_in_group(group: Path, limit: str, usage: str, prefix: str) -> int | None:
    """Returns the bytes that a control group leaves of its limit, None without a limit."""
    limits, used = (_lines(group / name)[:1] for name in (limit, usage))
    if not (limits and limits[0].isdecimal()):
        return None
    stat = dict(line.split(" ", 1) for line in _lines(group / "memory.stat"))
    cached = sum(int(stat.get(prefix + name, 0)) for name in _CACHED)
    return int(limits[0]) - int(used[0] if used else 0) + cached


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
