"""Our side: model, optimizers and training step of `sim.py`. A worker of `sequence_training`."""

import numpy as np
import tensorflow as tf

import config as configuration
from benchmarks.harness.tensorflow_training import RecipeTraining, serve_recipe
from benchmarks.harness.worker import parser_of
from benchmarks.sequence_training import workload
from dataloading.pipeline.batch import Batch, SequenceInputs
from nn.optim.optimizers import create_optimizers
from nn.sequence.config import SequenceModelConfig
from nn.sequence.gru import AUGRU, GRU
from nn.sequence.loss import sequence_loss
from nn.sequence.model import SequenceModel

SHARED_SIZES = ("embedding_dim", "history_length", "long_seq_length", "top_k")
SHARED_SIZES += ("stage_one_mlp_dims", "stage_two_mlp_dims", "aux_mlp_dims")


class SequenceTraining(RecipeTraining):
    """A model in training, as the recipe trains it."""

    def __init__(self, rows: workload.SequenceRows, sizes: workload.SequenceSizes, model_type: str):
        self.sizes = sizes
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
        options = configuration.OptimizerConfig(
            optimizer="adam", learning_rate=workload.LEARNING_RATE, warmup_steps=0, decay_steps=0
        )
        inputs = SequenceInputs(
            user=(rows.user,),
            target=(rows.target_item, rows.target_category),
            positive=(rows.positive_item, rows.positive_category),
            negative=(rows.negative_item, rows.negative_category),
        )
        super().__init__(
            model,
            sequence_loss,
            create_optimizers(options, model.dense_variables, model.table_variables),
            ("user", "item", "category"),
            Batch(inputs, rows.labels, np.ones_like(rows.labels)),
            sizes.batch_size,
        )

    def parts(self) -> dict:
        """Both passes of the step, and its recurrences alone."""
        calls, config = super().parts(), self.model.config
        if config.num_negatives:
            steps = self.sizes.history_length - config.short_start
            calls |= recurrences(self.sizes, steps)
        return calls


def recurrences(sizes: workload.SequenceSizes, steps: int) -> dict:
    """GRU and AUGRU over the states: their forward pass, and both passes."""
    dim = sizes.item_dim
    gru, augru = GRU(dim, seed=1, name="gru"), AUGRU(dim, seed=1, name="augru")
    x = tf.random.stateless_normal([sizes.batch_size, steps, dim], [1, 2])
    attention = tf.random.stateless_uniform([sizes.batch_size, steps], [3, 4])
    mask = attention > 0.1

    def last_state(x, attention):
        return augru(x, attention, mask) + gru(x, mask)[:, -1]

    last_state(x, attention)
    variables = gru.trainable_variables + augru.trainable_variables

    @tf.function(autograph=False)
    def backward():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([x, attention, *variables])
            state = last_state(x, attention)
        return tape.gradient(state, [x, attention, *variables])

    forward = tf.function(lambda: last_state(x, attention), autograph=False)
    return {"recurrences, forward": forward, "recurrences, both passes": backward}


if __name__ == "__main__":
    serve_recipe(
        parser_of(__doc__).parse_args(),
        workload.SequenceRows,
        workload.SequenceSizes,
        SequenceTraining,
    )
