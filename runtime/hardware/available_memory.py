"""Memory that this process can still allocate; served models have a copy of this file."""

from pathlib import Path

# Hierarchies of control groups, by their names in /proc/self/cgroup ("" is version 2): folder,
# files with the limit and the usage in bytes, and the prefix of names in memory.stat which count
# the groups below, too.
_HIERARCHIES = {
    "": ("", "memory.max", "memory.current", ""),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
_CACHED = ("active_file", "inactive_file")  # pages of files, which Linux frees on demand


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
