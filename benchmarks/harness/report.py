"""Results pages in Markdown, and the exit status of a benchmark."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import machine

_HELP = {
    "threads": "threads of a side",
    "rounds": "turns of every side",
    "steps": "steps of a side's turn",
    "warmup_steps": "steps that do not count",
    "trace_steps": "measurements of a prefix",
}


def parser_of(description: str, **integers: int) -> argparse.ArgumentParser:
    """A parser with --output and flags of integers, whose defaults are given."""
    parser = argparse.ArgumentParser(
        description=description.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    for name, default in integers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=_HELP.get(name))
    return parser


def add_quick(parser: argparse.ArgumentParser) -> None:
    text = "tiny sizes, for tests: no targets are judged"
    parser.add_argument("--quick", action="store_true", help=text)


def listed(kind: type):
    """The type of a flag with values that commas separate."""
    return lambda text: tuple(kind(item) for item in text.split(","))


def command(name: str, args: argparse.Namespace) -> str:
    """The command line of a benchmark with the values of all flags but those of paths."""
    words = [f"python -m benchmarks.{name}"]
    for flag, value in vars(args).items():
        if value is None or value is False or isinstance(value, Path):
            continue
        if value is True:
            words.append(f"--{flag}")
        elif isinstance(value, tuple | list):
            separator = "," if isinstance(value, tuple) else " "
            words.append(f"--{flag} {separator.join(map(str, value))}")
        else:
            words.append(f"--{flag} {value}")
    return f"`{' '.join(words)}`"


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
    """A results page: commands and facts, also on the machine; sections, and verdicts."""

    def __init__(self, title: str, commands: Sequence[str], facts: Iterable[str]):
        facts = [*(f"{name}: {fact}" for name, fact in machine.describe().items()), *facts]
        self._lines = [f"# {title}", "", *commands, "", *(f"- {fact}" for fact in facts)]
        self._verdicts: list[str] = []
        self.is_met = True

    def add(self, name: str, *lines: str) -> None:
        """Adds a section."""
        self._lines += ["", f"## {name}", "", *lines]

    def judge(
        self, text: str, target: object = None, is_met: bool = True, decides: bool = True
    ) -> None:
        """Adds a verdict: for information, or on a target that may decide the exit status."""
        verdict = "for information"
        if target is not None:
            self.is_met &= bool(is_met) or not decides
            verdict = f"target {target}: {'met' if is_met else 'MISSED'}"
        self._verdicts.append(f"- {text}; {verdict}")

    def __str__(self) -> str:
        verdicts = ["", "## Verdict", "", *self._verdicts] if self._verdicts else []
        return "\n".join([*self._lines, *verdicts, ""])

    def finish(self, output: Path | None) -> int:
        """Prints the page and writes it to `output`; returns 1 if a target is missed, else 0."""
        print(self, end="")
        if output:
            output.write_text(str(self))
        return 0 if self.is_met else 1
