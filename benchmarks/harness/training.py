"""Benchmarks of training: sides train the same model in turns, a few steps each.

A side is a process (`worker.serve`) and gets the same rows, initial weights and number of threads
as the others. The order of the sides alternates from round to round, and a ratio is taken within a
round, so that a slow moment of the machine hits all sides.
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
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks.harness import result_page
from benchmarks.harness.result_page import Page, in_turns, summary, table
from config.flag import flag
from runtime.tensorflow_start import prepare_tensorflow

ROOT = Path(__file__).resolve().parents[2]
NUM_COMPARED_STEPS = 3
# Threads of a side that waits for its turn must sleep, or they take the cores of the other side.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}
_ENVIRONMENT |= {"TF_CPP_MIN_LOG_LEVEL": "2"}
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
    warmup_steps: int = flag(2, "steps that do not count", at_least=0)
    torch_python: Path = flag(Path(".venv-torch/bin/python"), "Python of the peers")
    other: Path | None = flag(None, "compare with the toolkit of this checkout, without PyTorch")


Options = TypeVar("Options", bound=TrainingOptions)


class Side(NamedTuple):
    """The process of one side, a module with a function `side` (`harness.worker`)."""

    name: str
    module: str  # below `benchmarks`
    options: tuple[tuple[str, str], ...] = ()  # names and values, of its `side`
    is_torch: bool = False  # runs in the environment of --torch_python, or of
    python: Path | None = None
    keeps_memory: bool = False  # glibc keeps freed memory
    is_compared: bool = True  # its first losses must be those of the first side
    is_peer: bool = True  # the target is against it
    root: Path = ROOT  # checkout of the toolkit that trains

    def memory_kept(self, is_peer: bool = False) -> "Side":
        """Returns the side with glibc keeping freed memory, by default for information."""
        name = f"{self.name}, memory kept"
        return self._replace(name=name, keeps_memory=True, is_peer=is_peer)


class Case(NamedTuple):
    """A model, data set or precision that all sides train."""

    name: str
    sides: Sequence[Side]  # ours first; it writes the initial weights
    batch_size: int  # samples of a step
    options: Mapping[str, Any]  # arguments of a side's training
    loss_tolerance: float  # relative difference of the first losses
    # our speed relative to that of the fastest side that is a peer
    target: float | None = None
    # those of the training whose losses are compared, if they differ
    compared_options: Mapping[str, Any] | None = None


class CaseResult(NamedTuple):
    """Measurements of a case by the name of a side, with one value per round."""

    case: Case
    versions: dict[str, str]
    first_losses: list[float]  # of our side
    turns: dict[str, list[dict]]  # answers of `worker.timed_steps`
    foreign_cpu: list[float]  # cores that other processes kept busy, of all turns

    def values(self, side: Side, what: str) -> np.ndarray:
        return np.asarray([np.median(turn[what]) for turn in self.turns[side.name]])

    def slower(self, side: Side) -> np.ndarray:
        """Time of a side's step over that of ours."""
        return self.values(side, "ms") / self.values(self.case.sides[0], "ms")


def adam_peers(package: str) -> tuple[Side, Side]:
    """PyTorch with two optimizers for the tables."""
    return (
        Side("PyTorch, SparseAdam", f"{package}.peer", (("tables", "lazy"),), is_torch=True),
        Side("PyTorch, dense Adam", f"{package}.peer", (("tables", "dense"),), is_torch=True),
    )


