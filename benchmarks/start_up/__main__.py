"""Seconds from the command to the first step of `dlrm.py` on a small data set, by part.

python -m benchmarks.start_up
python -m benchmarks.start_up --other CHECKOUT

Python's bytecode of both checkouts is compiled before, as it is from the second run on.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import result_page
from benchmarks.harness.result_page import Page, spread
from config.flag import flag

ROOT = Path(__file__).resolve().parents[2]
MARKED_RUN = Path(__file__).with_name("marked_run.py")
FIRST_STEP, WHOLE = "first step", "end of the process"
LONGEST_EVALUATION_S = 0.3
MOST_OF_OTHER = 0.5


class MarkedRun(NamedTuple):
    """Seconds of the parts of a command, and of each evaluation; TensorFlow's version."""

    parts: dict[str, float]
    evaluations: list[float]
    tensorflow: str

    def until(self, part: str) -> float:
        """Returns the seconds from the command to the end of a part."""
        names = list(self.parts)
        return sum(self.parts[name] for name in names[: names.index(part) + 1])


@dataclass(frozen=True, kw_only=True)
class StartUpOptions(result_page.BenchmarkOptions):
    """Flags of the benchmark."""

    rows: int = flag(10_000, "rows of the table, a fifth of which is evaluated", at_least=100)
    rounds: int = result_page.rounds_flag(7)
    other: Path | None = flag(None, "compare with another checkout")


def prepare_table(folder: Path, num_rows: int) -> Path:
    """Prepares a generated table of three texts and five numbers; returns the data set."""
    rng = np.random.default_rng(0)
    texts = rng.zipf(1.5, (num_rows, 3)) % [5, 100, 1000]
    numbers = rng.lognormal(0, 1, (num_rows, 5))
    labels = rng.random(num_rows) < 1 / (1 + np.exp(numbers[:, 0] - texts[:, 0] % 3))
    names = ["label", "size", "town", "shop", *(f"number{i}" for i in range(5))]
    with (folder / "table.csv").open("w") as file:
        file.write(",".join(names) + "\n")
        for label, text, row in zip(labels, texts, numbers, strict=True):
            words = [f"value{t}" for t in text]
            file.write(",".join([str(int(label)), *words, *(f"{x:.4f}" for x in row)]) + "\n")
    flags = ("--input", folder / "table.csv", "--label", "label", "--split", "0.6,0.2,0.2")
    command = (sys.executable, "-m", "preproc.transcode", *flags, "--output", folder / "data")
    subprocess.run(map(str, command), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder / "data"


def run_command(root: Path, data: Path) -> MarkedRun:
    """Trains two epochs with `dlrm.py` of the checkout `root`."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--dataset_path", data, "--run_dir", folder, "--epochs", 2, "--seed", 1)
        command = [*map(str, (sys.executable, MARKED_RUN, *flags))]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        end = time.time()
        done = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
        marks, parts = json.loads(done.stderr.splitlines()[-1]), {}
        for name, mark in {**marks["ends"], WHOLE: time.time()}.items():
            parts[name], end = mark - end, mark
    return MarkedRun(parts, marks["evaluations"], marks["tensorflow"])


def run_in_turns(roots: dict[str, Path], data: Path, rounds: int) -> dict[str, list[MarkedRun]]:
    """Runs the checkouts in turn, in an order that alternates; a first round compiles bytecode."""
    runs: dict[str, list[MarkedRun]] = {name: [] for name in roots}
    for number in range(-1, rounds):
        for name in list(roots)[:: -1 if number % 2 else 1]:
            runs[name].append(run_command(roots[name], data))
    return {name: each[1:] for name, each in runs.items()}


def table(runs: dict[str, list[MarkedRun]]) -> list[str]:
    """Lines of the table of all parts, and of evaluations."""
    rows: list[tuple[str, ...]] = []

    def add(text: str, form: str, values: Callable[[MarkedRun], Sequence[float]]) -> None:
        sides = ([x for run in each for x in values(run)] for each in runs.values())
        rows.append((text, *(spread(side, form) for side in sides)))

    for part in runs["this"][0].parts:
        add(part, ".2f", lambda run, part=part: [run.parts[part]])
    add("**command to first step**", ".2f", lambda run: [run.until(FIRST_STEP)])
    add("**whole command**", ".2f", lambda run: [run.until(WHOLE)])
    add("first evaluation, with its tracing", ".3f", lambda run: run.evaluations[:1])
    add("later evaluation", ".3f", lambda run: run.evaluations[1:])
    return result_page.table(("part", *runs), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Compares the checkouts; returns 1 if a target is missed."""
    args = result_page.parse(StartUpOptions, argv, "start_up", __doc__)
    roots = {"this": ROOT} | ({"other": args.other} if args.other else {})
    with tempfile.TemporaryDirectory() as folder:
        runs = run_in_turns(roots, prepare_table(Path(folder), args.rows), args.rounds)
    facts = [f"TensorFlow {runs['this'][0].tensorflow}, `--epochs 2`, bytecode compiled before"]
    page = Page("From command to first step", [result_page.command("start_up", args)], facts)
    page.add("Seconds, median [lowest, highest]", *table(runs))
    longest = max(np.median([run.evaluations for run in runs["this"]], axis=0))
    is_short = longest < LONGEST_EVALUATION_S
    page.judge(f"evaluation: {longest:.2f} s", f"below {LONGEST_EVALUATION_S}", is_short)
    if args.other:
        pairs = zip(runs["this"], runs["other"], strict=True)
        ratio = float(np.median([a.until(FIRST_STEP) / b.until(FIRST_STEP) for a, b in pairs]))
        text = f"command to first step: {ratio:.2f} of the other checkout's"
        page.judge(text, MOST_OF_OTHER, ratio <= MOST_OF_OTHER)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
