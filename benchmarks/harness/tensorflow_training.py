"""Training of a recipe's model on rows in memory, in TensorFlow."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.exchange.bag_gradients import BagGradient

import config as configuration
from benchmarks.harness.worker import serve_training, timed_in_turn
from benchmarks.harness.workload_files import load
from dataloading.pipeline.batch import Batch
from nn.embedding_model import EmbeddingModel
from nn.optim.optimizers import Optimizer
from nn.train.trainer import Trainer
from runtime.hardware import device


class RecipeTraining:
    """A recipe's model, loss and optimizers, trained on whole batches of `batch`, without end.

    `table_names` are the names of the model's tables on the other side.
    """

    def __init__(
        self,
        model: EmbeddingModel,
        loss: Callable,
        optimizers: Sequence[Optimizer],
        table_names: Sequence[str],
        batch: Batch,
        batch_size: int,
    ):
        self.model = model
        self.trainer = Trainer(model, loss, optimizers)
        self._table_names = table_names
        by_batch = tf.nest.map_structure(
            lambda column: column.reshape(-1, batch_size, *column.shape[1:]), batch
        )
        self.iterator = iter(tf.data.Dataset.from_tensor_slices(by_batch).repeat())

    def step(self) -> float:
        """One training step; returns its loss."""
        self.trainer.train_step(self.iterator)
        return self.trainer.progress().loss

    def save_weights(self, path: Path) -> None:
        """Writes the weights for the other side, by their names in checkpoints."""
        dense = {self.model.name_of(v): v.numpy() for v in self.model.dense_variables}
        tables = dict(zip(self._table_names, self.model.embedding.get_weights(), strict=True))
        np.savez(path, **dense, **tables)

    def parts_ms(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of the parts of a step and of all of it, in turn, `count` times."""
        calls = {name: lambda call=call: wait(call()) for name, call in self.parts().items()}
        return timed_in_turn(calls | {"step": self.step}, count)

    def parts(self) -> dict[str, Callable]:
        """The forward pass of a step, and both passes; neither waits for its results."""
        return step_prefixes(self.trainer, self.iterator)


def step_prefixes(trainer: Trainer, iterator) -> dict[str, Callable]:
    """The forward pass of a step, and both passes; neither waits for its results."""

    @tf.function(autograph=False)
    def forward():
        return trainer.loss(trainer.model, iterator.get_next())[0]

    @tf.function(autograph=False)
    def backward():
        (loss, *_), gradients = trainer.differentiate(iterator.get_next(), 1.0)
        return loss, first_numbers(tensor for g in gradients for tensor in tensors_of(g))

    return {"forward": forward, "forward and backward": backward}


def first_numbers(tensors: Iterable[tf.Tensor]) -> tf.Tensor:
    """One number of each tensor: they are computed, but not copied to NumPy.

    TensorFlow leaves out what has no result, also if it is a control dependency.
    """
    return tf.stack([tf.cast(tf.reshape(tensor, [-1])[0], tf.float32) for tensor in tensors])


def tensors_of(gradient) -> list[tf.Tensor]:
    """The tensors of a gradient; of a table's those of the vectors that were looked up."""
    if isinstance(gradient, BagGradient):
        return [use.gradient for use in gradient.uses]
    return tf.nest.flatten(gradient, expand_composites=True)


def wait(results) -> None:
    """Waits until all of a structure of tensors is there."""
    for result in tf.nest.flatten(results, expand_composites=True):
        result.numpy()


def use_threads(threads: int) -> None:
    """Sets the CPU up with this number of threads."""
    flags = configuration.DeviceConfig(
        cpu=True, intra_op_parallelism=threads, inter_op_parallelism=threads
    )
    device.set_up(flags)


def serve_recipe(
    args: argparse.Namespace,
    rows_kind: type,
    sizes_kind: type,
    make: Callable[..., RecipeTraining],
) -> None:
    """Answers requests about trainings of `make(rows, sizes, **options)`."""
    use_threads(args.threads)
    rows, sizes = load(args.folder, rows_kind, sizes_kind)

    def start(**options) -> RecipeTraining:
        training = make(rows, sizes, **options)
        training.save_weights(args.folder / "weights.npz")
        return training

    serve_training(tf.__version__, start, args.address)
