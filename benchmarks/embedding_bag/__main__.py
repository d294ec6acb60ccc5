"""Embedding bags compared with fbgemm and PyTorch: lookup, gradient and update of 26 tables.

Rows per second are compared with the memory bandwidth of the machine.
"""

import argparse
import itertools
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.embedding_bag import workload
from benchmarks.embedding_bag.bandwidth import Bandwidth, compile_program, measure
from benchmarks.harness import report, training, workload_files
from benchmarks.harness.ranks import Ranks
from benchmarks.harness.report import Page, summary, table
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from config.criteo_multi_hot import HOTNESS

OURS = Side("ours", "embedding_bag.ours", is_torch=False)
PLAIN = OURS._replace(name="ours, plain path", flags=("--plain",))
FBGEMM = Side("fbgemm", "embedding_bag.fbgemm_peer")
TORCH = Side("EmbeddingBag", "embedding_bag.torch_peer")
LOSS_TOLERANCE = 1e-3
# Relative to the largest number of a row: sums of up to some 10^5 gradients, in another order.
TABLE_TOLERANCE = 1e-3
TARGET_RATIO = 1.5  # to fbgemm
TARGET_MEMORY = 1.0  # of fbgemm's
TARGET_SHARE = 0.5  # of the bandwidth of random rows
NUM_TABLES = len(HOTNESS)


class BagMeasurements(TrainingMeasurements):
    """Measurements of steps, and lists of the forward pass by (side, case) as of the steps."""

    def __init__(self, args: argparse.Namespace, program: Path):
        self.settings = settings_of(args)  # optimizer and sizes of each case
        super().__init__(cases_of(self.settings, args))
        self.forward_ms = defaultdict(list)
        self.differences: dict[tuple[str, str], float] = {}  # of a peer's tables, by side and case
        self.bandwidth: dict[str, Bandwidth] = {}  # of the rows of a case
        self._args, self._program = args, program

    def write_rows(self, folder: Path, case: Case) -> None:
        """Writes a case's ids and sizes, and measures the machine with them."""
        _, sizes = self.settings[case.name]
        rows = workload.make_rows(sizes)
        workload_files.save(folder, rows, sizes)
        self.bandwidth[case.name] = measure(
            self._program,
            workload.joined_ids(rows.ids, sizes),
            sizes.num_tables * sizes.num_rows,
            sizes.dim,
            self._args.threads,
            self._args.floor_mib,
        )

    def _measure_turn(self, worker: Ranks, case: str, count: int) -> None:
        super()._measure_turn(worker, case, count)
        times = worker.call("forward_ms", count=count)
        self.forward_ms[worker.name, case].append(float(np.median(times)))

    def compare_results(self, case: Case, folder: Path, workers: Mapping[Side, Ranks]) -> None:
        """Compares the tables of all sides after the steps of the run.

        Raises:
            RuntimeError: a peer's tables differ from ours.
        """
        _, sizes = self.settings[case.name]
        paths = {side: folder / f"tables_{number}" for number, side in enumerate(workers)}
        ours, *peers = workers
        workers[ours].call("save_tables", path=str(paths[ours]))
        for peer in peers:
            workers[peer].call("save_tables", path=str(paths[peer]))
            difference = workload.largest_difference(
                _read_tables(paths[ours], sizes), _read_tables(paths[peer], sizes)
            )
            paths[peer].unlink()
            if not difference <= TABLE_TOLERANCE:
                raise RuntimeError(
                    f"the sides do not train the same tables: rows of {case.name} differ by up to "
                    f"{difference:.1e} of their largest number between {ours.name} and "
                    f"{peer.name}, expected at most {TABLE_TOLERANCE}"
                )
            self.differences[peer.name, case.name] = difference

    def peak_gib(self, side: str, case: str) -> float:
        """Peak memory of a side's process from its first step on."""
        return self.described[side, case][0]["peak_kib"] / 2**20

    def base_gib(self, side: str, case: str) -> float:
        """Memory of a side's process before it has tables."""
        return self.described[side, case][0]["base_mib"] / 1024

    def tables_gib(self, side: str, case: str) -> float:
        """Peak memory of tables, batches and steps."""
        return self.peak_gib(side, case) - self.base_gib(side, case)

    def row_gbs(self, side: str, case: str) -> np.ndarray:
        """GB/s of rows that a side's forward pass reads, one value per round."""
        _, sizes = self.settings[case]
        return sizes.ids_per_batch * sizes.dim * 4e-6 / np.asarray(self.forward_ms[side, case])


