"""Training throughput of SIM, DIEN and DIN compared with plain PyTorch, in one interleaved run."""

import sys
from collections.abc import Sequence

from benchmarks.harness import training, workload_files
from benchmarks.harness.report import Page
from benchmarks.harness.training import Case, TrainingMeasurements
from benchmarks.sequence_training import workload

OURS, LAZY, DENSE = training.adam_sides("sequence_training")
POOLED = tuple(
    side._replace(name=f"{side.name}, memory kept", keeps_memory=True) for side in (LAZY, DENSE)
)
TARGET_RATIO = {"sim": 1.3}  # the others are for information
# After the first step, PyTorch's dense Adam has another epsilon, and moves rows that do not occur.
LOSS_TOLERANCE = 2e-3


def case_of(model_type: str, args) -> Case:
    """Only SIM has a target; a DIEN that keeps its memory takes 3 GiB."""
    is_sim = model_type == "sim"
    return Case(
        model_type,
        (OURS, LAZY, DENSE, *(POOLED if is_sim else ())),
        args.batch_size,
        {"model_type": model_type},
        LOSS_TOLERANCE,
        args.rounds if is_sim else args.rounds_of_others,
        parts=(OURS,),
    )


def page_of(
    measurements: TrainingMeasurements, facts: dict, sizes: workload.SequenceSizes, args
) -> Page:
    """The page; `facts` are `workload.facts` of the rows."""
    distinct = ", ".join(
        f"{facts[f'distinct items, {model}']:,.0f} ({model})" for model in ("sim", "dien")
    )
    setting = [
        f"float32, {sizes.users:,} users, {sizes.items:,} items, {sizes.categories:,} categories, "
        f"embeddings of {sizes.embedding_dim}, histories of {sizes.history_length} "
        f"({sizes.long_seq_length} long), MLPs {sizes.stage_one_mlp_dims}, "
        f"{sizes.stage_two_mlp_dims}, {sizes.aux_mlp_dims}, learning rate {workload.LEARNING_RATE}",
        f"{facts['real steps']:.0f} of {sizes.history_length} steps of a history are real on "
        f"average, and a batch has {distinct} distinct items",
    ]
    title = "Training throughput of SIM, DIEN and DIN"
    return training.adam_page(measurements, args, "sequence_training", title, setting, TARGET_RATIO)


def main(argv: Sequence[str] | None = None) -> int:
    sizes = workload.SequenceSizes()
    parser = training.parser_of(__doc__, steps=2, batch_size=sizes.batch_size, items=sizes.items)
    models = list(workload.MODEL_TYPES)
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--rounds", type=int, default=8, help="turns of every side with SIM")
    parser.add_argument("--rounds_of_others", type=int, default=3, help="with DIEN and DIN")
    args = training.parse(parser, argv, "bench-sequence")
    sizes = workload.SequenceSizes(batch_size=args.batch_size, items=args.items)
    rows = workload.make_rows(sizes)
    measurements = TrainingMeasurements([case_of(model, args) for model in args.models])
    measurements.measure_all(lambda folder, _: workload_files.save(folder, rows, sizes), args)
    facts = workload.facts(rows, sizes)
    return page_of(measurements, facts, sizes, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
