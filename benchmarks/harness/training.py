"""Benchmarks of training: sides train the same model in turns, a few steps each.

A side has processes of its own (`worker.serve_training`) and gets the same rows, initial weights
and number of threads as the others. The order of the sides alternates from round to round, and
ratios are taken within a round.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import report
from benchmarks.harness.ranks import Ranks, ask_and_watch
from benchmarks.harness.report import Page, summary, table
from runtime.tensorflow_start import prepare_tensorflow

NUM_COMPARED_STEPS = 3
# glibc returns the memory of each large tensor to the system, and every step pays for getting it
# again, page by page. PyTorch allocates through glibc; TensorFlow keeps its memory.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000"
}


class Side(NamedTuple):
    """The processes of one side."""

    name: str
    module: str  # below `benchmarks`
    flags: tuple[str, ...] = ()  # in addition to --folder and --threads
    is_torch: bool = True  # runs in the environment of --torch_python
    keeps_memory: bool = False  # glibc keeps freed memory
    is_compared: bool = True  # its first losses must be those of our side
    # words that start `num_ranks` processes, which are stopped between their turns
    launch: tuple[str, ...] = ()
    num_ranks: int = 1
    threads: int | None = None  # of a process; None: --threads

    def start(self, folder: Path, args: argparse.Namespace) -> Ranks:
        """Starts the processes, without a model yet."""
        python = args.torch_python if self.is_torch else sys.executable
        threads = str(self.threads or args.threads)
        command = [str(python), "-m", f"benchmarks.{self.module}", "--folder", str(folder)]
        command += ["--threads", threads, *self.flags]
        environment = KEEP_MEMORY if self.keeps_memory else {}
        if self.is_torch:
            environment = {**environment, "OMP_NUM_THREADS": threads}
        return Ranks(self.name, command, self.launch, self.num_ranks, environment)


class Case(NamedTuple):
    """A model, data set or precision that all sides train."""

    name: str
    sides: Sequence[Side]  # ours first; it writes the initial weights
    batch_size: int  # samples of a step
    options: Mapping[str, Any]  # arguments of a side's "start"
    loss_tolerance: float  # relative difference of the first losses
    rounds: int  # turns of every side
    # those of the model whose losses are compared, where it is another one
    compared_options: Mapping[str, Any] | None = None
    warmup_steps: int = 0  # after the comparison, not counted
    # sides whose parts of a step are measured; one that is not in `sides` is started
    parts: Sequence[Side] = ()
    products: Sequence[Side] = ()  # sides whose matrix products are measured in every round


class TrainingMeasurements:
    """Lists by (side, case) with one value per round; the rounds of all lists correspond."""

    def __init__(self, cases: Sequence[Case]):
        self.cases = {case.name: case for case in cases}
        self.ours = cases[0].sides[0].name
        self.step_ms = defaultdict(list)  # median of each turn, of the slowest rank
        self.faults = defaultdict(list)  # page faults per step of the first rank
        self.cpu_ms = defaultdict(list)  # of a step, [round][rank] (user, system)
        self.product_ms = defaultdict(list)  # results of `products_ms`
        self.parts: dict[tuple[str, str], list[dict[str, Any]]] = {}  # of a step, of each rank
        self.described: dict[tuple[str, str], list[dict]] = {}  # description of each rank
        self.first_losses: dict[str, list[float]] = {}  # of our side, by case
        self.foreign_cpu: list[float] = []  # cores that other processes kept busy, of all turns

    def measure_all(
        self, write_rows: Callable[[Path, Case], None], args: argparse.Namespace
    ) -> None:
        """Measures one case after the other, on the rows that `write_rows` puts into a folder."""
        prepare_tensorflow()  # the sides inherit its variables
        for case in self.cases.values():
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
                        ms = workers[side].call("products_ms")
                        self.product_ms[side.name, case.name].append(ms)
            for side, worker in workers.items():
                self.described[side.name, case.name] = worker.ask("describe")
            self.compare_results(case, folder, workers)
            for side, worker in workers.items():
                if side in case.parts:
                    self._measure_parts(worker, case.name, args)
        for side in case.parts:
            if side not in case.sides:
                with contextlib.closing(side.start(folder, args)) as worker:
                    worker.ask("start", **case.options)
                    worker.ask("steps", count=NUM_COMPARED_STEPS)
                    self._measure_parts(worker, case.name, args)

    def compare_results(self, case: Case, folder: Path, workers: Mapping[Side, Ranks]) -> None:
        """Compares more than the first losses, after the rounds; nothing by default."""

    def _measure_parts(self, worker: Ranks, case: str, args: argparse.Namespace) -> None:
        count = getattr(args, "trace_steps", max(3, args.steps))
        answers = worker.ask("call", method="parts_ms", count=count)
        self.parts[worker.name, case] = [answer["result"] for answer in answers]

    def _measure_turn(self, worker: Ranks, case: str, count: int) -> None:
        answers, foreign_cpu = ask_and_watch(worker, "steps", count=count)
        self.step_ms[worker.name, case].append(max(float(np.median(a["ms"])) for a in answers))
        self.faults[worker.name, case].append(answers[0]["faults"])
        self.cpu_ms[worker.name, case].append([(a["user_ms"], a["system_ms"]) for a in answers])
        self.foreign_cpu.append(foreign_cpu)

    def slower(self, side: str, case: str) -> np.ndarray:
        """Time of a side's step over that of ours, one value per round."""
        return np.asarray(self.step_ms[side, case]) / np.asarray(self.step_ms[self.ours, case])

    def version(self, side: str) -> str:
        """Version of a side's software."""
        (version,) = {r[0]["version"] for (name, _), r in self.described.items() if name == side}
        return version

    def facts(self, args: argparse.Namespace) -> list[str]:
        """Lines on turns, first losses and the load of the machine, for the head of a page."""
        losses = "; ".join(
            f"{case} {', '.join(f'{loss:.4f}' for loss in values)}"
            for case, values in self.first_losses.items()
        )
        return [
            f"same rows and initial weights on all sides; our first losses {losses}, those of the "
            "peers equal",
            f"{args.threads} threads per side, one side at a time, {args.steps} steps per turn, "
            f"{args.rounds} rounds; median [quartiles] over the rounds",
            foreign_cpu(self.foreign_cpu),
        ]

    def steps_table(
        self, kind: str, title: str = "ours is faster by", form: str = ".2f", exponent: int = 1
    ) -> list[str]:
        """Milliseconds and samples per second of all sides.

        The last column is the ratio of a side's step time to ours, to `exponent`: -1 for a side's
        speed relative to ours.
        """
        columns = (kind, "side", "ms per step", "samples/s", "page faults per step", title)
        rows = []
        for name, case in self.cases.items():
            for side in (side.name for side in case.sides):
                ms = np.asarray(self.step_ms[side, name])
                ratio = self.slower(side, name) ** exponent
                faults = f"{np.median(self.faults[side, name]):,.0f}"
                speed = summary(case.batch_size / ms * 1e3)
                compared = "" if side == self.ours else summary(ratio, form)
                rows.append((name, side, summary(ms), speed, faults, compared))
        return table(columns, rows, num_text=2)

    def prefixes_table(self) -> list[str]:
        """Medians of the first parts of a step together, and of the whole step."""
        rows = []
        for (side, case), (parts,) in self.parts.items():
            medians = {part: np.median(ms) for part, ms in parts.items()}
            medians["update"] = medians["step"] - medians["forward and backward"]
            rows += [(case, side, part, f"{ms:.0f}") for part, ms in medians.items()]
        return table(("case", "side", "part", "ms"), rows, num_text=3)

    def judge(self, page: Page, peers: Sequence[Side], targets: Mapping[str, float]) -> None:
        """Judges our speed relative to the fastest of the peers in all cases."""
        for case in self.cases:
            ratio, peer = min((float(np.median(self.slower(p.name, case))), p.name) for p in peers)
            target = targets.get(case)
            text = f"{case}: {ratio:.2f} times the samples per second of {peer}"
            page.judge(text, target, target is None or ratio >= target)


