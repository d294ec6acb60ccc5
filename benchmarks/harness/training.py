"""Benchmarks of training: sides train the same model in turns, a few steps each.

A side is a process (`worker`) and gets the same rows, initial weights and number of threads as the
others. The order of the sides alternates from round to round, and a ratio is taken within a round,
so that a slow moment of the machine hits all sides.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks.harness import result_page, worker
from benchmarks.harness.result_page import Page, in_turns, summary, table
from config.flag import flag
from runtime.tensorflow_start import prepare_tensorflow

WARMUP_STEPS = 2
NUM_COMPARED_STEPS = 3
# Threads of a side that waits for its turn must sleep, or they take the cores of the other side.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}
# glibc returns the memory of each large tensor to the system, and every step pays for getting it
# again, page by page. PyTorch allocates through glibc, and so does TensorFlow without oneDNN; with
# it, as all sides have it here (`prepare_tensorflow`), oneDNN's allocator keeps the memory.
_KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000"
}


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(result_page.QuickOptions):
    """Flags of all benchmarks of training."""

    threads: int = flag(2, "threads of a side", at_least=1)
    rounds: int = flag(8, "turns of every side", at_least=1)
    steps: int = flag(2, "steps of a side's turn", at_least=1)
    torch_python: Path = flag(Path(".venv-torch/bin/python"), "Python of the peers")


Options = TypeVar("Options", bound=TrainingOptions)
# Writes the rows of sizes that are not written by `worker.save`, or returns the rows.
MakeRows = Callable[[SimpleNamespace, Path], Mapping[str, np.ndarray]]


class Side(NamedTuple):
    """The process of one side, a module with a function `start` (`harness.worker`)."""

    name: str
    module: str  # below `benchmarks`; peers run in the environment of --torch_python, or of
    python: Path | None = None
    options: tuple[tuple[str, str], ...] = ()  # names and values, of the module's `start`
    keeps_memory: bool = False  # glibc keeps freed memory
    is_compared: bool = True  # its first losses must be those of the first side
    is_peer: bool = True  # the target is against it

    def memory_kept(self, is_peer: bool = False) -> "Side":
        """Returns the side with glibc keeping freed memory, by default for information."""
        name = f"{self.name}, memory kept"
        return self._replace(name=name, keeps_memory=True, is_peer=is_peer)


class Case(NamedTuple):
    """A model, data set or precision that all sides train."""

    name: str
    sides: Sequence[Side]  # ours first; it writes the initial weights
    sizes: SimpleNamespace  # numbers, and tuples of them, that both sides read
    options: Mapping[str, Any]  # arguments of a side's `start`
    loss_tolerance: float  # relative difference of the first losses
    target: float | None = None  # our speed relative to that of the fastest side that is a peer
    # those of the training whose losses are compared, if they differ
    compared_options: Mapping[str, Any] | None = None


def precisions(sides: Sequence[Side], sizes: SimpleNamespace, target: float) -> list[Case]:
    """A case per precision; bfloat16 is for information."""
    tolerances, targets = {"float32": 1e-3, "bfloat16": 2e-2}, {"float32": target}
    return [
        Case(name, sides, sizes, {"precision": name}, tolerance, targets.get(name))
        for name, tolerance in tolerances.items()
    ]


class CaseResult(NamedTuple):
    """Measurements of a case by the name of a side, with one value per round."""

    case: Case
    versions: dict[str, str]
    first_losses: list[float]  # of our side
    turns: dict[str, list[dict]]  # answers of `worker.timed_steps`
    foreign_cpu: list[float]  # cores that other processes kept busy, of all turns

    def ms(self, side: Side) -> np.ndarray:
        return np.asarray([np.median(turn["ms"]) for turn in self.turns[side.name]])

    def slower(self, side: Side) -> np.ndarray:
        """Time of a side's step over that of ours."""
        return self.ms(side) / self.ms(self.case.sides[0])


def adam_peers(module: str) -> tuple[Side, Side]:
    """PyTorch with two optimizers for the tables."""
    return (
        Side("PyTorch, SparseAdam", module, options=(("tables", "lazy"),)),
        Side("PyTorch, dense Adam", module, options=(("tables", "dense"),)),
    )


