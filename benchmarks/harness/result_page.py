"""Results pages in Markdown with facts on the machine, and the exit status of a benchmark."""

import datetime
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil

from config import command as command_line
from config.command import CommandOptions, Options
from config.flag import flag

_NOTABLE_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(CommandOptions):
    """Page of a benchmark."""

    output: Path | None = flag(None, "Markdown page to write")


@dataclass(frozen=True, kw_only=True)
class QuickOptions(BenchmarkOptions):
    """A benchmark that tests run."""

    quick: bool = flag(False, "tiny sizes, for tests: no targets are judged")


def parse(
    options: type[Options],
    argv: Sequence[str] | None,
    name: str,
    description: str,
    **defaults: Any,
) -> Options:
    """Reads the command line of a benchmark; an error ends the process with status 2."""
    try:
        text = description.splitlines()[0]
        return command_line.parse(options, argv, f"benchmarks.{name}", text, defaults=defaults)
    except ValueError as error:
        refuse(str(error))


def refuse(message: str) -> NoReturn:
    """Ends the process with status 2: it cannot measure; 1 stands for a missed target."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def machine() -> list[str]:
    """Facts on this machine for the head of a page."""
    flags = _cpuinfo("flags").split()
    family = f"family {_cpuinfo('cpu family')} model {_cpuinfo('model')}"
    cores = len(os.sched_getaffinity(0))
    notable = " ".join(flag for flag in _NOTABLE_FLAGS if flag in flags)
    return [
        f"date: {datetime.date.today().isoformat()}",
        f"processor: {_cpuinfo('model name')} ({family}), {cores} cores; {notable}",
        f"memory: {psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"system: {platform.system()} {platform.release()}, Python {platform.python_version()}",
    ]


def busy_cpu_s() -> float:
    """CPU seconds of all processes since the start of the machine; steal included."""
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


def command(name: str, args: CommandOptions) -> str:
    """The command line of a benchmark with the values of all flags but those of paths."""
    words = [f"python -m benchmarks.{name}"]
    for flag_name, value in vars(args).items():
        if value is None or value is False or value in ("", ()) or isinstance(value, Path):
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else value
        words.append(f"--{flag_name}" if value is True else f"--{flag_name} {text}")
    return f"`{' '.join(words)}`"


def in_turns(sides: Sequence, rounds: int) -> Iterator:
    """Yields all sides in each round, in an order that alternates from round to round."""
    for number in range(rounds):
        yield from sides[:: 1 if number % 2 else -1]


def summary(values, form: str = ".0f") -> str:
    """Median and quartiles."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:{form}} [{low:{form}}, {high:{form}}]"


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Median, lowest and highest."""
    return f"{np.median(values):{form}} [{min(values):{form}}, {max(values):{form}}]"


def table(columns: Sequence[str], rows: Iterable[Sequence], num_text: int = 1) -> list[str]:
    """Lines of a table, of which the first `num_text` columns are text and the others numbers."""
    alignment = ["---"] * num_text + ["---:"] * (len(columns) - num_text)
    return [f"| {' | '.join(map(str, row))} |" for row in (columns, alignment, *rows)]


class Page:
    """A results page: command and facts, also on the machine; sections, and verdicts."""

    def __init__(self, title: str, name: str, args: BenchmarkOptions, facts: Iterable[str]):
        facts = (f"- {fact}" for fact in (*machine(), *facts))
        self._lines = [f"# {title}", "", command(name, args), "", *facts]
        self._verdicts: list[str] = []
        self._output, self._is_quick = args.output, getattr(args, "quick", False)
        self.is_met = True

    def add(self, name: str, *lines: str) -> None:
        """Adds a section."""
        self._lines += ["", f"## {name}", "", *lines]

    def judge(self, text: str, target: object = None, is_met: bool = True) -> None:
        """Adds a verdict: for information, or on a target, which decides the exit status."""
        verdict = "for information"
        if target is not None and not self._is_quick:
            self.is_met &= bool(is_met)
            verdict = f"target {target}: {'met' if is_met else 'MISSED'}"
        self._verdicts.append(f"- {text}; {verdict}")

    def __str__(self) -> str:
        verdicts = ["", "## Verdict", "", *self._verdicts] if self._verdicts else []
        return "\n".join([*self._lines, *verdicts, ""])

    def finish(self) -> int:
        """Prints the page and writes it to `--output`; returns 1 if a target is missed, else 0."""
        print(self, end="")
        if self._output:
            self._output.write_text(str(self))
        return 0 if self.is_met else 1
