"""Training throughput of MLPerf's DLRM-DCNv2 compared with TorchRec's reference model."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.harness import training
from benchmarks.harness.tensorflow_training import (
    RecipeTraining,
    constant_rate,
    labelled,
    load_on_cpu,
)
from benchmarks.harness.training import Side, TrainingOptions
from config.criteo_multi_hot import CARDINALITIES, HOTNESS
from dataloading.pipeline.batch import Inputs
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig
from nn.train.losses import click_loss
from nn.train.trainer import Trainer
from runtime.hardware.device import Device

OURS = Side("ours (TensorFlow)", "mlperf_training")
PEER = Side("TorchRec", "peers.torchrec_dlrm")
TARGET_RATIO = 1.3
SIZES = {
    "table_rows": tuple(min(rows, 400_000) for rows in CARDINALITIES),
    "hotness": HOTNESS,
    "batch_size": 8192,
    "num_batches": 4,  # different ones
    "num_numerical": 13,
    "dim": 128,
    "bottom_mlp_dims": (512, 256, 128),
    "top_mlp_dims": (1024, 1024, 512, 256, 1),
    "num_cross_layers": 3,  # 0: dot interaction
    "cross_rank": 512,
    "optimizer": "adagrad",
    "learning_rate": 0.004,
    "epsilon": 1e-8,
}
QUICK = {"table_rows": tuple(min(rows, 100) for rows in CARDINALITIES), "batch_size": 64, "dim": 8}
QUICK |= {"bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1), "cross_rank": 8}


def make_rows(sizes: SimpleNamespace, folder: Path) -> dict[str, np.ndarray]:
    """Log-uniform ids, floor(exp(u log(rows))), u uniform; labels follow a numerical feature.

    Returns:
        numerical: float32 [n, 13].
        ids: int32 [n, sum of hotness].
        labels: float32 [n, 1].
    """
    random = np.random.default_rng(1)
    num_rows = sizes.num_batches * sizes.batch_size
    numerical = random.standard_normal((num_rows, sizes.num_numerical), np.float32)
    limits = np.repeat(sizes.table_rows, sizes.hotness)
    uniform = random.random((num_rows, len(limits)), np.float32)
    ids = np.exp(uniform * np.log(limits).astype(np.float32)).astype(np.int32)
    ids = np.minimum(ids, limits - 1).astype(np.int32)
    labels = random.random((num_rows, 1)) < 1 / (1 + np.exp(1 - numerical[:, :1]))
    return {"numerical": numerical, "ids": ids, "labels": labels.astype(np.float32)}


def inputs_of(rows, sizes: SimpleNamespace) -> Inputs:
    by_table = np.split(rows.ids, np.cumsum(sizes.hotness)[:-1], axis=1)
    return Inputs(rows.numerical, tuple(map(np.ascontiguousarray, by_table)))


def start(folder: Path, precision: str) -> RecipeTraining:
    return make_training(folder, *load_on_cpu(folder), precision)


def make_training(folder: Path, rows, sizes: SimpleNamespace, precision: str) -> RecipeTraining:
    """Our side: model, loss and optimizers of `dcnv2.py --preset mlperf`, and of DLRM."""
    names = tuple(f"table_{t}" for t in range(len(sizes.table_rows)))
    shape = CTRConfig(
        feature_names=names,
        cardinalities=sizes.table_rows,
        embedding_dims=(sizes.dim,) * len(names),
        num_numerical=sizes.num_numerical,
        bottom_mlp_dims=sizes.bottom_mlp_dims,
        top_mlp_dims=sizes.top_mlp_dims,
        interaction="cross" if sizes.num_cross_layers else "dot_tensorflow",
        num_cross_layers=sizes.num_cross_layers,
        cross_layer_projection_dim=sizes.cross_rank,
    )
    model = CTRModel(shape, seed=1, dtype=Device("CPU", precision, 1.0).policy)
    adagrad = {"epsilon": sizes.epsilon, "adagrad_initial_accumulator": 0.0}
    options = constant_rate(sizes.optimizer, sizes.learning_rate, **adagrad)
    trainer = Trainer(model, click_loss, model.create_optimizers(options))
    batches = labelled(inputs_of(rows, sizes), rows.labels, sizes.batch_size)
    return RecipeTraining(model, trainer, batches).save_weights(folder, names)


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(
        *(TrainingOptions, argv, "mlperf_training", __doc__, "torchrec"), rounds=9, steps=1
    )
    sizes = SimpleNamespace(**SIZES | (QUICK if args.quick else {}))
    cases = training.precisions((OURS, PEER, PEER.memory_kept()), sizes, TARGET_RATIO)
    fact = "ours: model, trainer and optimizers of `dcnv2.py --preset mlperf`; TorchRec: DLRM_DCN, "
    fact += "fbgemm's tables with exact Adagrad, `torch.optim.Adagrad`, `torch.autocast`"
    title = "Training throughput of MLPerf's DLRM-DCNv2"
    return training.run("mlperf_training", title, cases, make_rows, args, fact)


if __name__ == "__main__":
    sys.exit(main())
