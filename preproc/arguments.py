"""Flags that preparations have in common, and checks of their values."""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.command import CommandOptions, parse
from config.flag import Need, Values, excludes, flag, requires
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.engines import environment
from preproc.engines.size_flags import parse_bytes
from runtime.cli import exit_status

MIN_MEMORY_BYTES = 384 << 20
_DELIMITERS = {"tab": "\t", "\\t": "\t"}


def no_user_left(least: str, most: int) -> ValueError:
    """Returns the error of a log without a user of `least` events; most: of a user."""
    remedy = "require at most that" if most > 1 else "prepare a larger log"
    return ValueError(f"no user has {least} or more; the most that one has is {most:,}: {remedy}")


def run_command(
    name: str,
    kind: type[CommandOptions],
    prepare: Callable,
    interrupted: str,
    argv: list[str] | None,
    preset: Mapping[str, str] = {},
) -> int:
    """Runs a preparation, in the environment of its engine; see `runtime.cli.exit_status`.

    Args:
        name: of its package in `preproc`.
        kind: dataclass of its flags, with `engine` among them.
        prepare: options -> a message for people, or None.
        interrupted: the message after Ctrl-C.
        argv: None: the flags of this process, which another environment may replace.
        preset: defaults of the command's flags that differ.
    """

    def work() -> None:
        options = parse(kind, argv, f"preproc.{name}", defaults=preset)
        if argv is None:
            environment.enter(options.engine, f"preproc.{name}")
        if message := prepare(options):
            print(message)

    return exit_status(work, interrupted)


def default_memory_bytes() -> int:
    """Returns 60 % of the memory that this process may use: the machine's or its control group's.

    It is at least `MIN_MEMORY_BYTES`.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError):
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        memory = min(memory, int(limit)) if limit.isdigit() else memory
    return max(MIN_MEMORY_BYTES, int(0.6 * memory))


DELIMITER_HELP = (
    "of CSV files: a character, or 'tab' (default: the tab, bar, semicolon or comma that divides "
    "the first lines equally often)"
)


def parse_delimiter(text: str) -> str:
    """Returns a tab for "tab" and any other text unchanged."""
    return _DELIMITERS.get(text, text)


MISSING_HELP = (
    "more spellings of missing values in texts, comma-separated; with '=' before them, these "
    f"instead of {' '.join(MISSING_VALUES[1:])}. The empty text is always one (default: none)"
)


def parse_missing(text: str) -> tuple[str, ...]:
    """Returns the spellings of missing values of `--missing_values`, the empty text first."""
    own = text.split(",")
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


def check_columns(delimiter: str | None, columns: dict[str, str]) -> None:
    """Raises ValueError unless a table's delimiter and columns, flag -> name, can be used."""
    if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
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


def _is_local(flags: Values) -> bool:
    return (flags.value("master") or "local").startswith("local")


_spark_flag = functools.partial(flag, group="Spark", needs=(requires("engine", "spark"),))


@dataclass(frozen=True, kw_only=True)
class MachineOptions(CommandOptions):
    """Resources of a preparation, and location and settings of Spark.

    The memory limit is of the whole process. Limits of memory and threads are, with Spark, those of
    a local master. A subclass has the flag `engine`.
    """

    memory_limit_bytes: int = flag(
        default_memory_bytes,
        "memory limit, like 8GB (default: 60 % of the machine's memory)",
        parse=parse_bytes,
        metavar="SIZE",
        needs=(
            Need(
                "with a local --master (a cluster's: --spark_conf spark.executor.memory=...)",
                _is_local,
            ),
        ),
    )
    threads: int = flag(
        lambda: len(os.sched_getaffinity(0)),
        "number of threads (default: one per core)",
        at_least=1,
        needs=(excludes("master"),),
    )
    temp_dir: Path | None = flag(None, "folder for temporary files (default: next to the output)")
    master: str | None = _spark_flag(
        None,
        "local[N], spark://HOST:PORT, yarn or k8s://URL (default: local[--threads]). A cluster's "
        "memory is set by spark-submit or --spark_conf, and its workers have temporary folders of "
        "their own",
    )
    spark_conf: tuple[str, ...] = _spark_flag(
        (), "a setting; may be repeated", is_repeated=True, metavar="KEY=VALUE"
    )

    def __post_init__(self):
        super().__post_init__()
        if self.memory_limit_bytes < MIN_MEMORY_BYTES:
            raise ValueError(
                f"--memory_limit must be {MIN_MEMORY_BYTES >> 20} MiB or more, got "
                f"{self.memory_limit_bytes / (1 << 20):.0f} MiB"
            )
        if self.temp_dir is not None and not self.temp_dir.is_dir():
            raise ValueError(f"--temp_dir {self.temp_dir} is not a folder; create it first")

    def engine_settings(self) -> dict:
        """Returns keyword arguments of `preproc.engines.open_engine.open_engine`."""
        names = ("memory_limit_bytes", "threads", "master", "spark_conf")
        return {name: getattr(self, name) for name in names}
