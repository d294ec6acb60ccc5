"""How much memory is there for what this process reads."""

import math
from pathlib import Path

# Of the hierarchies of control groups, by their names in /proc/self/cgroup ("" is version 2), the
# folder, and the file that has a group's limit.
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """What Linux can free, or the limit of this process's control groups where that is less.

    Args:
      proc, groups: where Linux says it; what it does not say is no limit.
    """
    found = [math.inf]
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            found.append(int(value.split()[0]) * 1024)
    for line in _lines(proc / "self/cgroup"):
        _, hierarchy, path = line.split(":", 2)
        if hierarchy in _LIMITS:
            folder, file = _LIMITS[hierarchy]
            # Each group above has its own. In a container the path may be one of the host's, and
            # the container's own group is the uppermost that is seen.
            own = Path(path.strip("/"))
            for group in (own, *own.parents):
                limit = _lines(groups / folder / group / file)
                found += [int(text) for text in limit if text.isdecimal()]
    return min(found)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
