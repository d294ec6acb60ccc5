"""Benchmarks of training: sides train the same model in turns, a few steps each.

Every side is a process of its own (`training_worker.py`) and gets the same rows, initial weights
and number of threads. The order of the sides alternates from round to round, and ratios are taken
within a round.
"""

import argparse
import contextlib
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import machine
from benchmarks.harness.worker import Worker

NUM_COMPARED_STEPS = 3
# glibc returns the memory of each large tensor to the system, and every step pays for getting it
# again, page by page. PyTorch allocates through glibc; TensorFlow keeps its memory.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000"
}


class Side(NamedTuple):
    """The process of one side.

    Attributes:
        module: below `benchmarks`.
        flags: in addition to --folder and --threads.
        is_torch: runs in the environment of --torch_python.
        keeps_memory: glibc keeps freed memory.
        is_compared: its first losses must be those of our side.
    """

    name: str
    module: str
    flags: tuple[str, ...] = ()
    is_torch: bool = True
    keeps_memory: bool = False
    is_compared: bool = True

    def start(self, folder: Path, args: argparse.Namespace) -> Worker:
        """Starts the process, without a model yet."""
        python = args.torch_python if self.is_torch else sys.executable
        command = [python, "-m", f"benchmarks.{self.module}", "--folder", str(folder)]
        command += ["--threads", str(args.threads), *self.flags]
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2"}
        if self.is_torch:
            environment = {"OMP_NUM_THREADS": str(args.threads)}
        return Worker(self.name, command, environment | (KEEP_MEMORY if self.keeps_memory else {}))


class Case(NamedTuple):
    """A model, data set or precision that all sides train.

    Attributes:
        sides: ours first; it writes the initial weights.
        options: arguments of a side's "start".
        loss_tolerance: relative difference of the first losses.
        compared_options: those of the model whose losses are compared, where it is another one.
        rounds: turns of every side.
        warmup_steps: after the comparison, not counted.
        parts: sides whose parts of a step are measured; one that is not in `sides` is started.
        products: sides whose matrix products are measured.
    """

    name: str
    sides: Sequence[Side]
    options: Mapping[str, Any]
    loss_tolerance: float
    rounds: int
    compared_options: Mapping[str, Any] | None = None
    warmup_steps: int = 0
    parts: Sequence[Side] = ()
    products: Sequence[Side] = ()


class TrainingMeasurements:
    """Values of (side, case), one per round; the rounds of all lists correspond.

    Attributes:
        ours: name of our side.
        step_ms: median of each turn.
        faults: page faults per step.
        foreign_cpu: cores that other processes kept busy, of all turns.
        first_losses: of our side, by case.
        parts, product_ms: what the sides answer to "parts" and "products".
        versions: of the software, by side.
    """

    def __init__(self, ours: str):
        self.ours = ours
        self.step_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.faults: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.foreign_cpu: list[float] = []
        self.first_losses: dict[str, list[float]] = {}
        self.parts: dict[tuple[str, str], dict[str, list[float]]] = {}
        self.product_ms: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        self.versions: dict[str, str] = {}

    def measure_all(
        self,
        cases: Sequence[Case],
        write_rows: Callable[[Path, Case], None],
        args: argparse.Namespace,
    ) -> None:
        """Measures one case after the other, on the rows that `write_rows` puts into a folder."""
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                write_rows(Path(folder), case)
                self.measure(case, Path(folder), args)

    def measure(self, case: Case, folder: Path, args: argparse.Namespace) -> None:
        with contextlib.ExitStack() as stack:
            workers = {
                side: stack.enter_context(contextlib.closing(side.start(folder, args)))
                for side in case.sides
            }
            self.first_losses[case.name] = compare_losses(case, workers)
            for worker in workers.values():
                if case.compared_options is not None:
                    worker.ask("start", **case.options)
                if case.warmup_steps:
                    worker.ask("steps", count=case.warmup_steps)
            for number in range(case.rounds):
                for side in in_turn(list(workers), number):
                    self._measure_turn(workers[side], case.name, args.steps)
                    if side in case.products:
                        answer = workers[side].ask("products")
                        self.product_ms[side.name, case.name].append(answer["ms"])
            for side in case.parts:
                worker = workers.get(side)
                if worker is None:
                    worker = stack.enter_context(contextlib.closing(side.start(folder, args)))
                    worker.ask("start", **case.options)
                    worker.ask("steps", count=NUM_COMPARED_STEPS)
                answer = worker.ask("parts", count=max(3, args.steps))
                self.parts[side.name, case.name] = answer["ms"]
            for side, worker in workers.items():
                self.versions[side.name] = worker.ask("describe")["version"]

    def _measure_turn(self, worker: Worker, case: str, count: int) -> None:
        before = machine.busy_cpu_s()
        answer = worker.ask("steps", count=count)
        busy_s = machine.busy_cpu_s() - before
        self.step_ms[worker.name, case].append(float(np.median(answer["ms"])))
        self.faults[worker.name, case].append(answer["faults"])
        self.foreign_cpu.append((busy_s - answer["cpu_s"]) / (sum(answer["ms"]) / 1e3))


