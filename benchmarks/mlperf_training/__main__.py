"""Training throughput of MLPerf's DLRM-DCNv2 compared with TorchRec's reference model."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import machine, report, training, workload_files
from benchmarks.harness.report import Page
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from benchmarks.mlperf_training import workload
from config import criteo_multi_hot

OURS = Side("ours (TensorFlow)", "mlperf_training.ours", is_torch=False)
PEER = Side("TorchRec", "mlperf_training.peer")
POOLED_PEER = PEER._replace(name="TorchRec, memory kept", keeps_memory=True)
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
TARGET_RATIO = {"float32": 1.3, "bfloat16": 1.5}


def sizes_of(args: argparse.Namespace) -> workload.Sizes:
    """MLPerf's model, with at most `--max_rows` rows per table."""
    layers = {}
    if args.quick:
        layers = {"dim": 8, "bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1), "cross_rank": 8}
    return workload.Sizes(
        table_rows=tuple(min(rows, args.max_rows) for rows in criteo_multi_hot.CARDINALITIES),
        hotness=criteo_multi_hot.HOTNESS,
        batch_size=args.batch_size,
        num_batches=args.num_batches,
        **layers,
    )


def cases_of(args: argparse.Namespace) -> list[Case]:
    sides = (OURS, PEER, POOLED_PEER)
    return [
        Case(
            precision,
            sides,
            args.batch_size,
            {"precision": precision},
            LOSS_TOLERANCE[precision],
            args.rounds,
            warmup_steps=args.warmup_steps,
            parts=sides,
        )
        for precision in args.precisions
    ]


def page_of(measurements: TrainingMeasurements, args: argparse.Namespace) -> Page:
    sizes = sizes_of(args)
    facts = [
        f"{OURS.name}: TensorFlow {measurements.version(OURS.name)}, model, trainer and optimizers "
        "of `dcnv2.py --preset mlperf`",
        f"{PEER.name}: {measurements.version(PEER.name)}; DLRM_DCN, fbgemm's tables with exact "
        "Adagrad, `torch.optim.Adagrad`, `torch.autocast`, default memory allocator",
        f"{POOLED_PEER.name}: the same, but glibc keeps freed memory (`GLIBC_TUNABLES`); for "
        "information",
        f"batch {sizes.batch_size:,}, {workload.NUM_NUMERICAL} numerical features, "
        f"{len(sizes.table_rows)} tables with {sum(sizes.table_rows):,} rows of {sizes.dim}, "
        f"{sum(sizes.hotness)} ids per sample, log-uniform; bottom {sizes.bottom_mlp_dims}, "
        f"{sizes.num_cross_layers} cross layers of rank {sizes.cross_rank}, top "
        f"{sizes.top_mlp_dims}; batches in memory",
        *measurements.facts(args),
    ]
    title = "Training throughput of MLPerf's DLRM-DCNv2"
    page = Page(title, [report.command("mlperf_training", args)], facts)
    page.add("Training steps", *measurements.steps_table("precision"))
    page.add(
        "Where the time goes",
        "Medians of prefixes of the step. TorchRec's backward pass also moves the rows of the "
        "tables; our update sums the gradients of a row and moves it.",
        "",
        *measurements.prefixes_table(),
    )
    targets = dict(TARGET_RATIO)
    if not machine.has_fast_bfloat16():
        del targets["bfloat16"]
    measurements.judge(page, [PEER], {} if args.quick else targets)
    return page


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = training.parser_of(
        __doc__, batch_size=8192, rounds=9, steps=1, warmup_steps=2, trace_steps=3
    )
    precisions = tuple(TARGET_RATIO)
    parser.add_argument("--precisions", type=report.listed(str), default=precisions)
    parser.add_argument("--num_batches", type=int, default=4, help="different batches")
    parser.add_argument("--max_rows", type=int, default=400_000, help="largest table")
    report.add_quick(parser)
    args = training.parse(parser, argv, "bench-mlperf")
    training.require_package(parser, args, "torchrec", "bench-mlperf")
    if args.quick:
        args.batch_size, args.max_rows, args.rounds, args.trace_steps = 64, 100, 2, 1
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    measurements = TrainingMeasurements(cases_of(args))

    def write_rows(folder: Path, case: Case) -> None:
        sizes = sizes_of(args)
        workload_files.save(folder, workload.make_rows(sizes), sizes)

    measurements.measure_all(write_rows, args)
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
