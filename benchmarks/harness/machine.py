"""The machine that a result was measured on."""

import datetime
import os
import platform
from pathlib import Path

_NOTABLE_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
# Shares of the memory: from there on Linux writes in the background, and writers wait for the disk.
_DIRTY_LIMITS = ("dirty_background_ratio", "dirty_ratio")


def cpu_flags() -> set[str]:
    """Instruction sets of the processor, named as in /proc/cpuinfo; empty without that file."""
    return set(_cpuinfo("flags").split())


def has_fast_bfloat16() -> bool:
    """Returns whether the processor multiplies bfloat16 matrices (AMX or AVX512-BF16)."""
    return bool(cpu_flags() & {"amx_bf16", "avx512_bf16"})


def describe() -> dict[str, str]:
    """Facts for the head of a results page."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    family = f"family {_cpuinfo('cpu family')} model {_cpuinfo('model')}"
    flags = " ".join(flag for flag in _NOTABLE_FLAGS if flag in cpu_flags())
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{_cpuinfo('model name')} ({family}), {cores} cores; {flags}",
        "memory": f"{memory_gib:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def describe_disk(path: Path) -> str:
    """The file system of a folder, its device, and when Linux begins to write in the background."""
    path, mounts = path.resolve(), {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted, _, kind = line.partition(" - ")
        point, options = mounted.split()[4:6]
        kind, source, more = kind.split()
        mounts[Path(point)] = (kind, Path(source).name, {*options.split(","), *more.split(",")})
    place = next(p for p in (path, *path.parents) if p in mounts)
    kind, device, options = mounts[place]
    dirty = (f"{n} {Path('/proc/sys/vm', n).read_text().strip()} %" for n in _DIRTY_LIMITS)
    discard = ", mounted with discard" if "discard" in options else ""
    return f"{kind} on {device}{discard}; {', '.join(dirty)}"


def reset_peak_memory() -> None:
    """Lets Linux forget how much memory this process had (`peak_memory_mib`)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mib() -> float:
    """The most resident memory of this process since the last reset."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def busy_cpu_s() -> float:
    """CPU seconds that all processes together have used since the start; steal included."""
    user, nice, system, _, _, irq, softirq, steal = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _cpuinfo(key: str) -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown" if key != "flags" else ""
