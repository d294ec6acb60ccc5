"""Training of a recipe's model in TensorFlow, on the rows of a benchmark."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.harness.worker import load
from config.sections.device import DeviceConfig
from config.sections.optimizer import OptimizerConfig
from dataloading.pipeline.batch import Batch
from nn.embedding_model import EmbeddingModel
from nn.train.trainer import Trainer
from training import device_setup


class RecipeTraining:
    """A recipe's model in training."""

    def __init__(self, model: EmbeddingModel, trainer: Trainer, iterator: Iterator):
        self.model, self.trainer, self.iterator = model, trainer, iterator

    def step(self) -> float:
        """One training step; returns its loss."""
        self.trainer.train_step(self.iterator)
        return self.trainer.progress().loss

    def save_weights(self, folder: Path, table_names: Sequence[str]) -> "RecipeTraining":
        """Writes the weights for the other side, by their names in checkpoints and `table_names`;
        returns the training."""
        dense = {self.model.name_of(v): v.numpy() for v in self.model.dense_variables}
        tables = dict(zip(table_names, self.model.embedding.get_weights(), strict=True))
        np.savez(folder / "weights.npz", **dense, **tables)
        return self


def num_threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


def load_on_cpu(folder: Path) -> tuple[Any, SimpleNamespace]:
    """Returns rows and sizes, after the set-up of the device."""
    threads = num_threads()
    device_setup.set_up(
        DeviceConfig(cpu=True, intra_op_parallelism=threads, inter_op_parallelism=threads)
    )
    return load(folder)


def batches_of(columns, batch_size: int) -> Iterator:
    """Whole batches of rows in memory, without end."""
    by_batch = tf.nest.map_structure(
        lambda column: column.reshape(-1, batch_size, *column.shape[1:]), columns
    )
    return iter(tf.data.Dataset.from_tensor_slices(by_batch).repeat())


def labelled(inputs, labels: np.ndarray, batch_size: int) -> Iterator:
    """Batches of samples of weight 1."""
    return batches_of(Batch(inputs, labels, np.ones_like(labels)), batch_size)


def constant_rate(optimizer: str, learning_rate: float, **options) -> OptimizerConfig:
    """An optimizer without a schedule."""
    schedule = {"warmup_steps": 0, "decay_steps": 0}
    return OptimizerConfig(optimizer=optimizer, learning_rate=learning_rate, **schedule, **options)
