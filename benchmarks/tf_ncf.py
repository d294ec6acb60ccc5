"""Our side: model, optimizers and training step of `ncf.py`. A worker of `ncf_training`."""

import argparse

import numpy as np
import tensorflow as tf

import config as configuration
from benchmarks import ncf_workload as workload
from benchmarks.ncf_workload import timed_in_turn
from benchmarks.worker import serve, timed_steps
from dataloading.batch import Batch, InteractionInputs
from nn.ncf.config import NEUMF, NCFConfig
from nn.ncf.loss import ncf_loss
from nn.ncf.model import NCFModel
from nn.trainer import Trainer
from runtime import device


def model_config(sizes: workload.Sizes) -> NCFConfig:
    """The recipe's model of these sizes."""
    return NCFConfig(
        model_type=NEUMF,
        num_users=sizes.users,
        num_items=sizes.items,
        factors=sizes.factors,
        layers=sizes.layers,
        dropout=sizes.dropout,
    )


def batches(rows: workload.Rows, batch_size: int) -> tf.data.Dataset:
    """The rows in whole batches from memory, without end."""
    inputs = InteractionInputs(rows.user, rows.item)
    batch = Batch(inputs, rows.labels, np.ones_like(rows.labels))
    by_batch = tf.nest.map_structure(
        lambda column: column.reshape(-1, batch_size, *column.shape[1:]), batch
    )
    return tf.data.Dataset.from_tensor_slices(by_batch).repeat()


class Training:
    """The recipe's model and trainer, and where it is in the rows."""

    def __init__(self, rows: workload.Rows, sizes: workload.Sizes, dtype: str = "float32"):
        self.model = NCFModel(model_config(sizes), seed=1, dtype=dtype)
        options = configuration.OptimizerConfig(
            optimizer="adam",
            learning_rate=workload.LEARNING_RATE,
            beta1=workload.BETA1,
            beta2=workload.BETA2,
            epsilon=workload.EPSILON,
            warmup_steps=0,
            decay_steps=0,
        )
        self.trainer = Trainer(self.model, ncf_loss, self.model.optimizer_groups(options))
        self.iterator = iter(batches(rows, sizes.batch_size))

    def step(self) -> float:
        """One training step; its loss."""
        self.trainer.train_step(self.iterator)
        return self.trainer.progress().loss

    def save_weights(self, path: str) -> None:
        """Writes the weights for the other side, by their names in checkpoints."""
        dense = {self.model.name_of(v): v.numpy() for v in self.model.dense_variables}
        names = [weight.name for weight in self.model.embedding.table_weights()]
        tables = dict(zip(names, self.model.embedding.get_weights(), strict=True))
        np.savez(path, **dense, **tables)

    def parts_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of prefixes of the step and of all of it, in turn, `count` times."""
        trainer, iterator = self.trainer, self.iterator
        variables = self.model.dense_variables + self.model.table_variables

        @tf.function(autograph=False)
        def look_up():
            inputs = iterator.get_next().inputs
            return [tf.reduce_sum(vectors) for vectors in self.model.look_up(inputs).vectors]

        @tf.function(autograph=False)
        def forward():
            return trainer.loss(self.model, iterator.get_next())[0]

        @tf.function(autograph=False)
        def backward():
            batch = iterator.get_next()
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                loss, _ = trainer.loss(self.model, batch)
            return tape.gradient(loss, variables)

        calls = {"look-up": look_up, "forward": forward, "forward and backward": backward}
        waited = {name: lambda call=call: _wait(call()) for name, call in calls.items()}
        return timed_in_turn(waited | {"step": self.step}, count)


def _wait(results) -> None:
    for result in tf.nest.flatten(results, expand_composites=True):
        result.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    run = configuration.RunConfig(
        cpu=True,
        intra_op_parallelism=args.threads,
        inter_op_parallelism=args.threads,
    )
    device.set_up(run)
    sizes = workload.load_sizes(f"{args.folder}/sizes.json")
    rows = workload.load_rows(f"{args.folder}/rows.npz")
    trainings = {}

    def describe() -> dict:
        return {"version": tf.__version__}

    def start(dropout: float) -> dict:
        trainings.clear()  # one model at a time has its tables and their moments in memory
        of_dropout = workload.with_dropout(sizes, dropout)
        trainings["now"] = Training(rows, of_dropout, args.dtype)
        if args.dtype == "float32":
            trainings["now"].save_weights(f"{args.folder}/weights.npz")
        return {}

    def steps(count: int) -> dict:
        return timed_steps(trainings["now"].step, count)

    def parts(count: int) -> dict:
        return {"ms": trainings["now"].parts_ms(count)}

    serve({"describe": describe, "start": start, "steps": steps, "parts": parts})


if __name__ == "__main__":
    main()
