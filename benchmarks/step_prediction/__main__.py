"""Predicted time of a training step of MLPerf's DLRM-DCNv2 compared with the measured one.

The prediction is that of `--plan_only`: work of the plan over rates of kernels. Each process trains
some steps and then measures its kernels by themselves, turn by turn.
"""

import argparse
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import report, training
from benchmarks.harness.ranks import Ranks
from benchmarks.harness.report import Page, listed, spread, table
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from benchmarks.rank_scaling import launch_command, why_missing
from benchmarks.step_prediction import published
from config import criteo_multi_hot
from dataloading.spec import feature_spec as fs
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import synthetic_spec

TOLERANCE = 0.15  # of the predicted time relative to the measured one
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
NUM_BATCHES = 4
# Parts of the prediction that each prefix of a step contains.
PREFIXES = {
    "forward": ("ids", "lookup", "vectors", "forward"),
    "forward and backward": ("ids", "lookup", "vectors", "forward", "backward", "gradients"),
}


class Predictions(TrainingMeasurements):
    """Steps, and in each turn the prediction from kernels that are measured after them."""

    def __init__(self, cases: Sequence[Case]):
        super().__init__(cases)
        self.predicted = defaultdict(list)  # by (side, case), results of `predict` per round

    def _measure_turn(self, worker: Ranks, case: str, count: int) -> None:
        super()._measure_turn(worker, case, count)
        result = worker.call("predict")
        self.predicted[worker.name, case].append(result)
        measured = self.step_ms[worker.name, case][-1]
        text = f"measured {measured:.0f} ms, predicted {result['step']:.0f} ms"
        print(f"{case}, {worker.name}: {text}", file=sys.stderr, flush=True)

    def ratios(self, side: str, case: str) -> np.ndarray:
        """Predicted over measured time, one value per round."""
        predicted = [result["step"] for result in self.predicted[side, case]]
        return np.asarray(predicted) / np.asarray(self.step_ms[side, case])


def _medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.median([row[name] for row in rows])) for name in rows[0]}


def sides_of(ranks: Sequence[int], threads: int) -> list[Side]:
    """A side per number of ranks, which share the threads."""
    sides = []
    for number in ranks:
        each = threads // number
        name = f"{number} rank{'s' * (number > 1)} x {each} thread{'s' * (each > 1)}"
        launch = ("env",) if number == 1 else launch_command("gloo", number)
        common = {"is_torch": False, "launch": launch, "num_ranks": number, "threads": each}
        sides.append(Side(name, "step_prediction.ours", **common))
    return sides