class Worker:
    """The process of a side.

    Raises:
        RuntimeError: of `ask`, the process ended; the message ends with its last output.
    """

    def __init__(self, side: Side, folder: Path, args: TrainingOptions):
        self._name, self._log = side.name, tempfile.TemporaryFile("w+")  # noqa: SIM115
        python, root, path = Path(sys.executable), ROOT, os.environ.get("PYTHONPATH", "")
        if side.is_torch:
            python = side.python or args.torch_python
        elif side.root != ROOT:
            own, root = side.root / ".venv/bin/python", folder / "other"
            python, path = own if own.exists() else python, side.root
            path = f"{path}{os.pathsep}{path / 'distributed-embeddings'}"
            if not root.exists():
                root.mkdir()
                (root / "benchmarks").symlink_to(ROOT / "benchmarks")
        command = [os.path.abspath(python), "-m", "benchmarks.harness.worker"]
        command += [f"benchmarks.{side.module}", str(folder), str(args.threads)]
        environment = {**os.environ, **_ENVIRONMENT, "OMP_NUM_THREADS": str(args.threads)}
        self._process = subprocess.Popen(
            [*command, json.dumps(dict(side.options))],
            cwd=root,
            env={
                **environment,
                **(_KEEP_MEMORY if side.keeps_memory else {}),
                "PYTHONPATH": "" if side.is_torch else path,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **request) -> dict:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._log.seek(0)
            raise RuntimeError(f"{self._name} died during {request}: {self._log.read()[-3000:]}")
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
        for worker in workers.values():
            if case.compared_options is not None:
                worker.ask(start=case.options)
            worker.ask(steps=args.warmup_steps)
        turns, foreign_cpu = {side.name: [] for side in workers}, []
        for side in in_turns(list(workers), args.rounds):
            busy_s, start = result_page.busy_cpu_s(), time.perf_counter()
            turn = workers[side].ask(steps=args.steps)
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
    versions, losses = {}, {}
    for side, worker in workers.items():
        versions[side.name] = worker.ask(start=options)["version"]
        answer = worker.ask(steps=NUM_COMPARED_STEPS)
        if side.is_compared:
            losses[side.name] = answer["losses"]
    first, *_ = losses
    for name, values in losses.items():
        if not np.allclose(values, losses[first], rtol=case.loss_tolerance, atol=0):
            raise RuntimeError(
                f"the sides do not train the same model: first losses of {case.name}: "
                f"{first} {losses[first]}, {name} {values}"
            )
    return versions, losses[first]


def measure_all(
    cases: Sequence[Case], write_rows: Callable[[Path, Case], None], args: TrainingOptions
) -> list[CaseResult]:
    """Measures one case after the other, on the rows that `write_rows` puts into a folder."""
    prepare_tensorflow()  # the sides inherit its variables
    results = []
    for case in cases:
        if args.other:
            other = case.sides[0]._replace(name=str(args.other), root=args.other.absolute())
            case = case._replace(sides=(case.sides[0], other), target=None)
        with tempfile.TemporaryDirectory() as folder:
            write_rows(Path(folder), case)
            results.append(measure(case, Path(folder), args))
    return results


def steps_table(results: Sequence[CaseResult], faster: str = "ours is faster by") -> list[str]:
    """Milliseconds, samples per second and memory of all sides, and ratios to the first one."""
    columns = ("case", "side", "ms per step", "samples/s", "peak GiB", "page faults per step")
    rows = []
    for result in results:
        for side in result.case.sides:
            ms = result.values(side, "ms")
            rows.append(
                (
                    *(result.case.name, side.name, summary(ms, ".1f")),
                    summary(result.case.batch_size / ms * 1e3),
                    f"{max(result.values(side, 'peak_mib')) / 1024:.2f}",
                    f"{np.median(result.values(side, 'faults')):,.0f}",
                    "" if side is result.case.sides[0] else summary(result.slower(side), ".2f"),
                )
            )
    return table((*columns, faster), rows, num_text=2)


def run(
    name: str,
    title: str,
    cases: Sequence[Case],
    write_rows: Callable[[Path, Case], None],
    facts: Sequence[str],
    args: TrainingOptions,
) -> int:
    """Measures all cases, writes the page and returns the exit status; `name`: the module's."""
    results = measure_all(cases, write_rows, args)
    versions = {side: version for result in results for side, version in result.versions.items()}
    losses = "; ".join(
        f"{result.case.name} {', '.join(f'{loss:.4f}' for loss in result.first_losses)}"
        for result in results
    )
    foreign_cpu = [cores for result in results for cores in result.foreign_cpu]
    page = Page(
        title,
        name,
        args,
        [
            *(f"{side}: {version}" for side, version in versions.items()),
            *facts,
            f"same rows and initial weights on all sides; our first losses {losses}, those of the "
            "others equal",
            f"{args.threads} threads per side, one side at a time, {args.steps} steps per turn, "
            f"{args.rounds} rounds; median [quartiles] over the rounds",
            f"other processes kept {summary(foreign_cpu, '.2f')} cores busy during the turns",
        ],
    )
    page.add("Training steps", *steps_table(results))
    for case, result in ((result.case, result) for result in results):
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
    make_target: str,
    package: str = "torch",
    **defaults: int,
) -> Options:
    """Reads the command line; ends the program if the environment of PyTorch lacks a package."""
    args = result_page.parse(options, argv, name, description, **defaults)
    if not args.other and not has_package(args.torch_python, package):
        result_page.refuse(
            f"--torch_python {args.torch_python} has no {package}: `make {make_target}` makes it "
            "from requirements/torch*.txt"
        )
    if args.quick:
        args = dataclasses.replace(args, rounds=2, steps=1, warmup_steps=1)
    return args


def has_package(python: Path, package: str) -> bool:
    """Returns whether an environment has a package, without importing it."""
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{package}'))"
    return python.exists() and not subprocess.call([str(python), "-c", code])
