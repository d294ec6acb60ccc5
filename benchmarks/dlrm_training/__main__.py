"""Training throughput of DLRM compared with a plain PyTorch DLRM, in one interleaved run.

Each round also measures the step's matrix products alone, which are the lower bound (the floor) of
a step's time.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.dlrm_training.step_parts import parts_table
from benchmarks.harness import machine, training, workload_files
from benchmarks.harness.report import Page, command, summary, table
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from benchmarks.quality.simple_models import samples_by_role
from dataloading.pipeline.columns import Role
from dataloading.spec.feature_spec import TRAIN, FeatureSpec

OURS = Side("ours (TensorFlow)", "dlrm_training.ours", is_torch=False)
PEER = Side("PyTorch", "dlrm_training.peer")
POOLED_PEER = PEER._replace(name="PyTorch, memory kept", keeps_memory=True)
# One operation at a time, so that each part's time is its own: as fast a step as with more.
TRACED = OURS._replace(name="ours, traced", flags=("--inter_op_threads", "1"))
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
TARGET_RATIO = {"float32": 1.5, "bfloat16": 1.7}
TARGET_SHARE_OF_FLOOR = {"float32": 0.9, "bfloat16": 0.7}


def cases_of(rounds: int, warmup_steps: int) -> list[Case]:
    return [
        Case(
            precision,
            (OURS, PEER, POOLED_PEER),
            workload.BATCH_SIZE,
            {"flags": {"amp": precision == "bfloat16"}},
            LOSS_TOLERANCE[precision],
            rounds,
            warmup_steps=warmup_steps,
            parts=[TRACED],
            products=(OURS, PEER),
        )
        for precision in workload.PRECISIONS
    ]


def read_rows(folder: Path) -> workload.DLRMRows:
    """The samples of `workload.make_rows` as arrays, for PyTorch."""
    samples = samples_by_role(FeatureSpec.from_yaml(folder / "feature_spec.yaml"), TRAIN)
    dtypes = {Role.NUMERICAL: np.float32, Role.CATEGORICAL: np.int64, Role.LABEL: np.float32}
    return workload.DLRMRows(
        *(np.concatenate(samples[role], axis=1).astype(dtype) for role, dtype in dtypes.items())
    )


def write_rows(folder: Path, case: Case) -> None:
    num_rows = workload.NUM_BATCHES * workload.BATCH_SIZE
    workload.make_rows(folder / "rows", num_rows, workload.TABLE_ROWS)
    workload_files.save_rows(folder / "rows.npz", read_rows(folder / "rows"))


def page_of(measurements: TrainingMeasurements, args) -> Page:
    version = measurements.version
    facts = [
        f"{OURS.name}: TensorFlow {version(OURS.name)}, the recipe `dlrm.py` with its loader",
        f"{PEER.name}: torch {version(PEER.name)}, `benchmarks/dlrm_training/peer.py`, "
        "default memory allocator",
        f"{POOLED_PEER.name}: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for "
        "information",
        f"batch {workload.BATCH_SIZE:,}, {workload.describe(workload.TABLE_ROWS)}, SGD; "
        f"{args.warmup_rounds} rounds to warm up",
        *measurements.facts(args),
    ]
    page = Page("Training throughput of DLRM", [command("dlrm_training", args)], facts)
    page.add("Training steps", *measurements.steps_table("precision"))
    page.add("The floor: the matrix products alone", *_products_table(measurements))
    parts = {case: ranks[0] for (_, case), ranks in measurements.parts.items()}
    page.add("Milliseconds of every part of our step", *parts_table(parts))
    targets = dict(TARGET_RATIO)
    if not machine.has_fast_bfloat16():
        del targets["bfloat16"]
    measurements.judge(page, [PEER], targets)
    _judge_floor(page, measurements)
    return page


def _products_table(measurements: TrainingMeasurements) -> list[str]:
    gflop = sum(product.gflop for product in workload.products())
    rows = []
    for (side, precision), values in measurements.product_ms.items():
        ms = np.sum(values, axis=1)
        rows.append((precision, side, summary(ms), summary(gflop / ms * 1e3)))
    return [
        f"{gflop:.0f} GFLOP per step: for each layer X W, G W^T and X^T G, for the interaction "
        "X X^T and twice S X.",
        "",
        *table(("precision", "multiplied by", "ms of all products", "GFLOP/s"), rows, num_text=2),
    ]


def _judge_floor(page: Page, measurements: TrainingMeasurements) -> None:
    skipped = np.array([product.skipped for product in workload.products()])
    for precision in measurements.cases:
        ms = np.asarray(measurements.step_ms[OURS.name, precision])
        product_ms = np.asarray(measurements.product_ms[OURS.name, precision])
        share = float(np.median(product_ms.sum(axis=1) / ms))
        strict = float(np.median(product_ms[:, ~skipped].sum(axis=1) / ms))
        target = TARGET_SHARE_OF_FLOOR[precision]
        text = (
            f"{precision}: {share:.0%} of the floor's speed ({strict:.0%} counting only the "
            "products that our step computes)"
        )
        page.judge(text, target, share >= target, decides=False)


def main(argv: Sequence[str] | None = None) -> int:
    parser = training.parser_of(__doc__, rounds=12, steps=3)
    parser.add_argument("--warmup_rounds", type=int, default=2, help="rounds that do not count")
    args = training.parse(parser, argv, "bench")
    measurements = TrainingMeasurements(cases_of(args.rounds, args.warmup_rounds * args.steps))
    measurements.measure_all(write_rows, args)
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
