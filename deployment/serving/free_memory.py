"""Memory that is available for mapped tables; `runtime.hardware.memory` without this toolkit."""

import math
from pathlib import Path

# Hierarchies of control groups, by their names in /proc/self/cgroup ("" is version 2): folder, and
# file with a group's limit.
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Returns the available memory, or the least limit of this process's control groups.

    Unlike `runtime.hardware.memory`, counts pages of files as available: they are the tables.
    """
    amounts = [math.inf]
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            amounts.append(int(value.split()[0]) * 1024)
    for line in _lines(proc / "self/cgroup"):
        _, hierarchy, path = line.split(":", 2)
        if hierarchy in _LIMITS:
            folder, file = _LIMITS[hierarchy]
            # Limits of all groups above hold, too. In a container the path may be that of the host,
            # and the container's own group is the uppermost that is visible.
            own = Path(path.strip("/"))
            for group in (own, *own.parents):
                limit = _lines(groups / folder / group / file)
                amounts += [int(text) for text in limit if text.isdecimal()]
    return min(amounts)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