def cases_of(args: argparse.Namespace) -> list[Case]:
    sides = sides_of(args.ranks, args.threads)
    small = {}
    if args.quick:
        small = {"embedding_dim": "8", "bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1)}
        small |= {"cross_layer_projection_dim": 8}
    return [
        Case(
            f"batch {batch_size:,}, {precision}",
            sides,
            batch_size,
            {"flags": {"batch_size": batch_size, "amp": precision == "bfloat16", **small}},
            LOSS_TOLERANCE[precision],
            args.rounds,
            warmup_steps=args.warmup_steps,
            parts=sides if args.trace_steps else (),
        )
        for batch_size in args.batch_sizes
        for precision in args.precisions
    ]


def page_of(measurements: Predictions, args: argparse.Namespace) -> Page:
    facts = [
        f"TensorFlow {measurements.version(measurements.ours)}; `dcnv2.py --preset mlperf` with "
        f"its loader, tables of at most {args.max_rows:,} rows, uniform ids",
        "predicted: bytes and operations of the plan over the rates of kernels, which the same "
        "processes measure after each turn; no rate comes from a step",
        f"{args.steps} steps per turn, {args.rounds} rounds; median [lowest, highest] over the "
        "rounds, ratios taken within a round",
        training.foreign_cpu(measurements.foreign_cpu),
    ]
    commands = [report.command("step_prediction", args)]
    page = Page("Predicted time of a training step", commands, facts)
    page.add("Steps", *_steps_table(measurements))
    page.add("Prefixes of the step", *_prefixes_table(measurements))
    page.add("Predicted parts, ms", *_by_side(measurements, "parts", 1, ".1f"))
    page.add("Rates", *_by_side(measurements, "rates", 1e9, ".2f"))
    page.add("Assumed rates compared with published throughputs", *published.comparison())
    for side, case in measurements.predicted:
        ratio = float(np.median(measurements.ratios(side, case)))
        text = f"{case}, {side}: predicted {ratio:.3f} of the measured time"
        target = None if args.quick else f"within {TOLERANCE:.0%}"
        page.judge(text, target, abs(ratio - 1) <= TOLERANCE)
    return page


def _steps_table(measurements: Predictions) -> list[str]:
    rows = []
    for (side, case), results in measurements.predicted.items():
        predicted = spread([result["step"] for result in results])
        measured = spread(measurements.step_ms[side, case])
        ratio = spread(measurements.ratios(side, case), ".3f")
        rows.append((case, side, measured, predicted, ratio))
    columns = ("case", "side", "measured ms", "predicted ms", "predicted / measured")
    return table(columns, rows, num_text=2)


def _prefixes_table(measurements: Predictions) -> list[str]:
    rows = []
    for (side, case), ranks in measurements.parts.items():
        parts = _medians([result["parts"] for result in measurements.predicted[side, case]])
        for prefix, names in PREFIXES.items():
            measured = max(float(np.median(rank[prefix])) for rank in ranks)
            predicted = sum(parts[name] for name in names)
            ratio = predicted / measured
            rows.append((case, side, prefix, f"{measured:.1f}", f"{predicted:.1f}", f"{ratio:.3f}"))
    columns = ("case", "side", "prefix", "measured ms", "predicted ms", "predicted / measured")
    note = "Medians; without the sum of the dense gradients and without updates."
    return [note, "", *table(columns, rows, num_text=3)]


def _by_side(measurements: Predictions, kind: str, unit: float, form: str) -> list[str]:
    by_side = {key: _medians([r[kind] for r in rs]) for key, rs in measurements.predicted.items()}
    names = list(dict.fromkeys(name for values in by_side.values() for name in values))
    rows = []
    for (side, case), values in by_side.items():
        cells = [
            f"{values[n] / (1e-3 if n == 'latency_s' else unit):{form}}" if n in values else ""
            for n in names
        ]
        rows.append((case, side, *cells))
    lines = table(("case", "side", *names), rows, num_text=2)
    if kind == "rates":
        lines = ["GFLOP/s and GB/s (10^9), of one rank; latency in ms.", "", *lines]
    return lines


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = report.parser_of(__doc__, threads=2, rounds=5, steps=1, warmup_steps=0, trace_steps=1)
    parser.add_argument("--batch_sizes", type=listed(int), default="2048,8192")
    parser.add_argument("--precisions", type=listed(str), default=",".join(LOSS_TOLERANCE))
    parser.add_argument("--ranks", type=listed(int), default="1,2", help="numbers of ranks")
    parser.add_argument("--max_rows", type=int, default=100_000, help="largest table")
    report.add_quick(parser)
    args = parser.parse_args(argv)
    for number in args.ranks:
        if args.threads % number:
            parser.error(f"--ranks {number} cannot share --threads {args.threads} evenly")
    if max(args.ranks) > 1 and (missing := why_missing("gloo")):
        parser.error(f"{missing}; or measure --ranks 1")
    if args.quick:
        args.batch_sizes, args.max_rows, args.rounds = (64,), 100, 2
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows = [min(count, args.max_rows) for count in criteo_multi_hot.CARDINALITIES]
    spec = synthetic_spec(rows, list(criteo_multi_hot.HOTNESS), alpha=0.0)

    def write_rows(folder: Path, case: Case) -> None:
        write_dataset(folder / "rows", spec, {fs.TRAIN: NUM_BATCHES * case.batch_size})

    measurements = Predictions(cases_of(args))
    measurements.measure_all(write_rows, args)
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
