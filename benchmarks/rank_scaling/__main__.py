"""Training on N ranks of one thread compared with one rank of N threads.

    make bench-ranks
    python -m benchmarks.rank_scaling --output benchmarks/results/rank_scaling_CPU_YYYYMM.md

Every side trains the recipe `dlrm.py` on the same rows at the same global batch; a side is as many
processes as it has ranks, started as a user would start them. Sides take turns: a few steps each,
in an order that alternates from round to round, while the others are stopped. The exit code is 1
if the ranks miss their target.
"""

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.harness import machine
from benchmarks.harness.report import finish
from benchmarks.harness.training import check_losses
from benchmarks.rank_scaling import report as rank_report
from benchmarks.rank_scaling.sides import LAUNCHERS, RankSide, launch_command, why_missing


class RankSetting(NamedTuple):
    """Flags that differ from the recipe's.

    Attributes:
        loss_tolerance: relative difference of the sides' losses in the first steps.
    """

    name: str
    flags: dict
    loss_tolerance: float


class LaunchedSide(NamedTuple):
    """The launcher, ranks and threads of a side."""

    name: str
    launch: Sequence[str]
    num_ranks: int
    threads: int  # of a rank


def settings_of(precisions: Sequence[str]) -> list[RankSetting]:
    """The precisions; and float32 whose vectors travel as bfloat16."""
    measurements = [
        RankSetting("float32", {}, 1e-4),
        RankSetting("float32, vectors travel as bfloat16", {"exchange_dtype": "bfloat16"}, 2e-2),
        RankSetting("bfloat16", {"amp": True}, 2e-2),
    ]
    return [setting for setting in measurements if setting.name.split(",")[0] in precisions]