def adam_sides(package: str) -> tuple[Side, Side, Side]:
    """Our side, and PyTorch with two optimizers for the tables."""
    return (
        Side("ours (TensorFlow)", f"{package}.ours", is_torch=False),
        Side("PyTorch, SparseAdam", f"{package}.peer", ("--tables", "lazy")),
        Side("PyTorch, dense Adam", f"{package}.peer", ("--tables", "dense")),
    )


def adam_page(
    measurements: TrainingMeasurements,
    args: argparse.Namespace,
    package: str,
    title: str,
    facts: Sequence[str],
    targets: Mapping[str, float],
) -> Page:
    """A page on `adam_sides` of a package."""
    ours, lazy, dense = adam_sides(package)
    versions = (
        f"TensorFlow {measurements.version(ours.name)}, torch {measurements.version(lazy.name)}"
    )
    facts = [versions, *facts, *measurements.facts(args)]
    page = Page(title, [report.command(package, args)], facts)
    page.add("Training steps", *measurements.steps_table("case"))
    page.add("Prefixes of the step, medians", *measurements.prefixes_table())
    measurements.judge(page, (lazy, dense), targets)
    return page


def foreign_cpu(cores: Sequence[float]) -> str:
    """Line on what else the machine did."""
    return f"other processes kept {summary(cores, '.2f')} cores busy during the turns"


