"""Flags that preparations have in common, and checks of their values."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from preproc.encoding.columns import MISSING_VALUES
from preproc.engines import environment
from preproc.engines.memory import parse_bytes
from runtime.cli import exit_status
from runtime.options import check_limits, flag, flags_of

MIN_MEMORY_BYTES = 384 << 20
_DELIMITERS = {"tab": "\t", "\\t": "\t"}


def no_user_left(least: str, most: int) -> ValueError:
    """Returns the error of a log without a user of `least` events; most: of a user."""
    remedy = "require at most that" if most > 1 else "prepare a larger log"
    return ValueError(f"no user has {least} or more; the most that one has is {most:,}: {remedy}")


def run_command(
    name: str, parse: Callable, prepare: Callable, interrupted: str, argv: list[str] | None
) -> int:
    """Runs a preparation, in the environment of its engine; see `runtime.cli.exit_status`.

    Args:
        name: of its package in `preproc`.
        parse: flags -> options, with `engine` among them.
        prepare: options -> a message for people, or None.
        interrupted: the message after Ctrl-C.
        argv: None: the flags of this process, which another environment may replace.
    """

    def work() -> None:
        options = parse(argv)
        if argv is None:
            environment.enter(options.engine, f"preproc.{name}")
        if message := prepare(options):
            print(message)

    return exit_status(work, interrupted)


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Resources of a preparation; the memory limit is of the whole process."""

    memory_limit_bytes: int = flag(
        4 << 30,
        "memory limit, like 8GB (default: 60 %% of the machine's memory)",
        type=str,
        metavar="SIZE",
    )
    threads: int = flag(1, "number of threads (default: one per core)", at_least=1)
    temp_dir: Path | None = flag(None, "folder for temporary files (default: next to the output)")

    def __post_init__(self):
        check_limits(self)
        if self.memory_limit_bytes < MIN_MEMORY_BYTES:
            raise ValueError(
                f"--memory_limit must be {MIN_MEMORY_BYTES >> 20} MiB or more, got "
                f"{self.memory_limit_bytes / (1 << 20):.0f} MiB"
            )
        if self.temp_dir is not None and not self.temp_dir.is_dir():
            raise ValueError(f"--temp_dir {self.temp_dir} is not a folder; create it first")


def passed_flags(parser: argparse.ArgumentParser, argv: list[str] | None) -> dict:
    """Parses a command line; returns the flags that were passed, by name."""
    flags = vars(parser.parse_args(argv))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in flags.items()
        if value is not None and value is not False
    }


def complete_machine_flags(flags: dict) -> dict:
    """Returns keyword arguments of `MachineOptions`; raises ValueError for an invalid size."""
    rest = dict(flags)
    if "memory_limit" in rest:
        limit = parse_bytes(rest.pop("memory_limit"))
    else:
        limit = max(MIN_MEMORY_BYTES, int(0.6 * machine_memory_bytes()))
    return {"threads": len(os.sched_getaffinity(0)), **rest, "memory_limit_bytes": limit}


def refuse_unread_flags(flags: dict, readers: Iterable[tuple[str, str]]) -> None:
    """Raises ValueError if a flag was passed that nothing reads; readers: (flag, its reader)."""
    for name, reader in readers:
        if name in flags:
            raise ValueError(f"--{name} is only read with {reader}; leave it out")


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


MISSING_HELP = (
    "more spellings of missing values in texts, comma-separated; with '=' before them, these "
    f"instead of {' '.join(MISSING_VALUES[1:])}. The empty text is always one"
)


def parse_missing(text: str | None) -> tuple[str, ...]:
    """Returns the spellings of missing values of `--missing_values`, the empty text first."""
    own = (text or "").split(",")
    if own[0].startswith("="):
        return tuple(dict.fromkeys(["", own[0][1:], *own[1:]]))
    return tuple(dict.fromkeys([*MISSING_VALUES, *own]))


def spelled_missing(text: str | None, missing: Sequence[str]) -> str:
    """Returns what a message adds where a text is a spelling of a missing value, after its fault.

    Args:
        text: the value; None or blank: it is plainly missing, and nothing is added.
        missing: the spellings.
    """
    spelling = (text or "").strip()
    if not spelling:
        return ""
    others = ",".join(other for other in missing if other not in ("", spelling))
    return (
        f" ({spelling!r} is a spelling of a missing value; if it is a value here, use "
        f"--missing_values '={others}')"
    )


def check_columns(delimiter: str, columns: dict[str, str]) -> None:
    """Raises ValueError unless a table's delimiter and columns, flag -> name, can be used."""
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ValueError(
            "--delimiter must be one ASCII character other than a quote or line end, or 'tab'; "
            f"got {delimiter!r}"
        )
    if len(set(columns.values())) < len(columns):
        *names, last = (f"--{name}" for name in columns)
        raise ValueError(
            f"{', '.join(names)} and {last} must be three columns, got "
            f"{', '.join(columns.values())}"
        )


SPARK = "Spark"  # group of the flags below, and of those that a preparation adds to them


@dataclass(frozen=True, kw_only=True)
class SparkMachineOptions(MachineOptions):
    """Location and settings of Spark; limits of memory and threads are those of a local master."""

    master: str | None = flag(
        None,
        "local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[--threads]). A cluster's "
        "memory is set by spark-submit or --spark_conf, and its workers have temporary folders of "
        "their own",
        SPARK,
    )
    spark_conf: tuple[str, ...] = flag(
        (), "a setting; may be repeated", SPARK, action="append", nargs=None, metavar="KEY=VALUE"
    )

    def engine_settings(self) -> dict:
        """Returns keyword arguments of `preproc.engines.engine.open_engine`."""
        names = ("memory_limit_bytes", "threads", "master", "spark_conf")
        return {name: getattr(self, name) for name in names}


def unread_spark_flags(options: type, flags: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields flags of a command line that Spark, or another engine, does not read, with a reader.

    options: dataclass of all flags, with `engine` among them.
    """
    if flags.get("engine") != "spark":
        yield from ((name, "--engine spark") for name in flags_of(options, SPARK))
    if "master" in flags:
        yield "threads", "no --master, which specifies them itself, like local[4]"
        if not str(flags["master"]).startswith("local"):
            yield (
                "memory_limit",
                "a local --master; a cluster's is --spark_conf spark.executor.memory=...",
            )
