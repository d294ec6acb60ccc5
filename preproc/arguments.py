"""Command-line flags that the preparations share: machine resources and the CSV delimiter."""

import argparse
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MIN_MEMORY_BYTES = 384 << 20
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_DELIMITERS = {"tab": "\t", "\\t": "\t"}


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Resources that a preparation may use.

    Attributes:
        memory_limit_bytes: limit of the whole process.
        threads: number of threads.
        temp_dir: folder for temporary files; None for one next to the output.

    Raises:
        ValueError: a value is out of range, or the folder does not exist.
    """

    memory_limit_bytes: int = 4 << 30
    threads: int = 1
    temp_dir: Path | None = None

    def __post_init__(self):
        if self.threads < 1:
            raise ValueError(f"--threads must be 1 or more, got {self.threads}")
        if self.memory_limit_bytes < MIN_MEMORY_BYTES:
            raise ValueError(
                f"--memory_limit must be {MIN_MEMORY_BYTES >> 20} MiB or more, got "
                f"{self.memory_limit_bytes / (1 << 20):.0f} MiB"
            )
        if self.temp_dir is not None and not self.temp_dir.is_dir():
            raise ValueError(f"--temp_dir {self.temp_dir} is not a folder; create it first")


def add_machine_flags(
    parser: argparse.ArgumentParser, *, memory: str = "", threads: str = "", temp_dir: str = ""
) -> None:
    """Adds the flags of `MachineOptions`.

    Args:
        parser: the parser to extend.
        memory, threads, temp_dir: text to append to the help of each flag.
    """
    parser.add_argument(
        "--memory_limit",
        metavar="SIZE",
        help="memory limit, like 8GB (default: 60 %% of the machine's memory)" + memory,
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="number of threads (default: one per core)" + threads,
    )
    parser.add_argument(
        "--temp_dir",
        type=Path,
        metavar="DIR",
        help="folder for temporary files (default: next to the output)" + temp_dir,
    )


def passed_flags(parser: argparse.ArgumentParser, argv: list[str] | None) -> dict:
    """Parses a command line; returns the flags that were passed, by name."""
    flags = vars(parser.parse_args(argv))
    return {
        name: value for name, value in flags.items() if value is not None and value is not False
    }


def complete_machine_flags(flags: dict) -> dict:
    """Returns the flags with those of `MachineOptions` completed, as keyword arguments.

    Raises:
        ValueError: --memory_limit is not a size.
    """
    text = flags.get("memory_limit")
    limit = parse_size(text) if text is not None else int(0.6 * machine_memory_bytes())
    rest = {name: value for name, value in flags.items() if name != "memory_limit"}
    return {
        "threads": len(os.sched_getaffinity(0)),
        **rest,
        "memory_limit_bytes": limit if text is not None else max(MIN_MEMORY_BYTES, limit),
    }


def refuse_unread_flags(flags: dict, readers: Iterable[tuple[str, str]]) -> None:
    """Raises ValueError for a flag that nothing reads.

    Args:
        flags: flags that were passed.
        readers: pairs of a flag that is not read and what would read it.
    """
    for name, reader in readers:
        if name in flags:
            raise ValueError(f"--{name} is only read with {reader}; leave it out")


def parse_size(text: str) -> int:
    """Converts "4GB", "512 MiB" or "2000000000" to bytes.

    Raises:
        ValueError: the text is not a size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = match[2].upper() if match else "?"
    if not match or (unit and unit not in _UNITS):
        raise ValueError(f"expected a size like 4GB, 512MiB or a number of bytes, got {text!r}")
    return int(float(match[1]) * _UNITS.get(unit, 1))


def machine_memory_bytes() -> int:
    """Returns the memory that this process may use: the machine's or its control group's."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory


def parse_delimiter(text: str) -> str:
    """Returns a tab for "tab" and any other text unchanged."""
    return _DELIMITERS.get(text, text)


def check_delimiter(delimiter: str) -> None:
    """Raises ValueError unless the text is one ASCII character, not a quote or a line end."""
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ValueError(
            "--delimiter must be one ASCII character other than a quote or line end, or 'tab'; "
            f"got {delimiter!r}"
        )
