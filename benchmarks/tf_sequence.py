"""Our side: model, optimizers and training step of `sim.py`. A worker of `sequence_training`."""

import argparse

import numpy as np
import tensorflow as tf

import config as configuration
from benchmarks import sequence_workload as workload
from benchmarks.worker import serve, timed_ms, timed_steps
from dataloading.batch import Batch, SequenceInputs
from nn.optimizers import create_groups
from nn.sequence.config import SequenceConfig
from nn.sequence.gru import AUGRU, GRU
from nn.sequence.loss import sequence_loss
from nn.sequence.model import SequenceModel
from nn.trainer import Trainer
from runtime import device


def model_config(model_type: str, sizes: workload.Sizes) -> SequenceConfig:
    """The recipe's model of these sizes."""
    return SequenceConfig(
        model_type=model_type,
        user_features=("user_id",),
        user_cardinalities=(sizes.users,),
        item_features=("item_id", "cat_id"),
        item_cardinalities=(sizes.items, sizes.categories),
        embedding_dim=sizes.embedding_dim,
        history_length=sizes.history_length,
        long_seq_length=sizes.long_seq_length,
        stage_one_mlp_dims=sizes.stage_one_mlp_dims,
        stage_two_mlp_dims=sizes.stage_two_mlp_dims,
        aux_mlp_dims=sizes.aux_mlp_dims,
        top_k=sizes.top_k,
    )


def batches(rows: workload.Rows, batch_size: int) -> tf.data.Dataset:
    """The rows in whole batches from memory, without end."""
    inputs = SequenceInputs(
        user=(rows.user,),
        target=(rows.target_item, rows.target_category),
        positive=(rows.positive_item, rows.positive_category),
        negative=(rows.negative_item, rows.negative_category),
    )
    batch = Batch(inputs, rows.labels, np.ones_like(rows.labels))
    by_batch = tf.nest.map_structure(
        lambda column: column.reshape(-1, batch_size, column.shape[1]), batch
    )
    return tf.data.Dataset.from_tensor_slices(by_batch).repeat()


class Training:
    """The recipe's model and trainer, and where it is in the rows."""

    def __init__(self, model_type: str, rows: workload.Rows, sizes: workload.Sizes):
        self.model = SequenceModel(model_config(model_type, sizes), seed=1)
        options = configuration.OptimizerConfig(
            optimizer="adam", learning_rate=workload.LEARNING_RATE, warmup_steps=0, decay_steps=0
        )
        groups = create_groups(options, self.model.dense_variables, self.model.table_variables)
        self.trainer = Trainer(self.model, sequence_loss, groups)
        self.iterator = iter(batches(rows, sizes.batch_size))

    def step(self) -> float:
        """One training step; its loss."""
        self.trainer.train_step(self.iterator)
        return self.trainer.progress().loss

    def save_weights(self, path: str) -> None:
        """Writes the weights for the other side, by their names in checkpoints."""
        dense = {self.model.name_of(v): v.numpy() for v in self.model.dense_variables}
        names = ("user", "item", "category")
        tables = dict(zip(names, self.model.embedding.get_weights(), strict=True))
        np.savez(path, **dense, **tables)


class Parts:
    """Prefixes of the training step, and its recurrences alone, on the step's own rows."""

    def __init__(self, training: Training, sizes: workload.Sizes):
        trainer, iterator = training.trainer, training.iterator
        variables = training.model.dense_variables + training.model.table_variables

        @tf.function(autograph=False)
        def forward():
            return trainer.loss(training.model, iterator.get_next())[0]

        @tf.function(autograph=False)
        def backward():
            batch = iterator.get_next()
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                loss, _ = trainer.loss(training.model, batch)
            return tape.gradient(loss, variables)

        self.calls = {"forward": forward, "forward and backward": backward}
        config = training.model.config
        if config.num_negatives:
            steps = sizes.history_length - config.short_start
            both = self._recurrences(sizes, steps)
            self.calls["recurrences, forward"], self.calls["recurrences, both passes"] = both

    def _recurrences(self, sizes: workload.Sizes, steps: int):
        """GRU and AUGRU over the states: their forward pass, and both."""
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

        return tf.function(lambda: last_state(x, attention), autograph=False), backward

    def times_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of each, `count` times after one that traces it."""
        found = {}
        for name, call in self.calls.items():
            call()
            found[name] = [timed_ms(lambda call=call: _wait(call())) for _ in range(count)]
        return found


def _wait(results) -> None:
    for result in tf.nest.flatten(results, expand_composites=True):
        result.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    run = configuration.RunConfig(
        cpu=True,
        intra_op_parallelism=args.threads,
        inter_op_parallelism=args.threads,
    )
    device.set_up(run)
    sizes, rows = workload.load_sizes(args.sizes), workload.load_rows(args.rows)
    trainings = {}

    def describe() -> dict:
        return {"version": tf.__version__}

    def start(model_type: str) -> dict:
        trainings.clear()  # one model at a time has its tables and their moments in memory
        trainings[model_type] = training = Training(model_type, rows, sizes)
        training.save_weights(f"{args.folder}/{model_type}.npz")
        return {}

    def steps(model_type: str, count: int) -> dict:
        return timed_steps(trainings[model_type].step, count)

    def parts(model_type: str, count: int) -> dict:
        return {"ms": Parts(trainings[model_type], sizes).times_ms(count)}

    serve({"describe": describe, "start": start, "steps": steps, "parts": parts})


if __name__ == "__main__":
    main()
