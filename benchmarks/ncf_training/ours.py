"""Our side: model, optimizers and training step of `ncf.py`. A worker of `ncf_training`."""

import functools
from pathlib import Path

import numpy as np

from benchmarks.harness.tensorflow_training import RecipeTraining, adam, batches_of, recipe_side
from benchmarks.harness.worker import Started
from benchmarks.ncf_training import workload
from dataloading.pipeline.batch import Batch, InteractionInputs
from nn.ncf.model import NCFModel, ncf_loss
from nn.ncf.sizes import NEUMF, NCFConfig, embedding_tables
from nn.train.trainer import Trainer


class NCFTraining(RecipeTraining):
    """NeuMF in training, as the recipe trains it."""

    def __init__(
        self,
        rows: workload.NCFRows,
        sizes: workload.NCFSizes,
        dropout: float,
        dtype: str = "float32",
    ):
        config = NCFConfig(
            model_type=NEUMF,
            num_users=sizes.users,
            num_items=sizes.items,
            factors=sizes.factors,
            layers=sizes.layers,
            dropout=dropout,
        )
        model = NCFModel(config, seed=1, dtype=dtype)
        options = adam(
            workload.LEARNING_RATE,
            beta1=workload.BETA1,
            beta2=workload.BETA2,
            epsilon=workload.EPSILON,
        )
        inputs = InteractionInputs(rows.user, rows.item)
        batch = Batch(inputs, rows.labels, np.ones_like(rows.labels))
        super().__init__(
            model,
            Trainer(model, ncf_loss, model.create_optimizers(options)),
            batches_of(batch, sizes.batch_size),
            [name for name, _, _ in embedding_tables(config)],
        )


def side(folder: Path, threads: int, dtype: str = "float32") -> Started:
    make = functools.partial(NCFTraining, dtype=dtype)
    return recipe_side(folder, threads, workload.NCFRows, workload.NCFSizes, make)
