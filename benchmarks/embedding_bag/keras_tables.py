"""Steps of 26 tables with Keras' optimizers: the package's layers, Keras' and the trainer.

    python -m benchmarks.embedding_bag.keras_tables --optimizers new.SGD,legacy.Adagrad

The layers of the package and Keras' own `Embedding` layers train with a tape and a Keras optimizer
in a compiled function; the toolkit's trainer takes part where it has the optimizer.
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import distributed_embeddings as dmp
import tensorflow as tf
from distributed_embeddings.keras import keras

from benchmarks.embedding_bag import workload
from benchmarks.embedding_bag.ours import BagModel, BagTraining, loss_with_gradient
from benchmarks.harness import result_page, training, worker
from benchmarks.harness.tensorflow_training import batches_of, recipe_side
from benchmarks.harness.training import Case, Side
from benchmarks.harness.worker import Started
from config.flag import flag

MODULE = "embedding_bag.keras_tables"
PACKAGE = Side("package's layers", MODULE, (("layers", "package"),))
KERAS = Side("Keras' layers", MODULE, (("layers", "keras"),))
TRAINER = Side("toolkit's trainer", MODULE, (("layers", "trainer"),))
RATE, EPSILON, ACCUMULATOR = workload.LEARNING_RATE, 1e-7, 0.1  # Keras' defaults
_new, _legacy = keras.optimizers, keras.optimizers.legacy
# Makes an optimizer; its name in the toolkit.
OPTIMIZERS = {
    "new.SGD": (lambda: _new.SGD(RATE), "sgd"),
    "legacy.SGD": (lambda: _legacy.SGD(RATE), "sgd"),
    "new.momentum": (lambda: _new.SGD(RATE, momentum=0.9), ""),
    "legacy.momentum": (lambda: _legacy.SGD(RATE, momentum=0.9), ""),
    "new.Adagrad": (lambda: _new.Adagrad(RATE), "adagrad"),
    "legacy.Adagrad": (lambda: _legacy.Adagrad(RATE), "adagrad"),
    "new.Adam": (lambda: _new.Adam(RATE), "adam"),
    "legacy.Adam": (lambda: _legacy.Adam(RATE), "adam"),
    "new.RMSprop": (lambda: _new.RMSprop(RATE), ""),
    "legacy.RMSprop": (lambda: _legacy.RMSprop(RATE), ""),
    "RowWiseAdagrad": (lambda: dmp.RowWiseAdagrad(RATE), "rowwise_adagrad"),
    "LazyAdam": (lambda: dmp.LazyAdam(RATE), "lazy_adam"),
}
OF_KERAS = [name for name in OPTIMIZERS if "." in name]
BATCH_SIZES = {1: 4096, 20: 2048}  # by the ids per sample of a table
NUM_TABLES = 26
TARGET_RATIO = 0.87  # of the trainer: 1 / 1.15
LOSS_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class KerasOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    rows: int = flag(100_000, "rows of a table", at_least=1)
    dim: int = flag(128, "columns of the tables", at_least=1)
    optimizers: tuple[str, ...] = flag(tuple(OPTIMIZERS), "optimizers", choices=tuple(OPTIMIZERS))
    hotness: tuple[int, ...] = flag((1, 20), "ids per sample of each table", choices=(1, 20))


def main(argv: Sequence[str] | None = None) -> int:
    args = result_page.parse(KerasOptions, argv, MODULE, __doc__, rounds=5)
    if args.quick:
        small = {"rows": 500, "dim": 16, "rounds": 2, "steps": 1, "warmup_steps": 1}
        args = dataclasses.replace(args, **small)
    cases, sizes = [], {}
    for optimizer, hotness in itertools.product(args.optimizers, args.hotness):
        batch_size = BATCH_SIZES[hotness]
        name = f"{optimizer}, hotness {hotness}, batch {batch_size:,}"
        sizes[name] = workload.BagSizes(args.dim, (hotness,) * NUM_TABLES, batch_size, args.rows)
        peers = (KERAS,) * (optimizer in OF_KERAS) + (TRAINER,) * bool(OPTIMIZERS[optimizer][1])
        options = {"optimizer": optimizer}
        cases.append(
            Case(name, (PACKAGE, *peers), batch_size, options, LOSS_TOLERANCE, TARGET_RATIO)
        )

    def write_rows(folder: Path, case: Case) -> None:
        worker.save(folder, workload.make_rows(sizes[case.name]), sizes[case.name])

    fact = (
        f"{NUM_TABLES} tables of {args.rows:,} rows of {args.dim}, float32, log-uniform ids; a "
        "step is the lookup of all tables, the gradient of a fixed output gradient, and the update"
    )
    return training.run(MODULE, "Keras' optimizers on a CPU", cases, write_rows, [fact], args)


class KerasBags(keras.Model):
    """Keras' own layers: ids [batch, hotness] of each table to [batch, tables * dim]."""

    def __init__(self, sizes: workload.BagSizes):
        super().__init__()
        self.layers_of_tables = [
            keras.layers.Embedding(sizes.num_rows, sizes.dim) for _ in range(sizes.num_tables)
        ]
        for t, layer in enumerate(self.layers_of_tables):
            layer.build(None)
            layer.set_weights([workload.initial_table(sizes, t)])

    def call(self, ids):
        vectors = [layer(x) for layer, x in zip(self.layers_of_tables, ids, strict=True)]
        return tf.concat([tf.reduce_sum(v, axis=1) for v in vectors], axis=1)


class TapeTraining:
    """A model in training with a tape and a Keras optimizer."""

    def __init__(self, model: keras.Model, batches, gradients: Sequence[tf.Tensor], optimizer):
        self._batches = batches

        @tf.function
        def step(ids):
            with tf.GradientTape() as tape:
                loss = loss_with_gradient(model(ids), gradients)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        self._step = step

    def step(self) -> float:
        """One training step; returns its loss."""
        return float(self._step(next(self._batches)))

    def save_weights(self, path) -> None:
        """Writes nothing: all sides make the same initial tables."""


def make(layers: str, rows: workload.BagRows, sizes: workload.BagSizes, optimizer: str):
    """Makes a side's training; `optimizer` is one of `OPTIMIZERS`."""
    make_optimizer, name = OPTIMIZERS[optimizer]
    if layers == "trainer":
        return BagTraining(rows, sizes, name, epsilon=EPSILON, accumulator=ACCUMULATOR)
    ids = (part.reshape(-1, part.shape[-1]) for part in workload.by_table(rows.ids, sizes))
    batches = batches_of(tuple(ids), sizes.batch_size)
    gradients = [tf.constant(part) for part in workload.output_gradients(sizes, "concatenated")]
    model = KerasBags(sizes) if layers == "keras" else BagModel(sizes)
    return TapeTraining(model, batches, gradients, make_optimizer())


def side(folder: Path, threads: int, layers: str) -> Started:
    return recipe_side(
        folder, threads, workload.BagRows, workload.BagSizes, functools.partial(make, layers)
    )


if __name__ == "__main__":
    sys.exit(main())
