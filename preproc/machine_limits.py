"""What of the machine a preparation may use: memory (the least that it needs, what is asked for,
what is there), threads, and a folder for what does not fit."""

import os
import re
from pathlib import Path

MIN_MEMORY_BYTES = 384 << 20
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def parse_size(text: str) -> int:
    """ "4GB", "512 MiB" or "2000000000" -> bytes.

    Raises:
        ValueError: it is no size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = match[2].upper() if match else "?"
    if not match or (unit and unit not in _UNITS):
        raise ValueError(f"{text!r} is no size; write it like 4GB, 512MiB or a number of bytes")
    return int(float(match[1]) * _UNITS.get(unit, 1))


def memory_limit_bytes(text: str | None) -> int:
    """What `--memory_limit` means; None: 60 % of the machine's memory.

    Raises:
        ValueError: it is no size.
    """
    if text is None:
        return max(MIN_MEMORY_BYTES, int(0.6 * machine_memory_bytes()))
    return parse_size(text)


def check_limits(threads: int, memory_bytes: int, temp_dir: Path | None) -> None:
    """Refuses what no preparation can work with.

    Raises:
        ValueError: no thread, too little memory, or a folder that is not there.
    """
    if threads < 1:
        raise ValueError(f"--threads must be 1 or more, found {threads}")
    if memory_bytes < MIN_MEMORY_BYTES:
        raise ValueError(
            f"--memory_limit must be {MIN_MEMORY_BYTES >> 20} MiB or more, found "
            f"{memory_bytes / (1 << 20):.0f} MiB"
        )
    if temp_dir is not None and not temp_dir.is_dir():
        raise ValueError(f"--temp_dir {temp_dir} is no folder; make it first")


def machine_memory_bytes() -> int:
    """The memory that this process may use: the machine's, or its control group's if smaller."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory
