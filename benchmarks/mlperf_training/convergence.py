"""Samples to a target AUC with `dcnv2.py --preset mlperf`: precision and ranks, over seeds.

python -m benchmarks.mlperf_training.convergence --data DIR --output PAGE

As MLPerf's reference convergence points: the number of samples after which the validation AUC
reaches the target, for every seed. The data set is generated in DIR, if it is not there yet, from a
known teacher with several ids per feature. The AUC is read at 20 evaluations of one epoch, and the
samples are interpolated between two of them.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness.report import Page, table
from benchmarks.quality.recipe_runs import log_of, run, study_page, study_parser

BATCH_SIZE = 2048
DATA = {
    "rows": "400000",
    "validation_rows": "50000",
    "test_rows": "50000",
    "num_numerical": "13",
    "cardinalities": "40000,1000,200,50,3,7000",
    "hotness": "3,2,1,10,1,20",
    "seed": "1",
}
MODEL = (
    "--preset=mlperf --embedding_dim=16 --bottom_mlp_dims=64,16 --top_mlp_dims=64,32,1 "
    f"--cross_layer_projection_dim=16 --batch_size={BATCH_SIZE} --auc_threshold=1 --cpu"
).split()
LAUNCH = ("-m", "runtime.cluster.horovodrun", "--gloo", "-np", "2", sys.executable)
VARIANTS = {
    "float32, 1 rank": ((), ()),
    "bfloat16, 1 rank": ((), ("--amp",)),
    "float32, 2 ranks": (LAUNCH, ()),
    "bfloat16, 2 ranks": (LAUNCH, ("--amp",)),
}


def samples_to(target: float, steps: list[int], aucs: list[float]) -> float:
    """Returns the samples at which the AUC first reaches the target; NaN if it never does."""
    above = np.flatnonzero(np.array(aucs) >= target)
    if not above.size:
        return np.nan
    last = above[0]
    first = max(0, last - 1)
    step = np.interp(target, [aucs[first], aucs[last]], [steps[first], steps[last]])
    return float(step * BATCH_SIZE)


def measure(data: Path, run_dir: Path, variant: str, seed: int, target: float) -> float:
    """Trains once; returns the samples to the target."""
    launch, flags = VARIANTS[variant]
    command = ["dcnv2.py", *MODEL, *flags, f"--dataset_path={data}", f"--seed={seed}"]
    run(*launch, *command, f"--run_dir={run_dir}")
    points = [
        (entry["step"][1], entry["data"]["auc"])
        for entry in log_of(run_dir)
        if isinstance(entry.get("step"), list) and entry["step"] and "auc" in entry["data"]
    ]
    return samples_to(target, *map(list, zip(*points, strict=True)))


class Difference(NamedTuple):
    """Mean difference of equal seeds, and its standard error, in samples."""

    mean: float
    error: float


def difference(values: list[float], others: list[float]) -> Difference:
    """Returns the paired difference of two variants."""
    apart = np.subtract(values, others)
    return Difference(float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart))))


def results_page(args: argparse.Namespace, results: dict[str, list[float]]) -> Page:
    """Returns the page, with a verdict on each variant but the first."""
    first, rows, verdicts = next(iter(results.values())), [], []
    for name, values in results.items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        row = [name, f"{np.mean(values):,.0f}", f"{np.std(values, ddof=1):,.0f}", spread]
        if values is not first:
            apart = difference(values, first)
            row.append(f"{apart.mean:+,.0f} ± {apart.error:,.0f}")
            verdicts.append((name, apart))
        rows.append([*row, ""][:5])
    facts = [
        f"generated data: {DATA}",
        f"flags: {' '.join(MODEL)}",
        f"samples until the validation AUC is {args.target}, {args.seeds} seeds; differences from "
        "the first variant are of equal seeds, with one standard error",
    ]
    columns = ("variant", "mean samples", "deviation", "range", "difference")
    title = "Samples to the target AUC of DLRM-DCNv2"
    page = study_page(title, "mlperf_training.convergence", facts, table(columns, rows))
    for name, apart in verdicts:
        page.judge(
            f"{name}: {apart.mean / apart.error:+.1f} standard errors from the first variant",
            "at most 3",
            abs(apart.mean) <= 3 * apart.error,
        )
    return page


def main() -> int:
    """Trains all seeds, variants alternating, and writes the page."""
    parser = study_parser(__doc__, seeds=10)
    parser.add_argument("--target", type=float, default=0.755)
    args = parser.parse_args()
    data = args.data / "multi_hot"
    if not data.exists():
        flags = [text for name, value in DATA.items() for text in (f"--{name}", value)]
        run("-m", "dataloading.synthetic", "--output", data, *flags)
    results: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for seed in range(args.seeds):
        for number, name in enumerate(VARIANTS):
            run_dir = args.data / f"run_{number}_{seed}"
            results[name].append(measure(data, run_dir, name, seed, args.target))
            print(f"seed {seed}, {name}: {results[name][-1]:,.0f} samples", flush=True)
    (args.data / "samples.json").write_text(json.dumps(results, indent=1))
    return results_page(args, results).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
