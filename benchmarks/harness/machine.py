"""The machine that a result was measured on."""

import datetime
import os
import platform
from pathlib import Path

import psutil

_NOTABLE_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
# Shares of the memory: from there on Linux writes in the background, and writers wait for the disk.
_DIRTY_LIMITS = ("dirty_background_ratio", "dirty_ratio")


def has_fast_bfloat16() -> bool:
    """Returns whether the processor multiplies bfloat16 matrices (AMX or AVX512-BF16)."""
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(_cpuinfo("flags").split())


def describe() -> dict[str, str]:
    """Facts for the head of a results page."""
    cores = len(os.sched_getaffinity(0))
    family = f"family {_cpuinfo('cpu family')} model {_cpuinfo('model')}"
    cpu_flags = _cpuinfo("flags").split()
    flags = " ".join(flag for flag in _NOTABLE_FLAGS if flag in cpu_flags)
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{_cpuinfo('model name')} ({family}), {cores} cores; {flags}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def describe_disk(path: Path) -> str:
    """The file system of a folder, its device, and when Linux begins to write in the background."""
    path = path.resolve()
    mounts = {Path(each.mountpoint): each for each in psutil.disk_partitions(all=True)}
    mount = next(mounts[place] for place in (path, *path.parents) if place in mounts)
    limits = (
        f"{name} {Path('/proc/sys/vm', name).read_text().strip()} %" for name in _DIRTY_LIMITS
    )
    discard = ", mounted with discard" if "discard" in mount.opts.split(",") else ""
    return f"{mount.fstype} on {Path(mount.device).name}{discard}; {', '.join(limits)}"


def busy_cpu_s() -> float:
    """CPU seconds that all processes together have used since the start; steal included."""
    times = psutil.cpu_times()
    guests = times.guest + times.guest_nice  # part of user and nice
    return sum(times) - times.idle - times.iowait - guests


def _cpuinfo(key: str) -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown" if key != "flags" else ""
