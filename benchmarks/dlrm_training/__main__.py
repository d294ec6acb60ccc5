"""Training throughput of DLRM compared with a plain PyTorch DLRM, in one interleaved run."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.dlrm_training import workload
from benchmarks.harness import training, worker
from benchmarks.harness.training import Case, Side
from config.flag import flag
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline.columns import Role
from dataloading.spec.feature_spec import TRAIN, FeatureSpec

OURS = Side("ours (TensorFlow)", "dlrm_training.ours")
PEER = Side("PyTorch", "dlrm_training.peer", is_torch=True)
POOLED_PEER = PEER.memory_kept()
# Merged tables of version 2.8.0 sum the gradients of a row wrongly above 16 columns.
INTEL = tuple(
    Side(
        f"Intel's extension, {tables} tables",
        "dlrm_training.intel",
        (("tables", tables),),
        is_torch=True,
        keeps_memory=True,
        is_compared=tables != "merged",
    )
    for tables in ("merged", "separate")
)
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
TARGET_RATIO = {"float32": 1.5}  # bfloat16 is for information
QUICK = workload.DLRMSizes(64, 4, (50, 20), 8, (16, 8), (16, 1))


@dataclass(frozen=True, kw_only=True)
class DLRMOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    intel_python: Path | None = flag(
        None, "Python with intel-extension-for-pytorch: two more peers"
    )


def cases_of(
    sizes: workload.DLRMSizes, sides: Sequence[Side] = (OURS, PEER, POOLED_PEER)
) -> list[Case]:
    return [
        Case(
            precision,
            sides,
            sizes.batch_size,
            {"amp": precision == "bfloat16"},
            tolerance,
            TARGET_RATIO.get(precision),
        )
        for precision, tolerance in LOSS_TOLERANCE.items()
    ]


def write_rows(folder: Path, sizes: workload.DLRMSizes) -> None:
    """Writes split binaries, and the same samples as arrays for PyTorch."""
    num_rows = sizes.batch_size * sizes.num_batches
    workload.make_rows(folder / "rows", num_rows, sizes.table_rows)
    spec = FeatureSpec.from_yaml(folder / "rows/feature_spec.yaml")
    loader, samples = StoredDataset(spec, TRAIN, 1), defaultdict(list)
    arrays = loader.stored_samples(0, loader.num_samples)
    for column, array in zip(loader.columns, arrays, strict=True):
        samples[column.role].append(array.reshape(len(array), -1))
    dtypes = {Role.NUMERICAL: np.float32, Role.CATEGORICAL: np.int64, Role.LABEL: np.float32}
    columns = (np.concatenate(samples[role], 1).astype(dtype) for role, dtype in dtypes.items())
    worker.save(folder, workload.DLRMRows(*columns), sizes)


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(DLRMOptions, argv, "dlrm_training", __doc__, "bench", rounds=12, steps=3)
    intel = [side._replace(python=args.intel_python) for side in INTEL if args.intel_python]
    sizes = QUICK if args.quick else workload.DLRMSizes()
    facts = [
        "ours: the recipe `dlrm.py` with its loader",
        f"batch {sizes.batch_size:,}, {workload.NUM_NUMERICAL} numerical features, "
        f"{len(sizes.table_rows)} tables with {sum(sizes.table_rows):,} rows of "
        f"{sizes.embedding_dim}, bottom {sizes.bottom_mlp_dims}, top {sizes.top_mlp_dims}, SGD",
    ]
    title = "Training throughput of DLRM"
    return training.run(
        "dlrm_training",
        title,
        cases_of(sizes, (OURS, PEER, POOLED_PEER, *intel)),
        lambda folder, _: write_rows(folder, sizes),
        facts,
        args,
    )


if __name__ == "__main__":
    sys.exit(main())