def in_turn(sides: list, number: int) -> list:
    """All sides, in falling or rising order from round to round."""
    return sides if number % 2 else sides[::-1]


def compare_losses(case: Case, workers: Mapping[Side, Worker]) -> list[float]:
    """Does the first steps of all sides; returns the losses of our side.

    Raises:
        RuntimeError: another side's losses differ, so that the sides train different models.
    """
    options = case.options if case.compared_options is None else case.compared_options
    losses = {}
    for side, worker in workers.items():
        worker.ask("start", **options)
        answer = worker.ask("steps", count=NUM_COMPARED_STEPS)
        if side.is_compared:
            losses[side.name] = answer["losses"]
    return check_losses(losses, case.name, case.loss_tolerance)


def check_losses(losses: Mapping[str, list[float]], case: str, tolerance: float) -> list[float]:
    """Returns the losses of the first side.

    Raises:
        RuntimeError: another side's losses differ by more than `tolerance`, relative.
    """
    first, *_ = losses
    for name, values in losses.items():
        if not np.allclose(values, losses[first], rtol=tolerance, atol=0):
            raise RuntimeError(
                f"the sides do not train the same model: first losses of {case}: "
                f"{first} {losses[first]}, {name} {values}"
            )
    return losses[first]


def parser_of(description: str) -> argparse.ArgumentParser:
    """A parser with the flags that all benchmarks of training have."""
    parser = argparse.ArgumentParser(
        description=description.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch_python", default=".venv-torch/bin/python")
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    return parser


def parse(parser: argparse.ArgumentParser, make_target: str) -> argparse.Namespace:
    """Reads the command line; `make_target` makes the environment of PyTorch."""
    args = parser.parse_args()
    if not Path(args.torch_python).exists():
        parser.error(
            f"--torch_python {args.torch_python} does not exist: `make {make_target}` makes that "
            "environment from requirements/torch.txt"
        )
    return args


def setting(measurements: TrainingMeasurements, args: argparse.Namespace) -> list[str]:
    """Lines on turns, first losses and the load of the machine, for the head of a page."""
    from benchmarks.harness.report import foreign_cpu

    losses = "; ".join(
        f"{case} {', '.join(f'{loss:.4f}' for loss in values)}"
        for case, values in measurements.first_losses.items()
    )
    return [
        f"- same rows and initial weights on all sides; our first losses {losses}, those of the "
        "peers equal",
        f"- {args.threads} threads per side, one side at a time, {args.steps} steps per turn, "
        f"{args.rounds} rounds; median [quartiles] over the rounds",
        foreign_cpu(measurements.foreign_cpu),
    ]
