"""Training throughput of MLPerf's DLRM-DCNv2 compared with TorchRec's reference model."""

import sys
from collections.abc import Sequence

from benchmarks.harness import training, worker
from benchmarks.harness.training import Case, Side
from benchmarks.mlperf_training import workload
from config import criteo_multi_hot

OURS = Side("ours (TensorFlow)", "mlperf_training.ours")
PEER = Side("TorchRec", "mlperf_training.torchrec_model", is_torch=True)
SIDES = (OURS, PEER, PEER.memory_kept())
LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
TARGET_RATIO = {"float32": 1.3}  # bfloat16 is for information
MAX_ROWS = 400_000  # of a table
QUICK = {"dim": 8, "bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1), "cross_rank": 8}


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(
        training.TrainingOptions,
        argv,
        "mlperf_training",
        __doc__,
        "bench-mlperf",
        "torchrec",
        rounds=9,
        steps=1,
    )
    max_rows = 100 if args.quick else MAX_ROWS
    sizes = workload.Sizes(
        table_rows=tuple(min(rows, max_rows) for rows in criteo_multi_hot.CARDINALITIES),
        hotness=criteo_multi_hot.HOTNESS,
        batch_size=64 if args.quick else 8192,
        num_batches=4,
        **(QUICK if args.quick else {}),
    )
    cases = [
        Case(
            precision,
            SIDES,
            sizes.batch_size,
            {"precision": precision},
            tolerance,
            TARGET_RATIO.get(precision),
        )
        for precision, tolerance in LOSS_TOLERANCE.items()
    ]
    facts = [
        "ours: model, trainer and optimizers of `dcnv2.py --preset mlperf`; TorchRec: DLRM_DCN, "
        "fbgemm's tables with exact Adagrad, `torch.optim.Adagrad`, `torch.autocast`",
        f"batch {sizes.batch_size:,}, {workload.NUM_NUMERICAL} numerical features, "
        f"{len(sizes.table_rows)} tables with {sum(sizes.table_rows):,} rows of {sizes.dim}, "
        f"{sum(sizes.hotness)} ids per sample, log-uniform; bottom {sizes.bottom_mlp_dims}, "
        f"{sizes.num_cross_layers} cross layers of rank {sizes.cross_rank}, top "
        f"{sizes.top_mlp_dims}; batches in memory",
    ]
    rows, title = workload.make_rows(sizes), "Training throughput of MLPerf's DLRM-DCNv2"
    return training.run(
        "mlperf_training",
        title,
        cases,
        lambda folder, _: worker.save(folder, rows, sizes),
        facts,
        args,
    )


if __name__ == "__main__":
    sys.exit(main())
