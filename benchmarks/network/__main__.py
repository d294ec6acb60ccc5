"""Network traffic of a plan: computed for published models, and measured on links of tc.

Measured (`--rounds 0`: not at all) is the recipe `dlrm.py` on ranks that have a network namespace
each, whose links are slowed down (needs root, iproute2, Open MPI). The targets: the plan's bytes
are those of the interfaces, and no step is faster than the plan's bound.
"""

import argparse
import contextlib
import importlib.metadata
import itertools
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
from benchmarks.harness import report, training
from benchmarks.harness.ranks import Ranks, ask_and_watch
from benchmarks.harness.report import Page, listed, summary, table
from benchmarks.network import models
from benchmarks.network.machines import Machines, machines, why_missing
from benchmarks.rank_scaling import why_missing as why_launcher_missing

IDLE_S = 2.0
NUM_RANKS = (8, 16, 32, 64, 128)  # of the computed table
# The share of a step's bytes on the interfaces that headers and Horovod's own messages may take.
MOST_OVERHEAD = 0.02
LINKS = (models.NVLINK, *models.BETWEEN)


class NetworkSetting(NamedTuple):
    """Flags that differ from the recipe's."""

    name: str
    flags: dict
    exact: bool = True  # else the plan estimates the number of distinct ids


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
    """Lists of (setting, Mbit/s of a link or None) with one value per round."""

    def __init__(self):
        # bytes between machines per step, [machine, (sent, received)], of each setting
        self.planned: dict[str, np.ndarray] = {}
        # of the slowest rank, mean of the turn
        self.step_ms: dict[tuple[str, int | None], list[float]] = defaultdict(list)
        # like `planned`, but measured on the links, headers included
        self.passed: dict[tuple[str, int | None], list[np.ndarray]] = defaultdict(list)
        self.idle_bytes_per_s = 0.0  # passing a link while the ranks wait for work
        self.foreign_cpu: list[float] = []  # cores that other processes kept busy during the turns
        self.version = ""  # of TensorFlow

    def measure_turn(
        self, cluster: Machines, ranks: Ranks, setting: str, rate: int | None, steps: int
    ) -> None:
        """A few steps at one speed, after one to get used to it."""
        cluster.limit(None if rate is None else rate * 1e6)
        ranks.ask("steps", count=1)
        before = cluster.passed_bytes()
        answers, foreign_cpu = ask_and_watch(ranks, "steps", count=steps)
        self.passed[setting, rate].append((cluster.passed_bytes() - before) / steps)
        self.foreign_cpu.append(max(0.0, foreign_cpu))
        self.step_ms[setting, rate].append(max(float(np.mean(a["ms"])) for a in answers))

    def network_ms(self, setting: str, rate: int) -> float:
        """The busiest machine's bytes in the busier direction, at the link's speed."""
        return self.planned[setting].max() * 8 / rate / 1e3

    def passed_of(self, setting: str) -> np.ndarray:
        """[turn, machine, direction], of all rounds and speeds."""
        turns = [
            turn for (name, _), turns in self.passed.items() if name == setting for turn in turns
        ]
        return np.asarray(turns)

    def overhead(self, setting: str) -> np.ndarray:
        """Bytes on the interfaces over the plan's, of all machines, directions and turns."""
        return (self.passed_of(setting) / self.planned[setting]).ravel()

    @property
    def rates(self) -> list[int]:
        return sorted({rate for _, rate in self.step_ms if rate is not None}, reverse=True)


def of_machines(described: Sequence[dict], per_machine: int) -> np.ndarray:
    """Bytes between machines, [machine, (sent, received)], from the traffic of each rank."""
    totals = [[sum(rank[way].values()) for way in ("sent", "received")] for rank in described]
    return np.array(totals).reshape(-1, per_machine, 2).sum(axis=1)


