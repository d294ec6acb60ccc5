"""Network traffic of a plan: computed for published models, and measured on links of tc.

    make bench-network
    python -m benchmarks.network --output benchmarks/results/network_CPU_YYYYMM.md
    python -m benchmarks.network --rounds 0        (computed only; any machine, a second)

Measured: the recipe `dlrm.py` on ranks that have a network namespace each, whose links are slowed
down (needs root, iproute2, Open MPI). One set of processes trains at every speed in turn, in an
order that alternates from round to round; a ratio is taken within a round. The exit code is 1 if
the plan's bytes are not those of the interfaces, or a step was faster than the plan's bound.
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

from benchmarks.dlrm_training import workload
from benchmarks.harness import machine
from benchmarks.harness.report import finish
from benchmarks.network import report as network_report
from benchmarks.network.machines import Machines, machines, why_missing
from benchmarks.network.ranks import Ranks
from benchmarks.rank_scaling.sides import why_missing as why_launcher_missing

IDLE_S = 2.0


class NetworkSetting(NamedTuple):
    """Flags that differ from the recipe's.

    Attributes:
        exact: the plan knows every byte; else it estimates how many ids are different.
    """

    name: str
    flags: dict
    exact: bool = True


SETTINGS = (
    NetworkSetting("float32", {}),
    NetworkSetting("vectors travel as bfloat16", {"exchange_dtype": "bfloat16"}),
    NetworkSetting(
        "row, column and no slices, copies",
        {
            "row_slice_threshold": 11_000_000,
            "column_slice_threshold": 4_000_000,
            "data_parallel_threshold": 100_000,
        },
        exact=False,
    ),
)


class NetworkMeasurements:
    """Lists of (setting, Mbit/s of a link or None) with one value per round.

    Attributes:
        exact: settings of which the plan knows every byte.
        planned: of each setting, bytes between machines per step, (sent, received) of each
          machine.
        step_ms: of the slowest rank, mean of the turn.
        passed: bytes of a step on the links, headers included, (sent, received) of each machine.
        idle_bytes_per_s: what passes a link while the ranks wait for work.
        foreign_cpu: cores that other processes kept busy during the turns.
    """

    def __init__(self):
        self.exact = {setting.name for setting in SETTINGS if setting.exact}
        self.planned: dict[str, list[tuple[float, float]]] = {}
        self.step_ms: dict[tuple[str, int | None], list[float]] = defaultdict(list)
        self.passed: dict[tuple[str, int | None], list[list[tuple[float, float]]]] = defaultdict(
            list
        )
        self.idle_bytes_per_s = 0.0
        self.foreign_cpu: list[float] = []
        self.tensorflow = ""

    def measure_turn(self, ranks: Ranks, per_machine: int, setting: str, rate, steps: int) -> None:
        """A few steps at one speed, after one to get used to it."""
        ranks.ask("steps", key=setting, count=1)
        busy_s, begin = machine.busy_cpu_s(), time.perf_counter()
        answers = ranks.ask("steps", key=setting, count=steps)
        busy_s = machine.busy_cpu_s() - busy_s - sum(a["cpu_s"] for a in answers)
        self.foreign_cpu.append(max(0.0, busy_s / (time.perf_counter() - begin)))
        self.step_ms[setting, rate].append(max(sum(a["ms"]) / steps for a in answers))
        self.passed[setting, rate].append(
            [(a["sent"] / steps, a["received"] / steps) for a in answers[::per_machine]]
        )


def of_machines(planned: Sequence[dict], per_machine: int) -> list[tuple[float, float]]:
    """Bytes between machines, of each machine, from the traffic of each rank in its plan."""
    totals = [
        (sum(rank_bytes["sent_between"].values()), sum(rank_bytes["received_between"].values()))
        for rank_bytes in planned
    ]
    return [
        tuple(map(sum, zip(*totals[first : first + per_machine], strict=True)))
        for first in range(0, len(totals), per_machine)
    ]


def measure(args: argparse.Namespace, folder: Path) -> NetworkMeasurements:
    """Everything at all speeds."""
    measurements, per_machine = NetworkMeasurements(), args.ranks_per_machine
    rows = folder / "rows"
    workload.make_rows(rows, 4 * args.batch_size, args.table_rows)
    command = [sys.executable, "-m", "benchmarks.network.worker", "--dataset_path", str(rows)]
    command += ["--ranks_per_machine", str(per_machine), "--socket"]
    with machines(args.machines, folder, per_machine) as cluster:
        num_ranks = args.machines * per_machine
        with contextlib.closing(Ranks(cluster.launch, command, num_ranks, folder)) as ranks:
            measurements.tensorflow = ranks.ask("describe")[0]["tensorflow"]
            for setting in SETTINGS:
                planned = ranks.ask(
                    "start", key=setting.name, batch_size=args.batch_size, flags=setting.flags
                )
                measurements.planned[setting.name] = of_machines(planned, per_machine)
                ranks.ask("steps", key=setting.name, count=2)
            (first, *_) = ranks.ask("idle", seconds=IDLE_S)
            measurements.idle_bytes_per_s = first["sent"] / first["elapsed_s"]
            for number in range(args.rounds):
                _measure_round(measurements, cluster, ranks, args, number)
    return measurements


def _measure_round(
    measurements: NetworkMeasurements,
    cluster: Machines,
    ranks: Ranks,
    args: argparse.Namespace,
    number: int,
) -> None:
    rates = [None, *args.rates]
    for rate in rates if number % 2 else rates[::-1]:
        cluster.limit(None if rate is None else rate * 1e6)
        for setting in SETTINGS:
            measurements.measure_turn(ranks, args.ranks_per_machine, setting.name, rate, args.steps)
    print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)


def main() -> None:
    def whole_numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--machines", type=int, default=2)
    add("--ranks_per_machine", type=int, default=1, help="one thread each")
    add("--batch_size", type=int, default=2048, help="of all ranks together")
    add("--rates", type=whole_numbers, default="1000,300,100", help="Mbit/s of a machine's link")
    add("--rounds", type=int, default=5, help="0: measure nothing")
    add("--steps", type=int, default=2, help="of a turn, after one that is not measured")
    add("--table_rows", type=whole_numbers, default=",".join(map(str, workload.TABLE_ROWS)))
    add("--output", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    ranks = args.machines * args.ranks_per_machine
    if args.machines < 2 or args.ranks_per_machine < 1:
        parser.error("a network takes --machines 2 or more, and --ranks_per_machine 1 or more")
    if args.batch_size < 1 or args.batch_size % ranks:
        parser.error(f"--batch_size {args.batch_size} is not a multiple of the {ranks} ranks")
    if min(args.rates) < 1 or args.steps < 1 or args.rounds < 0:
        parser.error("--rates and --steps are 1 or more, --rounds 0 or more")
    measurements = None
    if args.rounds:
        if missing := why_missing() or why_launcher_missing("mpi"):
            parser.error(f"nothing can be measured here ({missing}): take --rounds 0")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        with tempfile.TemporaryDirectory() as folder:
            measurements = measure(args, Path(folder))
    page, met = network_report.render(measurements, args)
    finish(page, met, args.output)


if __name__ == "__main__":
    main()
