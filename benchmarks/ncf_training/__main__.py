"""Training throughput of NeuMF compared with plain PyTorch, in one interleaved run.

    make bench-ncf
    python -m benchmarks.ncf_training --output benchmarks/results/ncf_training_CPU_DATE.md

The exit code is 1 if our side misses its target.
"""

from pathlib import Path

from benchmarks.harness import training, workload_files
from benchmarks.harness.report import finish
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from benchmarks.ncf_training import report, workload

OURS = Side("ours (TensorFlow)", "ncf_training.ours", is_torch=False)
OURS_LOW = OURS._replace(
    name="ours, bfloat16", flags=("--dtype", "mixed_bfloat16"), is_compared=False
)
LAZY = Side("PyTorch, SparseAdam", "ncf_training.peer", ("--tables", "lazy"))
DENSE = Side("PyTorch, dense Adam", "ncf_training.peer", ("--tables", "dense"))
POOLED = DENSE._replace(name="PyTorch, dense Adam, memory kept", keeps_memory=True)
SIDES = (OURS, LAZY, DENSE, POOLED, OURS_LOW)

# Adam makes a step of full length of the sign of a gradient that rounding decides, and the dense
# one moves rows that do not occur.
LOSS_TOLERANCE = 2e-3


def case_of(shape: str, rounds: int) -> Case:
    """The losses are compared without dropout, whose units each side draws in its own way."""
    return Case(
        shape,
        SIDES,
        {"dropout": workload.NCFSizes.dropout},
        LOSS_TOLERANCE,
        rounds,
        compared_options={"dropout": 0.0},
        warmup_steps=2,
        parts=(OURS, DENSE),
    )


def main() -> None:
    parser = training.parser_of(__doc__)
    shapes = list(workload.SHAPES)
    parser.add_argument("--shapes", nargs="+", choices=shapes, default=shapes)
    parser.add_argument("--rounds", type=int, default=6, help="turns of every side")
    parser.add_argument("--steps", type=int, default=1, help="steps of a side's turn")
    parser.add_argument("--batch_size", type=int, default=workload.NCFSizes.batch_size)
    args = training.parse(parser, "bench-ncf")
    facts = {}

    def write_rows(folder: Path, case: Case) -> None:
        sizes = workload.of_shape(case.name, args.batch_size)
        rows = workload.make_rows(sizes)
        facts[case.name] = workload.facts(rows, sizes)
        workload_files.save(folder, rows, sizes)

    measurements = TrainingMeasurements(OURS.name)
    cases = [case_of(shape, args.rounds) for shape in args.shapes]
    measurements.measure_all(cases, write_rows, args)
    peers = (LAZY.name, DENSE.name)
    finish(*report.render(measurements, facts, args, peers), args.output)


if __name__ == "__main__":
    main()