def sides_of(launchers: Sequence[str], threads: int, ranks: int) -> list[LaunchedSide]:
    """One rank with all threads, which the others are compared with; then `ranks` by launcher."""
    sides = [LaunchedSide(f"1 rank x {threads} threads", (), 1, threads)]
    for launcher in launchers:
        name = f"{ranks} ranks x {threads // ranks} thread{'s' if threads > ranks else ''}, "
        command = launch_command(launcher, ranks)
        sides.append(LaunchedSide(name + LAUNCHERS[launcher], command, ranks, threads // ranks))
    return sides


def num_batches(batch_size: int) -> int:
    """Different batches, an epoch of the benchmark."""
    return max(4, min(workload.NUM_BATCHES, 2**18 // batch_size))


class RankMeasurements:
    """Measurements at one batch size, one value per round; the rounds of all lists correspond.

    A side's time is that of its slowest rank, the mean over the steps of a turn.
    """

    def __init__(self, batch_size: int, sides: Sequence[str], settings: Sequence[str]):
        self.batch_size = batch_size
        self.sides, self.settings = list(sides), list(settings)
        self.step_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
        # CPU milliseconds of a step, [round][rank] (user, system)
        self.cpu_ms: dict[tuple[str, str], list[list[tuple]]] = defaultdict(list)
        self.foreign_cpu: list[float] = []  # cores that other processes kept busy
        self.first_losses: dict[str, list[float]] = {}
        # Answers of the ranks, in their order.
        self.exchanged: dict[tuple[str, str], list[dict]] = {}
        self.parts: dict[tuple[str, str], list[dict[str, float]]] = {}
        self.described: dict[str, list[dict]] = {}

    def measure_round(self, sides: dict[str, RankSide], number: int, steps: int) -> None:
        """One turn of everybody, in falling or rising order."""
        for setting in self.settings:
            for name in self.sides if number % 2 else self.sides[::-1]:
                busy_s, begin = machine.busy_cpu_s(), time.perf_counter()
                answers = sides[name].ask("steps", key=setting, count=steps)
                busy_s = machine.busy_cpu_s() - busy_s - sum(a["cpu_s"] for a in answers)
                self.foreign_cpu.append(busy_s / (time.perf_counter() - begin))
                self.step_ms[name, setting].append(max(np.mean(a["ms"]) for a in answers))
                self.cpu_ms[name, setting].append([(a["user_ms"], a["system_ms"]) for a in answers])

    def check_same_training(
        self, sides: dict[str, RankSide], settings: Sequence[RankSetting], steps: int = 3
    ) -> None:
        """Does the first steps of every side.

        Raises:
            RuntimeError: the losses of two sides differ, so that they train different things.
        """
        for setting in settings:
            losses = {}
            for name, side in sides.items():
                answers = [side.ask("steps", key=setting.name, count=1)[0] for _ in range(steps)]
                losses[name] = [answer["loss"] for answer in answers]
            self.first_losses[setting.name] = check_losses(
                losses, f"in {setting.name} at batch {self.batch_size}", setting.loss_tolerance
            )


@contextlib.contextmanager
def running(side: LaunchedSide, rows: Path, **options: int):
    """The side's processes, without a model yet."""
    command = [sys.executable, "-m", "benchmarks.rank_scaling.worker", "--dataset_path", str(rows)]
    command += ["--threads", str(side.threads)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    with contextlib.closing(
        RankSide(side.name, side.launch, side.num_ranks, [*command, "--port"])
    ) as ranks:
        yield ranks


def start(side: RankSide, setting: RankSetting, batch_size: int) -> list[dict]:
    """Makes the model; returns the bytes that each rank will exchange per step."""
    return side.ask("start", key=setting.name, batch_size=batch_size, flags=setting.flags)


def measure(
    args, sides: list[LaunchedSide], settings: list[RankSetting], batch_size: int
) -> RankMeasurements:
    """Everything at one batch size."""
    measurements = RankMeasurements(batch_size, [s.name for s in sides], [s.name for s in settings])
    with tempfile.TemporaryDirectory() as temporary:
        rows = Path(temporary) / "rows"
        workload.make_rows(rows, num_batches(batch_size) * batch_size, args.table_rows)
        with contextlib.ExitStack() as together:
            at_work = {s.name: together.enter_context(running(s, rows)) for s in sides}
            for name, side in at_work.items():
                for setting in settings:
                    measurements.exchanged[name, setting.name] = start(side, setting, batch_size)
            measurements.check_same_training(at_work, settings)
            for number in range(args.warmup_rounds):
                RankMeasurements(
                    batch_size, measurements.sides, measurements.settings
                ).measure_round(at_work, number, args.steps)
            for number in range(args.rounds):
                measurements.measure_round(at_work, number, args.steps)
            for name, side in at_work.items():
                measurements.described[name] = side.ask("describe")
        # One operation at a time, so that each part's time is its own.
        for s in sides if args.trace_steps else ():
            with running(s, rows, inter_op_threads=1) as side:
                for setting in settings:
                    start(side, setting, batch_size)
                    side.ask("steps", key=setting.name, count=2)
                    answers = side.ask("parts", key=setting.name, count=args.trace_steps)
                    measurements.parts[s.name, setting.name] = [dict(a["parts"]) for a in answers]
    return measurements


def main() -> None:
    def listed(kind):
        return lambda text: [kind(item) for item in text.split(",")]

    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--batch_sizes", type=listed(int), default=[8192, 65536])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--warmup_rounds", type=int, default=1, help="rounds that do not count")
    parser.add_argument("--steps", type=int, default=3, help="steps of a side's turn")
    parser.add_argument("--trace_steps", type=int, default=5, help="0: no table of the parts")
    parser.add_argument("--threads", type=int, default=2, help="threads of a side")
    parser.add_argument("--ranks", type=int, default=2, help="ranks that share the threads")
    parser.add_argument("--launchers", type=listed(str), default=list(LAUNCHERS))
    parser.add_argument("--precisions", type=listed(str), default=list(workload.PRECISIONS))
    parser.add_argument("--table_rows", type=listed(int), default=list(workload.TABLE_ROWS))
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    if args.threads % args.ranks:
        parser.error(f"--ranks {args.ranks} cannot share --threads {args.threads} evenly")
    if unknown := set(args.launchers) - set(LAUNCHERS):
        parser.error(f"--launchers are {','.join(LAUNCHERS)}, got {','.join(unknown)}")
    if unknown := set(args.precisions) - set(workload.PRECISIONS):
        parser.error(f"--precisions are {','.join(workload.PRECISIONS)}, got {','.join(unknown)}")
    missing = {name: why for name in args.launchers if (why := why_missing(name))}
    present = [name for name in args.launchers if name not in missing]
    if not present:
        parser.error(f"no ranks to measure: {'; '.join(missing.values())}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    settings = settings_of(args.precisions)
    sides = sides_of(present, args.threads, args.ranks)
    # One batch size after the other: the large one fills the memory of a small machine.
    measurements = [measure(args, sides, settings, batch_size) for batch_size in args.batch_sizes]
    page, met = rank_report.render(measurements, args, missing)
    finish(page, met, args.output)


if __name__ == "__main__":
    main()
