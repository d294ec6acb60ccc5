"""Training throughput of NeuMF compared with plain PyTorch, in one interleaved run."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import training, worker
from benchmarks.harness.training import Case, Side
from benchmarks.ncf_training import workload
from config.flag import flag

OURS = Side("ours (TensorFlow)", "ncf_training.ours")
LAZY, DENSE = training.adam_peers("ncf_training")
OURS_LOW = OURS._replace(
    name="ours, bfloat16",
    options=(("dtype", "mixed_bfloat16"),),
    is_compared=False,
    is_peer=False,
)
POOLED = DENSE.memory_kept()
TARGET_RATIO = 1.5
# Adam makes a step of full length of the sign of a gradient that rounding decides, and the dense
# one moves rows that do not occur.
LOSS_TOLERANCE = 2e-3


@dataclass(frozen=True, kw_only=True)
class NCFOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    shapes: tuple[str, ...] = flag(tuple(workload.SHAPES), "shapes of the model")


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(NCFOptions, argv, "ncf_training", __doc__, "bench-ncf", rounds=6, steps=1)
    batch_size = 256 if args.quick else workload.NCFSizes.batch_size
    cases = [
        Case(
            shape,
            (OURS, LAZY, DENSE, POOLED, OURS_LOW),
            batch_size,
            {"dropout": workload.NCFSizes.dropout},
            1e-2 if args.quick else LOSS_TOLERANCE,
            TARGET_RATIO,
            compared_options={"dropout": 0.0},  # each side draws the units in its own way
        )
        for shape in args.shapes
    ]

    def write_rows(folder: Path, case: Case) -> None:
        sizes = workload.of_shape(case.name, batch_size)
        worker.save(folder, workload.make_rows(sizes), sizes)

    sizes = workload.NCFSizes()
    fact = (
        f"float32, batch {batch_size:,}, factors {sizes.factors}, layers {sizes.layers}, dropout "
        f"{sizes.dropout}, Adam {workload.LEARNING_RATE}, {workload.BETA1}, {workload.BETA2}, "
        f"{workload.EPSILON}; losses are compared without dropout"
    )
    title = "Training throughput of NeuMF"
    return training.run("ncf_training", title, cases, write_rows, [fact], args)


if __name__ == "__main__":
    sys.exit(main())
