"""Results pages in Markdown, and the exit code of a benchmark."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from benchmarks.harness import machine


def summary(values, form: str = ".0f") -> str:
    """Median and quartiles."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:{form}} [{low:{form}}, {high:{form}}]"


def table(columns: Sequence[str], rows: Iterable[Sequence], num_text: int = 1) -> list[str]:
    """Lines of a table, of which the first `num_text` columns are text and the others numbers."""
    alignment = ["---"] * num_text + ["---:"] * (len(columns) - num_text)
    return [f"| {' | '.join(map(str, row))} |" for row in (columns, alignment, *rows)]


def command(name: str, args: Any, flags: Sequence[str]) -> str:
    """The command line of a benchmark with the values of `flags`."""
    words = [f"python -m benchmarks.{name}"]
    for flag in flags:
        value = getattr(args, flag)
        text = " ".join(map(str, value)) if isinstance(value, list) else value
        words.append(f"--{flag} {text}")
    return f"`{' '.join(words)}`"


def machine_facts() -> list[str]:
    """Lines on the machine, for the head of a page."""
    return [f"- {name}: {fact}" for name, fact in machine.describe().items()]


def foreign_cpu(cores: Sequence[float]) -> str:
    """Line on what else the machine did."""
    return f"- other processes kept {summary(cores, '.2f')} cores busy during the turns"


def page(
    title: str, setting: Sequence[str], sections: Mapping[str, Sequence[str]], verdict: list[str]
) -> str:
    """A whole page."""
    lines = [f"# {title}", "", *setting]
    for name, content in {**sections, "Verdict": verdict}.items():
        lines += ["", f"## {name}", "", *content]
    return "\n".join([*lines, ""])


def target(value: float, least: float) -> tuple[str, bool]:
    """Verdict on a value that should reach `least`, and whether it does."""
    return f"target {least}: {'met' if value >= least else 'MISSED'}", value >= least


def finish(text: str, met: bool, output: Path | None) -> NoReturn:
    """Prints a page, writes it to `output`, and exits with 1 if a target is missed."""
    print(text)
    if output:
        output.write_text(text)
    sys.exit(0 if met else 1)


def steps_table(measurements, kind: str, sizes: Mapping[str, int]) -> list[str]:
    """Milliseconds and samples per second of all sides.

    Args:
        measurements: `training.TrainingMeasurements`.
        kind: column name of the cases, e.g. "model".
        sizes: batch size of each case.
    """
    columns = (kind, "side", "ms per step", "samples/s", "page faults per step")
    rows = []
    sides = [(case, side) for case in sizes for side in measurements.versions]
    for case, side in sides:
        if (side, case) not in measurements.step_ms:
            continue
        ms = np.asarray(measurements.step_ms[side, case])
        ours = np.asarray(measurements.step_ms[measurements.ours, case])
        rows.append(
            (
                *(case, side, summary(ms), summary(sizes[case] / ms * 1e3)),
                f"{np.median(measurements.faults[side, case]):,.0f}",
                "" if side == measurements.ours else summary(ms / ours, ".2f"),
            )
        )
    return table((*columns, "ours is faster by"), rows, num_text=2)


def verdicts(
    measurements, peers: Sequence[str], targets: Mapping[str, float]
) -> tuple[list[str], bool]:
    """Speed of our side relative to the fastest peer, and whether all targets are met.

    Args:
        measurements: `training.TrainingMeasurements`.
        peers: the sides that count.
        targets: of cases; a case without one is for information.
    """
    lines, all_met = [], True
    for case in measurements.first_losses:
        ms = np.asarray(measurements.step_ms[measurements.ours, case])
        ratio, peer = min(
            (float(np.median(np.asarray(measurements.step_ms[side, case]) / ms)), side)
            for side in peers
        )
        verdict = "for information"
        if case in targets:
            verdict, met = target(ratio, targets[case])
            all_met &= met
        lines.append(f"- {case}: {ratio:.2f} times the samples per second of {peer}; {verdict}")
    return lines, all_met