def in_turn(sides: list, number: int) -> list:
    """All sides, in falling or rising order from round to round."""
    return sides if number % 2 else sides[::-1]


def compare_losses(case: Case, workers: Mapping[Side, Ranks]) -> list[float]:
    """Runs the first steps of all sides; returns the losses of our side.

    Raises:
        RuntimeError: another side's losses differ, so that the sides train different models.
    """
    options = case.options if case.compared_options is None else case.compared_options
    losses = {}
    for side, worker in workers.items():
        worker.ask("start", **options)
        answer = worker.ask("steps", count=NUM_COMPARED_STEPS)[0]
        if side.is_compared:
            losses[side.name] = answer["losses"]
    first, *_ = losses
    for name, values in losses.items():
        if not np.allclose(values, losses[first], rtol=case.loss_tolerance, atol=0):
            raise RuntimeError(
                f"the sides do not train the same model: first losses of {case.name}: "
                f"{first} {losses[first]}, {name} {values}"
            )
    return losses[first]


def parser_of(description: str, **options) -> argparse.ArgumentParser:
    """A parser with the flags of all benchmarks that compare with PyTorch."""
    parser = report.parser_of(description, threads=2, **options)
    parser.add_argument("--torch_python", type=Path, default=Path(".venv-torch/bin/python"))
    return parser


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, make_target: str
) -> argparse.Namespace:
    """Reads the command line; `make_target` makes the environment of PyTorch."""
    args = parser.parse_args(argv)
    if not args.torch_python.exists():
        parser.error(
            f"--torch_python {args.torch_python} does not exist: `make {make_target}` makes that "
            "environment from requirements/torch.txt"
        )
    return args


def has_package(python: Path, package: str) -> bool:
    """Returns whether an environment has a package, without importing it."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{package}'))"
    return python.exists() and not subprocess.call([str(python), "-c", code])


def require_package(
    parser: argparse.ArgumentParser, args: argparse.Namespace, package: str, make_target: str
) -> None:
    """Ends the program if the environment of PyTorch lacks a package."""
    if not has_package(args.torch_python, package):
        parser.error(
            f"--torch_python {args.torch_python} has no {package}: `make {make_target}` installs "
            "it from requirements/torch*.txt"
        )