class Worker:
    """The process of a side.

    Raises:
        RuntimeError: of `ask`, the process ended; the message ends with its last output.
    """

    def __init__(self, side: Side, folder: Path, args: TrainingOptions):
        self._side, self._log = side, tempfile.TemporaryFile("w+")  # noqa: SIM115
        python, path = Path(sys.executable), os.environ.get("PYTHONPATH", "")
        if side.module.startswith("peers."):
            python, path = side.python or args.torch_python, ""
        command = [os.path.abspath(python), "-m", "benchmarks.harness.worker"]
        self._process = subprocess.Popen(
            [*command, f"benchmarks.{side.module}", str(folder)],
            env={
                **os.environ,
                **_ENVIRONMENT,
                **(_KEEP_MEMORY if side.keeps_memory else {}),
                "OMP_NUM_THREADS": str(args.threads),
                "PYTHONPATH": path,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def start(self, options: Mapping[str, Any]) -> str:
        """Makes the training; returns the versions of its packages."""
        return self._ask(start={**options, **dict(self._side.options)})["version"]

    def steps(self, count: int) -> dict:
        return self._ask(steps=count)

    def _ask(self, **request) -> dict:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._log.seek(0)
            log = self._log.read()[-3000:]
            raise RuntimeError(f"{self._side.name} died during {request}: {log}")
        return json.loads(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


def measure(case: Case, folder: Path, args: TrainingOptions) -> CaseResult:
    """Measures a case whose rows are in `folder`."""
    with contextlib.ExitStack() as stack:
        workers = {
            side: stack.enter_context(contextlib.closing(Worker(side, folder, args)))
            for side in case.sides
        }
        versions, losses = compare_losses(case, workers)
        for process in workers.values():
            if case.compared_options is not None:
                process.start(case.options)
            process.steps(WARMUP_STEPS)
        turns, foreign_cpu = {side.name: [] for side in workers}, []
        for side in in_turns(case.sides, args.rounds):
            busy_s, start = result_page.busy_cpu_s(), time.perf_counter()
            turn = workers[side].steps(args.steps)
            foreign_s = result_page.busy_cpu_s() - busy_s - turn["cpu_s"]
            foreign_cpu.append(foreign_s / (time.perf_counter() - start))
            turns[side.name].append(turn)
    return CaseResult(case, versions, losses, turns, foreign_cpu)


def compare_losses(
    case: Case, workers: Mapping[Side, Worker]
) -> tuple[dict[str, str], list[float]]:
    """Starts all sides and does their first steps; returns their versions and our losses.

    Raises:
        RuntimeError: another side's losses differ, so that the sides train different models.
    """
    options = case.options if case.compared_options is None else case.compared_options
    versions, ours = {}, []
    for side, process in workers.items():
        versions[side.name] = process.start(options)
        losses = process.steps(NUM_COMPARED_STEPS)["losses"]
        ours = ours or losses
        if side.is_compared and not np.allclose(losses, ours, rtol=case.loss_tolerance, atol=0):
            raise RuntimeError(
                f"the sides do not train the same model: first losses of {case.name}: ours {ours}, "
                f"{side.name} {losses}"
            )
    return versions, ours


def measure_all(
    cases: Sequence[Case], make_rows: MakeRows, args: TrainingOptions
) -> list[CaseResult]:
    """Measures one case after the other; `make_rows(sizes, folder)` may add files to the folder."""
    prepare_tensorflow()  # the sides inherit its variables
    results = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            worker.save(Path(folder), make_rows(case.sizes, Path(folder)), case.sizes)
            results.append(measure(case, Path(folder), args))
    return results


def steps_table(results: Sequence[CaseResult], faster: str = "ours is faster by") -> list[str]:
    """Milliseconds, samples per second and memory of all sides, and ratios to the first one."""
    columns = ("case", "side", "ms per step", "samples/s", "peak GiB", faster)
    rows = []
    for result in results:
        for side in result.case.sides:
            ms = result.ms(side)
            peak_mib = max(turn["peak_mib"] for turn in result.turns[side.name])
            ratio = "" if side is result.case.sides[0] else summary(result.slower(side), ".2f")
            samples = summary(result.case.sizes.batch_size / ms * 1e3)
            words = (result.case.name, side.name, summary(ms, ".1f"), samples)
            rows.append((*words, f"{peak_mib / 1024:.2f}", ratio))
    return table(columns, rows, num_text=2)


def described(sizes: SimpleNamespace) -> str:
    """Names and values; of many numbers, how many, and their sum."""
    return "; ".join(
        f"{name} {len(value)} of {sum(value):,} in all"
        if isinstance(value, tuple) and len(value) > 6
        else f"{name} {value}"
        for name, value in vars(sizes).items()
    )


def run(
    name: str,
    title: str,
    cases: Sequence[Case],
    make_rows: MakeRows,
    args: TrainingOptions,
    *facts: str,
) -> int:
    """Measures all cases, writes the page and returns the exit status; `name`: the module's."""
    results = measure_all(cases, make_rows, args)
    versions = {side: version for result in results for side, version in result.versions.items()}
    losses = "; ".join(
        f"{result.case.name} {', '.join(f'{loss:.4f}' for loss in result.first_losses)}"
        for result in results
    )
    uncompared = sorted({s.name for case in cases for s in case.sides if not s.is_compared})
    foreign_cpu = [cores for result in results for cores in result.foreign_cpu]
    facts = (
        *(f"{side}: {version}" for side, version in versions.items()),
        *facts,
        f"sizes of {cases[0].name}: {described(cases[0].sizes)}",
        f"same rows and initial weights on all sides; our first losses {losses}, those of the "
        f"others equal; not compared: {', '.join(uncompared) or 'none'}",
        f"{args.threads} threads per side, one side at a time, {args.steps} steps per turn, "
        f"{args.rounds} rounds; median [quartiles] over the rounds",
        f"other processes kept {summary(foreign_cpu, '.2f')} cores busy during the turns",
    )
    page = Page(title, name, args, facts)
    page.add("Training steps", *steps_table(results))
    for case, result in zip(cases, results, strict=True):
        peers = [side for side in case.sides[1:] if side.is_peer]
        ratio, peer = min((float(np.median(result.slower(side))), side.name) for side in peers)
        text = f"{case.name}: {ratio:.2f} times the samples per second of {peer}"
        page.judge(text, case.target, ratio >= (case.target or 0))
    return page.finish()


def parse(
    options: type[Options],
    argv: Sequence[str] | None,
    name: str,
    description: str,
    package: str | None = "torch",
    **defaults: int,
) -> Options:
    """Reads the command line; ends the program if the environment of PyTorch lacks `package`."""
    args = result_page.parse(options, argv, name, description, **defaults)
    if package and not has_package(args.torch_python, package):
        result_page.refuse(
            f"--torch_python {args.torch_python} has no {package}: `make .venv-torch/installed` "
            "makes it from requirements/torch*.txt"
        )
    return dataclasses.replace(args, rounds=2, steps=1) if args.quick else args


def has_package(python: Path, package: str) -> bool:
    """Returns whether an environment has a package, without importing it."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{package}'))"
    return python.exists() and not subprocess.call([str(python), "-c", code])