def _read_tables(path: Path, sizes: workload.BagSizes):
    with path.open("rb") as file:
        for _ in range(sizes.num_tables):
            rows = np.fromfile(file, np.float32, sizes.num_rows * sizes.dim)
            yield rows.reshape(sizes.num_rows, sizes.dim)


def hotness_of(name: str) -> tuple[int, ...]:
    """Ids per sample of each table; `name` is a number or "mlperf"."""
    return HOTNESS if name == "mlperf" else (int(name),) * NUM_TABLES


def settings_of(args: argparse.Namespace) -> dict[str, tuple[str, workload.BagSizes]]:
    """Optimizer and sizes of each case, by its name."""
    result = {}
    product = itertools.product(args.optimizers, args.hotness, args.dims, args.batch_sizes)
    for optimizer, hotness, dim, batch_size in product:
        name = f"{optimizer}, hotness {hotness}, dim {dim}, batch {batch_size:,}"
        sizes = workload.BagSizes(dim, hotness_of(hotness), batch_size, args.rows)
        result[name] = (optimizer, sizes)
    return result


def cases_of(settings: Mapping[str, tuple[str, workload.BagSizes]], args) -> list[Case]:
    """Cases of all settings; PyTorch has no row-wise Adagrad."""
    plain = (PLAIN,) if args.plain else ()
    return [
        Case(
            name,
            (OURS, *plain, FBGEMM, *((TORCH,) if optimizer == "sgd" else ())),
            sizes.batch_size,
            {"optimizer": optimizer},
            LOSS_TOLERANCE,
            args.rounds,
            warmup_steps=args.warmup_steps,
        )
        for name, (optimizer, sizes) in settings.items()
    ]


def page_of(measurements: BagMeasurements, args: argparse.Namespace) -> Page:
    sides = dict.fromkeys(side for case in measurements.cases.values() for side in case.sides)
    difference = max(measurements.differences.values())
    facts = [
        *(f"{side.name}: {measurements.version(side.name)}" for side in sides),
        f"{NUM_TABLES} tables of {args.rows:,} rows, float32, log-uniform ids; a step is the "
        "lookup of all tables, the gradient of a fixed output gradient, and the update",
        f"after all steps, rows of the sides' tables differ by at most {difference:.1e} of their "
        "largest number",
        f"{args.threads} threads per side, one side at a time, {args.steps} steps and forward "
        f"passes per turn, {args.rounds} rounds after {args.warmup_steps} steps; median "
        "[quartiles] over the rounds",
        "peak memory: of a process from its first step on, with tables, ids and libraries",
        training.foreign_cpu(measurements.foreign_cpu),
    ]
    page = Page("Embedding bags on a CPU", [report.command("embedding_bag", args)], facts)
    page.add("Training steps", *_steps_table(measurements))
    page.add("Forward passes and the memory bandwidth", *_forward_table(measurements))
    page.add("The machine", *_machine_table(measurements))
    if not args.quick:
        _judge(page, measurements, args.optimizers)
    return page


def _steps_table(measurements: BagMeasurements) -> list[str]:
    rows = []
    for name, case in measurements.cases.items():
        for side in (side.name for side in case.sides):
            ratio = summary(measurements.slower(side, name), ".2f")
            rows.append(
                (
                    name,
                    side,
                    summary(measurements.step_ms[side, name], ".1f"),
                    f"{np.median(np.sum(measurements.cpu_ms[side, name], axis=(1, 2))):.0f}",
                    f"{measurements.peak_gib(side, name):.2f}",
                    f"{measurements.base_gib(side, name):.2f}",
                    f"{np.median(measurements.faults[side, name]):,.0f}",
                    "" if side == measurements.ours else ratio,
                )
            )
    columns = ("case", "side", "ms per step", "CPU ms", "peak GiB", "GiB before the tables")
    columns += ("page faults per step", "ours is faster by")
    return table(columns, rows, num_text=2)


def _forward_table(measurements: BagMeasurements) -> list[str]:
    rows = []
    for name, case in measurements.cases.items():
        bandwidth = measurements.bandwidth[name]
        for side in (side.name for side in case.sides):
            gbs = measurements.row_gbs(side, name)
            rows.append(
                (
                    name,
                    side,
                    summary(measurements.forward_ms[side, name], ".1f"),
                    summary(gbs, ".1f"),
                    f"{np.median(gbs) / np.median(bandwidth.random_rows):.0%}",
                    f"{np.median(gbs) / np.median(bandwidth.same_rows):.0%}",
                )
            )
    columns = ("ms", "GB/s of rows", "share of random rows", "share of the same rows")
    return table(("case", "side", *columns), rows, num_text=2)