def measure(args: argparse.Namespace, folder: Path) -> NetworkMeasurements:
    """One setting after the other at all speeds."""
    measurements, per_machine = NetworkMeasurements(), args.ranks_per_machine
    workload.make_rows(folder / "rows", 4 * args.batch_size, args.table_rows)
    command = [sys.executable, "-m", "benchmarks.dlrm_training.ours", "--folder", str(folder)]
    command += ["--threads", "1", "--untimed_loss", "--ranks_per_machine", str(per_machine)]
    num_ranks = args.machines * per_machine
    with (
        machines(args.machines, folder, per_machine) as cluster,
        contextlib.closing(
            Ranks("network", command, cluster.launch, num_ranks, pauses=False)
        ) as ranks,
    ):
        for setting in SETTINGS:
            ranks.ask("start", flags=setting.flags, batch_size=args.batch_size)
            ranks.ask("steps", count=2)
            described = ranks.ask("describe")
            measurements.planned[setting.name] = of_machines(described, per_machine)
            measurements.version = described[0]["version"]
            for number in range(args.rounds):
                rates = [None, *args.rates]
                for rate in rates if number % 2 else rates[::-1]:
                    measurements.measure_turn(cluster, ranks, setting.name, rate, args.steps)
                print(f"{setting.name}: round {number + 1}", file=sys.stderr, flush=True)
        before = cluster.passed_bytes()
        time.sleep(IDLE_S)
        measurements.idle_bytes_per_s = (cluster.passed_bytes() - before)[0, 0] / IDLE_S
    return measurements


def page_of(measurements: NetworkMeasurements | None, args) -> Page:
    """The page; with None nothing was measured."""
    facts = ["*computed*, *published* and *measured*: see `benchmarks/README.md`"]
    if measurements is not None:
        facts += [
            f"TensorFlow {measurements.version}, Horovod {importlib.metadata.version('horovod')} "
            "with MPI over TCP",
            f"the recipe `dlrm.py`, {workload.describe(args.table_rows)}, SGD; median [quartiles] "
            "over the rounds, ratios taken within a round",
            training.foreign_cpu(measurements.foreign_cpu),
        ]
    page = Page("Network traffic of a plan", [report.command("network", args)], facts)
    page.add("NVIDIA's models: bytes and time of the network, computed", *computed_table())
    page.add("Compared with NVIDIA's throughputs on one machine", *published_table())
    page.add("Compared with published steps on many machines", *synthetic_table())
    if measurements is None:
        page.judge("nothing was measured (`--rounds 0`)")
        return page
    page.add("Bytes: the plan and the interfaces", *_bytes_table(measurements))
    page.add("Time: the plan and links of a given speed", *_times_table(measurements))
    for setting in SETTINGS:
        _judge(page, measurements, setting)
    return page


def computed_table() -> list[str]:
    short = [link.name.split(",")[0] for link in LINKS]
    columns = ("model", "precision", "ranks", "MB within a machine", "MB between machines")
    columns += tuple(f"ms, {name}" for name in short)
    columns += tuple(f"at most M samples/s, {name}" for name in short[1:])
    rows = []
    for model, precision, num_ranks in itertools.product(
        models.MODELS, models.PRECISIONS, NUM_RANKS
    ):
        load = models.ranking_load(model, num_ranks, precision)
        megabytes = (f"{load.within / 1e6:.1f}", f"{load.between / 1e6:.1f}")
        ms = [load.ms(link) for link in LINKS]
        bounds = [models.BATCH_SIZE / load.step_ms(link) / 1e3 for link in models.BETWEEN]
        cells = (f"{value:.3g}" if value else "-" for value in (*ms, *bounds))
        rows.append((model.name, precision, num_ranks, *megabytes, *cells))
    return table(columns, rows, num_text=2)


def published_table() -> list[str]:
    columns = ("model", "GPUs", "precision", "published M samples/s", "published, ms per step")
    columns += ("computed: MB per rank", "computed: ms over NVLink", "computed / published")
    rows = []
    for model, precision in itertools.product(models.MODELS, models.PRECISIONS):
        num_gpus, rate = models.RANKS_PER_MACHINE, model.samples_per_s[precision]
        load = models.ranking_load(model, num_gpus, precision)
        step_ms, network_ms = models.BATCH_SIZE / rate * 1e3, load.ms(models.NVLINK)
        published = (f"{rate / 1e6:g}", f"{step_ms:.2f}")
        computed = (f"{load.within / 1e6:.1f}", f"{network_ms:.2f}", f"{network_ms / step_ms:.2f}")
        rows.append((model.name, num_gpus, precision, *published, *computed))
    return table(columns, rows)


