"""Training of a recipe's model in TensorFlow, on the rows of a benchmark."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.harness.worker import Started, load
from config.sections.device import DeviceConfig
from config.sections.optimizer import OptimizerConfig
from nn.embedding_model import EmbeddingModel
from nn.train.trainer import Trainer
from training import device_setup


class RecipeTraining:
    """A recipe's model in training; `table_names` are its tables' names on the other side."""

    def __init__(
        self,
        model: EmbeddingModel,
        trainer: Trainer,
        iterator: Iterator,
        table_names: Sequence[str],
    ):
        self.model, self.trainer, self.iterator = model, trainer, iterator
        self._table_names = table_names

    def step(self) -> float:
        """One training step; returns its loss."""
        self.trainer.train_step(self.iterator)
        return self.trainer.progress().loss

    def save_weights(self, path: Path) -> None:
        """Writes the weights for the other side, by their names in checkpoints."""
        dense = {self.model.name_of(v): v.numpy() for v in self.model.dense_variables}
        tables = dict(zip(self._table_names, self.model.embedding.get_weights(), strict=True))
        np.savez(path, **dense, **tables)


def batches_of(batch, batch_size: int) -> Iterator:
    """Whole batches of rows in memory, without end."""
    by_batch = tf.nest.map_structure(
        lambda column: column.reshape(-1, batch_size, *column.shape[1:]), batch
    )
    return iter(tf.data.Dataset.from_tensor_slices(by_batch).repeat())


def adam(learning_rate: float, **options) -> OptimizerConfig:
    """Adam without a schedule."""
    return OptimizerConfig(
        optimizer="adam", learning_rate=learning_rate, warmup_steps=0, decay_steps=0, **options
    )


def starting(folder: Path, make: Callable[..., RecipeTraining]) -> Started:
    """A side of trainings that write their weights for the other sides."""

    def start(**options) -> RecipeTraining:
        training = make(**options)
        training.save_weights(folder / "weights.npz")
        return training

    return f"TensorFlow {tf.__version__}", start


def recipe_side(
    folder: Path, threads: int, rows_kind: type, sizes_kind: type, make: Callable
) -> Started:
    """A side of trainings `make(rows, sizes, **options)`."""
    device_setup.set_up(
        DeviceConfig(cpu=True, intra_op_parallelism=threads, inter_op_parallelism=threads)
    )
    rows, sizes = load(folder, rows_kind, sizes_kind)
    return starting(folder, lambda **options: make(rows, sizes, **options))
