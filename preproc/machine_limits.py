"""How much memory a preparation may have: the least that it needs, what is asked for, and what is
there."""

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


def machine_memory_bytes() -> int:
    """The memory that this process may use: the machine's, or its control group's if smaller."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory
