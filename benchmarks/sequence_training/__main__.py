"""Training throughput of SIM, DIEN and DIN compared with plain PyTorch, in one interleaved run.

    make bench-sequence
    python -m benchmarks.sequence_training --output benchmarks/results/sequence_training_CPU_DATE.md

The exit code is 1 if our side misses its target.
"""

from pathlib import Path

from benchmarks.harness import training, workload_files
from benchmarks.harness.report import finish
from benchmarks.harness.training import Case, Side, TrainingMeasurements
from benchmarks.sequence_training import report, workload

OURS = Side("ours (TensorFlow)", "sequence_training.ours", is_torch=False)
LAZY = Side("PyTorch, SparseAdam", "sequence_training.peer", ("--tables", "lazy"))
DENSE = Side("PyTorch, dense Adam", "sequence_training.peer", ("--tables", "dense"))
POOLED = tuple(
    side._replace(name=f"{side.name}, memory kept", keeps_memory=True) for side in (LAZY, DENSE)
)

# After the first step, PyTorch's dense Adam has another epsilon, and moves rows that do not occur.
LOSS_TOLERANCE = 2e-3


def case_of(model_type: str, args) -> Case:
    """Only SIM has a target; a DIEN that keeps its memory takes 3 GiB."""
    is_sim = model_type == "sim"
    return Case(
        model_type,
        (OURS, LAZY, DENSE, *(POOLED if is_sim else ())),
        {"model_type": model_type},
        LOSS_TOLERANCE,
        args.rounds if is_sim else args.rounds_of_others,
        parts=(OURS,),
    )


def main() -> None:
    parser = training.parser_of(__doc__)
    models = list(workload.MODEL_TYPES)
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--rounds", type=int, default=8, help="turns of every side with SIM")
    parser.add_argument("--rounds_of_others", type=int, default=3, help="with DIEN and DIN")
    parser.add_argument("--steps", type=int, default=2, help="steps of a side's turn")
    parser.add_argument("--batch_size", type=int, default=workload.SequenceSizes.batch_size)
    parser.add_argument("--items", type=int, default=workload.SequenceSizes.items)
    args = training.parse(parser, "bench-sequence")
    sizes = workload.SequenceSizes(batch_size=args.batch_size, items=args.items)
    rows, measurements = workload.make_rows(sizes), TrainingMeasurements(OURS.name)

    def write_rows(folder: Path, case: Case) -> None:
        workload_files.save(folder, rows, sizes)

    measurements.measure_all([case_of(model, args) for model in args.models], write_rows, args)
    facts = workload.facts(rows, sizes)
    peers = (LAZY.name, DENSE.name)
    finish(*report.render(measurements, facts, args, sizes, peers), args.output)


if __name__ == "__main__":
    main()
