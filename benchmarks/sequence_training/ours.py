"""Our side: model, optimizers and training step of `sim.py`. A worker of `sequence_training`."""

from pathlib import Path

import numpy as np

from benchmarks.harness.tensorflow_training import RecipeTraining, adam, batches_of, recipe_side
from benchmarks.harness.worker import Started
from benchmarks.sequence_training import workload
from dataloading.pipeline.batch import Batch, SequenceInputs
from nn.optim.optimizers import create_optimizers
from nn.sequence.loss import sequence_loss
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import SequenceModelConfig
from nn.train.trainer import Trainer

SHARED_SIZES = ("embedding_dim", "history_length", "long_seq_length", "top_k")
SHARED_SIZES += ("stage_one_mlp_dims", "stage_two_mlp_dims", "aux_mlp_dims")


class SequenceTraining(RecipeTraining):
    """A model in training, as the recipe trains it."""

    def __init__(self, rows: workload.SequenceRows, sizes: workload.SequenceSizes, model_type: str):
        shared = {name: getattr(sizes, name) for name in SHARED_SIZES}
        config = SequenceModelConfig(
            model_type=model_type,
            user_features=("user_id",),
            user_cardinalities=(sizes.users,),
            item_features=("item_id", "cat_id"),
            item_cardinalities=(sizes.items, sizes.categories),
            **shared,
        )
        model = SequenceModel(config, seed=1)
        options = adam(workload.LEARNING_RATE)
        inputs = SequenceInputs(
            user=(rows.user,),
            target=(rows.target_item, rows.target_category),
            positive=(rows.positive_item, rows.positive_category),
            negative=(rows.negative_item, rows.negative_category),
        )
        batch = Batch(inputs, rows.labels, np.ones_like(rows.labels))
        optimizers = create_optimizers(options, model.dense_variables, model.table_variables)
        super().__init__(
            model,
            Trainer(model, sequence_loss, optimizers),
            batches_of(batch, sizes.batch_size),
            ("user", "item", "category"),
        )


def side(folder: Path, threads: int) -> Started:
    kinds = workload.SequenceRows, workload.SequenceSizes
    return recipe_side(folder, threads, *kinds, SequenceTraining)