def synthetic_table() -> list[str]:
    columns = ("model", "GPUs", "published, ms per step", "computed: MB within a machine")
    columns += ("computed: MB between machines", "computed: ms of the network")
    rows = []
    for model in models.SYNTHETIC:
        for gpus, step_ms in model.step_ms.items():
            load = models.synthetic_load(model, gpus)
            network_ms = load.step_ms(models.HDR)
            megabytes = (f"{load.within / 1e6:.1f}", f"{load.between / 1e6:.1f}")
            times = (f"{network_ms:.2f}", f"{network_ms / step_ms:.2f}")
            rows.append((model.name, gpus, f"{step_ms:g}", *megabytes, *times))
    return table((*columns, "computed / published"), rows)


def _bytes_table(measurements: NetworkMeasurements) -> list[str]:
    rows = []
    for setting, planned in measurements.planned.items():
        passed = measurements.passed_of(setting).max(axis=(1, 2)) / 1e6
        ratios = summary(measurements.overhead(setting), ".4f")
        rows.append((setting, f"{planned.max() / 1e6:.3f}", summary(passed, ".3f"), ratios))
    return [
        "MB (10^6 bytes) a step out of the busiest machine; the ratio is of every machine and "
        "direction. While ranks wait for work, Horovod's looks for it pass "
        f"{measurements.idle_bytes_per_s / 1e6:.2f} MB/s.",
        "",
        *table(("setting", "computed", "measured", "measured / computed"), rows),
    ]


def _times_table(measurements: NetworkMeasurements) -> list[str]:
    columns = ("setting", "Mbit/s", "computed: network alone")
    columns += ("measured without a limit + computed", "measured", "measured / predicted")
    rows = []
    for setting in measurements.planned:
        base = np.array(measurements.step_ms[setting, None])
        rows.append((setting, "no limit", "", "", summary(base), "", ""))
        for rate in measurements.rates:
            step_ms = np.array(measurements.step_ms[setting, rate])
            network_ms = measurements.network_ms(setting, rate)
            predicted, added_ms = base + network_ms, np.median(step_ms - base)
            share = f"{network_ms / added_ms:.2f}" if added_ms > 0 else "-"
            computed = (f"{network_ms:.0f}", f"{np.median(predicted):.0f}", summary(step_ms))
            ratio = summary(step_ms / predicted, ".2f")
            rows.append((setting, f"{rate:,}", *computed, ratio, share))
    return table((*columns, "share of the link"), rows)


def _judge(page: Page, measurements: NetworkMeasurements, setting: NetworkSetting) -> None:
    ratios = measurements.overhead(setting.name)
    text = f"{setting.name}: {np.median(ratios):.4f} of the plan's bytes on the interfaces"
    if not setting.exact:
        page.judge(text)
        return
    is_met = ratios.min() >= 1 and np.median(ratios) <= 1 + MOST_OVERHEAD
    page.judge(text, f"1 to {1 + MOST_OVERHEAD:g}", is_met)
    for rate in measurements.rates:
        fastest = min(measurements.step_ms[setting.name, rate])
        share = fastest / measurements.network_ms(setting.name, rate)
        text = f"the fastest turn took {share:.2f} of the least time by the plan"
        page.judge(f"{setting.name}, {rate:,} Mbit/s: {text}", "1 or more", share >= 1)


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__)
    add = parser.add_argument
    add("--machines", type=int, default=2)
    add("--ranks_per_machine", type=int, default=1, help="one thread each")
    add("--batch_size", type=int, default=2048, help="of all ranks together")
    add("--rates", type=listed(int), default="1000,300,100", help="Mbit/s of a machine's link")
    add("--rounds", type=int, default=5, help="0: measure nothing")
    add("--steps", type=int, default=2, help="of a turn, after one that is not measured")
    add("--table_rows", type=listed(int), default=workload.TABLE_ROWS)
    args = parser.parse_args(argv)
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
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
