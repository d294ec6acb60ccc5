"""Training throughput of NeuMF compared with plain PyTorch, in one interleaved run."""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import training, workload_files
from benchmarks.harness.report import Page
from benchmarks.harness.training import Case, TrainingMeasurements
from benchmarks.ncf_training import workload

OURS, LAZY, DENSE = training.adam_sides("ncf_training")
OURS_LOW = OURS._replace(
    name="ours, bfloat16", flags=("--dtype", "mixed_bfloat16"), is_compared=False
)
POOLED = DENSE._replace(name="PyTorch, dense Adam, memory kept", keeps_memory=True)
SIDES = (OURS, LAZY, DENSE, POOLED, OURS_LOW)
TARGET_RATIO = 1.5
# Adam makes a step of full length of the sign of a gradient that rounding decides, and the dense
# one moves rows that do not occur.
LOSS_TOLERANCE = 2e-3


def cases_of(args) -> list[Case]:
    """The losses are compared without dropout, whose units each side draws in its own way."""
    return [
        Case(
            shape,
            SIDES,
            args.batch_size,
            {"dropout": workload.NCFSizes.dropout},
            LOSS_TOLERANCE,
            args.rounds,
            compared_options={"dropout": 0.0},
            warmup_steps=2,
            parts=(OURS, DENSE),
        )
        for shape in args.shapes
    ]


def page_of(measurements: TrainingMeasurements, facts: dict, args) -> Page:
    """The page; `facts` are `workload.facts` of each shape."""
    sizes = workload.NCFSizes()
    setting = [
        f"float32, factors {sizes.factors}, layers {sizes.layers}, dropout {sizes.dropout}, Adam "
        f"{workload.LEARNING_RATE}, {workload.BETA1}, {workload.BETA2}, {workload.EPSILON}; losses "
        "are compared without dropout"
    ]
    for shape, counts in facts.items():
        users, items = workload.SHAPES[shape]
        counted = ", ".join(f"{count:,.0f} {name}" for name, count in counts.items())
        setting.append(f"{shape}: {users:,} users, {items:,} items; {counted} per batch")
    targets = dict.fromkeys(args.shapes, TARGET_RATIO)
    title = "Training throughput of NeuMF"
    return training.adam_page(measurements, args, "ncf_training", title, setting, targets)


def main(argv: Sequence[str] | None = None) -> int:
    parser = training.parser_of(__doc__, rounds=6, steps=1, batch_size=workload.NCFSizes.batch_size)
    shapes = list(workload.SHAPES)
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes)
    args = training.parse(parser, argv, "bench-ncf")
    facts = {}

    def write_rows(folder: Path, case: Case) -> None:
        sizes = workload.of_shape(case.name, args.batch_size)
        rows = workload.make_rows(sizes)
        facts[case.name] = workload.facts(rows, sizes)
        workload_files.save(folder, rows, sizes)

    measurements = TrainingMeasurements(cases_of(args))
    measurements.measure_all(write_rows, args)
    return page_of(measurements, facts, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
