"""Preparations of the same data by several sides: what their benchmarks share."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness import machine


def compare(
    sides: Sequence[str], prepare: Callable[[str], Any], repeats: int, what: str
) -> dict[str, list]:
    """The runs of all sides in turn, the order changing from round to round.

    Args:
        prepare: a side's run, with `elapsed_s`, `peak_mib` and a `checksum`.
        what: must be the same, for the error.

    Raises:
        RuntimeError: two runs left something different.
    """
    runs = {side: [] for side in sides}
    for turn in range(repeats):
        for side in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            done = prepare(side)
            runs[side].append(done)
            print(
                f"round {turn}: {side}: {done.elapsed_s:.1f} s, {done.peak_mib:.0f} MiB",
                file=sys.stderr,
            )
    checksums = {each.checksum: side for side in runs for each in runs[side]}
    if len(checksums) != 1:
        raise RuntimeError(f"different {what}: {checksums}")
    return runs


def head(title: str, module: str, argv: list[str] | None, packages: Sequence[str]) -> list[str]:
    """The first lines of a page: command, machine, versions of packages.

    Args:
        argv: words of the command line; None: the process' own.
    """
    words = sys.argv[1:] if argv is None else argv
    page = [f"# {title}", "", f"`{' '.join(['python -m', module, *words])}`", ""]
    page += [f"- {name}: {value}" for name, value in machine.describe().items()]
    return [*page, f"- {', '.join(f'{name} {version(name)}' for name in packages)}"]


def finish(page: list[str], all_met: bool, output: str | None) -> int:
    """Prints a page, writes it where it is wanted; returns the exit status."""
    print("\n".join(page))
    if output:
        Path(output).write_text("\n".join(page) + "\n")
    return 0 if all_met else 1


def met(is_met: bool) -> str:
    return "met" if is_met else "NOT met"
