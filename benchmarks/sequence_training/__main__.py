"""Training throughput of SIM, DIEN and DIN compared with plain PyTorch, in one interleaved run."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import training, worker
from benchmarks.harness.training import Case, Side
from benchmarks.sequence_training import workload
from config.flag import flag

OURS = Side("ours (TensorFlow)", "sequence_training.ours")
LAZY, DENSE = training.adam_peers("sequence_training")
POOLED = (LAZY.memory_kept(), DENSE.memory_kept())
TARGET_RATIO = {"sim": 1.3}  # the others are for information
# After the first step, PyTorch's dense Adam has another epsilon, and moves rows that do not occur.
LOSS_TOLERANCE = 2e-3
QUICK = workload.SequenceSizes(
    *(16, 2, 100, 200, 20, 4, 12, 8, 4),
    stage_one_mlp_dims=(8,),
    stage_two_mlp_dims=(8, 4),
    aux_mlp_dims=(8, 4),
)


@dataclass(frozen=True, kw_only=True)
class HistoryTrainingOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    models: tuple[str, ...] = flag(workload.MODEL_TYPES, "types of the model")


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(
        HistoryTrainingOptions, argv, "sequence_training", __doc__, "bench-sequence"
    )
    sizes = QUICK if args.quick else workload.SequenceSizes()
    cases = [
        Case(
            model,
            # a DIEN that keeps its memory takes 3 GiB
            (OURS, LAZY, DENSE, *(POOLED if model == "sim" else ())),
            sizes.batch_size,
            {"model_type": model},
            1e-2 if args.quick else LOSS_TOLERANCE,
            TARGET_RATIO.get(model),
        )
        for model in args.models
    ]
    rows = workload.make_rows(sizes)
    fact = (
        f"float32, batch {sizes.batch_size:,}, {sizes.users:,} users, {sizes.items:,} items, "
        f"{sizes.categories:,} categories, embeddings of {sizes.embedding_dim}, histories of "
        f"{sizes.history_length} ({sizes.long_seq_length} long), Adam {workload.LEARNING_RATE}"
    )
    title = "Training throughput of SIM, DIEN and DIN"
    return training.run(
        "sequence_training",
        title,
        cases,
        lambda folder, _: worker.save(folder, rows, sizes),
        [fact],
        args,
    )


if __name__ == "__main__":
    sys.exit(main())
