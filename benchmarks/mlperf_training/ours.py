"""Our side: model, loss and optimizers of `dcnv2.py --preset mlperf`, and of DLRM."""

from pathlib import Path

import numpy as np

from benchmarks.harness.tensorflow_training import RecipeTraining, batches_of, recipe_side
from benchmarks.harness.worker import Started
from benchmarks.mlperf_training import workload
from benchmarks.mlperf_training.workload import Rows, Sizes
from config.sections.optimizer import OptimizerConfig
from dataloading.pipeline.batch import Batch, Inputs
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig
from nn.train.losses import click_loss
from nn.train.trainer import Trainer
from runtime.hardware.device import Device


class RankingTraining(RecipeTraining):
    """The model in training, on batches in memory."""

    def __init__(
        self,
        rows: Rows,
        sizes: Sizes,
        *,
        optimizer: str = "adagrad",
        learning_rate: float = workload.LEARNING_RATE,
        precision: str = "float32",
    ):
        tables = range(len(sizes.table_rows))
        shape = CTRConfig(
            feature_names=tuple(f"table_{t}" for t in tables),
            cardinalities=sizes.table_rows,
            embedding_dims=(sizes.dim,) * len(tables),
            num_numerical=workload.NUM_NUMERICAL,
            bottom_mlp_dims=sizes.bottom_mlp_dims,
            top_mlp_dims=sizes.top_mlp_dims,
            interaction="cross" if sizes.num_cross_layers else "dot_tensorflow",
            num_cross_layers=sizes.num_cross_layers,
            cross_layer_projection_dim=sizes.cross_rank,
        )
        model = CTRModel(shape, seed=1, dtype=Device("CPU", precision, 1.0).policy)
        options = OptimizerConfig(
            optimizer=optimizer,
            learning_rate=learning_rate,
            epsilon=workload.EPSILON,
            adagrad_initial_accumulator=0.0,
            warmup_steps=0,
            decay_steps=0,
        )
        ids = tuple(np.ascontiguousarray(part) for part in workload.by_table(rows.ids, sizes))
        batch = Batch(Inputs(rows.numerical, ids), rows.labels, np.ones_like(rows.labels))
        optimizers = model.create_optimizers(options)
        super().__init__(
            model,
            Trainer(model, click_loss, optimizers),
            batches_of(batch, sizes.batch_size),
            shape.feature_names,
        )
        self._first = Inputs(
            rows.numerical[: sizes.batch_size], tuple(part[: sizes.batch_size] for part in ids)
        )

    def logits(self) -> np.ndarray:
        """Logits of the first batch, [batch, 1]."""
        return self.model(self._first).numpy()


def side(folder: Path, threads: int) -> Started:
    return recipe_side(folder, threads, Rows, Sizes, RankingTraining)