def _machine_table(measurements: BagMeasurements) -> list[str]:
    triad, by_dim, same = [], defaultdict(list), {}
    for name, bandwidth in measurements.bandwidth.items():
        _, sizes = measurements.settings[name]
        triad += bandwidth.triad
        by_dim[sizes.dim] += bandwidth.random_rows
        hotness = next(part for part in name.split(", ") if part.startswith("hotness"))
        same.setdefault((hotness, sizes.dim, sizes.batch_size), []).extend(bandwidth.same_rows)
    rows = [("STREAM triad", summary(triad, ".1f"))]
    rows += [(f"random rows of {dim}", summary(gbs, ".1f")) for dim, gbs in by_dim.items()]
    rows += [
        (f"the rows of batches of {batch_size:,}, {hotness}, dim {dim}", summary(gbs, ".1f"))
        for (hotness, dim, batch_size), gbs in same.items()
    ]
    return [
        "A C++ program reads rows from huge pages, with prefetches, and adds them up in registers.",
        "",
        *table(("memory bandwidth", "GB/s"), rows),
    ]


def _judge(page: Page, measurements: BagMeasurements, optimizers: Sequence[str]) -> None:
    ours, peer = measurements.ours, FBGEMM.name
    gib, tables_gib = measurements.peak_gib, measurements.tables_gib

    def share(case: str) -> float:
        gbs = np.median(measurements.row_gbs(ours, case))
        return float(gbs / np.median(measurements.bandwidth[case].random_rows))

    for optimizer in optimizers:
        cases = [name for name, (kind, _) in measurements.settings.items() if kind == optimizer]
        ratio, case = min((float(np.median(measurements.slower(peer, c))), c) for c in cases)
        text = f"{ratio:.2f} times the samples per second of fbgemm, or more ({case})"
        page.judge(text, TARGET_RATIO, ratio >= TARGET_RATIO)
        memory, case = max((gib(ours, c) / gib(peer, c), c) for c in cases)
        text = f"{memory:.2f} of the peak memory of fbgemm, or less ({case})"
        page.judge(text, TARGET_MEMORY, memory <= TARGET_MEMORY, decides=False)
        memory, case = max((tables_gib(ours, c) / tables_gib(peer, c), c) for c in cases)
        text = f"{memory:.2f} of it without the memory before the tables, or less ({case})"
        page.judge(text, TARGET_MEMORY, memory <= TARGET_MEMORY)
        worst, case = min((share(c), c) for c in cases)
        text = f"forward passes read {worst:.0%} of the random-row bandwidth, or more ({case})"
        page.judge(text, TARGET_SHARE, worst >= TARGET_SHARE)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = training.parser_of(__doc__, rounds=7, steps=2, warmup_steps=2)
    listed = report.listed
    parser.add_argument("--optimizers", type=listed(str), default=workload.OPTIMIZERS)
    parser.add_argument(
        "--hotness", type=listed(str), default=("1", "20", "mlperf"), help="ids per sample"
    )
    parser.add_argument("--dims", type=listed(int), default=(16, 64, 128))
    parser.add_argument("--batch_sizes", type=listed(int), default=(2048, 8192))
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each table")
    parser.add_argument(
        "--floor_mib", type=int, default=1024, help="memory that the machine's bandwidth is of"
    )
    parser.add_argument("--plain", action="store_true", help="also ours without fused kernels")
    report.add_quick(parser)
    args = training.parse(parser, argv, "bench-embedding")
    if unknown := set(args.optimizers) - set(workload.OPTIMIZERS):
        parser.error(f"--optimizers: expected {workload.OPTIMIZERS}, got {', '.join(unknown)}")
    training.require_package(parser, args, "fbgemm_gpu", "bench-embedding")
    if args.quick:
        args.hotness, args.dims, args.batch_sizes = ("mlperf",), (16,), (64,)
        args.rows, args.rounds, args.steps, args.floor_mib = 500, 2, 1, 8
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    with tempfile.TemporaryDirectory() as folder:
        measurements = BagMeasurements(args, compile_program(Path(folder)))
        measurements.measure_all(measurements.write_rows, args)
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
