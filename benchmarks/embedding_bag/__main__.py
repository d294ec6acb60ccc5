"""Embedding bags compared with three libraries: lookup, gradient and update of 26 tables."""

import dataclasses
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.embedding_bag import workload
from benchmarks.harness import training, worker
from benchmarks.harness.training import Case, Side
from config.criteo_multi_hot import HOTNESS
from config.flag import flag

OURS = Side("ours", "embedding_bag.ours")
FBGEMM = Side("fbgemm", "embedding_bag.peer", (("library", "fbgemm"),), is_torch=True)
TORCH = Side("EmbeddingBag", "embedding_bag.peer", (("library", "torch"),), is_torch=True)
# SGD of version 2.8.0 sums the gradients of a row wrongly above 16 columns.
INTEL = Side(
    "Intel's bags",
    "embedding_bag.peer",
    (("library", "intel"),),
    is_torch=True,
    is_compared=False,
)
INTEL_OPTIMIZERS = ("sgd", "adagrad")
LOSS_TOLERANCES = {"float32": 1e-3, "bfloat16": 2e-2}
TARGET_RATIO = 1.1


def hotness_of(name: str) -> tuple[int, ...]:
    """Ids per sample of each table; `name` is a number or "mlperf"."""
    return HOTNESS if name == "mlperf" else (int(name),) * len(HOTNESS)


@dataclass(frozen=True, kw_only=True)
class BagOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    rows: int = flag(100_000, "rows of a table", at_least=1)
    optimizers: tuple[str, ...] = flag(workload.OPTIMIZERS, "optimizers of the tables")
    hotness: tuple[str, ...] = flag(("1", "20", "mlperf"), "ids per sample of each table")
    dims: tuple[int, ...] = flag((16, 64, 128), "columns of the tables", at_least=1)
    batch_sizes: tuple[int, ...] = flag((2048, 8192), "samples of a step", at_least=1)
    layouts: tuple[str, ...] = flag(
        ("concatenated",), "one output of all tables, or one per table", choices=workload.LAYOUTS
    )
    dtype: str = flag(
        "float32", "dtype of outputs and their gradients", choices=tuple(LOSS_TOLERANCES)
    )
    intel_python: Path | None = flag(None, "Python with intel-extension-for-pytorch: one more peer")


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(
        BagOptions, argv, "embedding_bag", __doc__, "bench-embedding", "fbgemm_gpu", rounds=7
    )
    if args.quick:
        args = dataclasses.replace(
            args, hotness=("mlperf",), dims=(16,), batch_sizes=(64,), rows=500
        )
    cases, sizes = [], {}
    product = itertools.product(
        args.optimizers, args.hotness, args.dims, args.batch_sizes, args.layouts
    )
    for optimizer, hotness, dim, batch_size, layout in product:
        name = f"{optimizer}, hotness {hotness}, dim {dim}, batch {batch_size:,}, {layout}"
        sizes[name] = workload.BagSizes(
            dim, hotness_of(hotness), batch_size, args.rows, dtype=args.dtype
        )
        peers = [FBGEMM, *((TORCH,) if optimizer == "sgd" else ())]
        if args.intel_python and optimizer in INTEL_OPTIMIZERS:
            peers.append(INTEL._replace(python=args.intel_python))
        sides = (OURS, *peers, *(peer.memory_kept(is_peer=True) for peer in peers))
        options = {"optimizer": optimizer, "layout": layout}
        tolerance = LOSS_TOLERANCES[args.dtype]
        cases.append(Case(name, sides, batch_size, options, tolerance, TARGET_RATIO))

    def write_rows(folder: Path, case: Case) -> None:
        worker.save(folder, workload.make_rows(sizes[case.name]), sizes[case.name])

    fact = (
        f"{len(HOTNESS)} tables of {args.rows:,} rows, float32, {args.dtype} outputs, log-uniform "
        "ids; a step is the lookup of all tables, the gradient of a fixed output gradient, and the "
        "update"
    )
    title = "Embedding bags on a CPU"
    return training.run("embedding_bag", title, cases, write_rows, [fact], args)


if __name__ == "__main__":
    sys.exit(main())
