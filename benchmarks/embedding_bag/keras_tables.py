"""Steps of 26 tables with Keras' optimizers: the package's layers, Keras' and the trainer.

    python -m benchmarks.embedding_bag.keras_tables --optimizers new.SGD,legacy.Adagrad

The layers of the package and Keras' own `Embedding` layers train with a tape and a Keras optimizer
in a compiled function; the toolkit's trainer takes part where it has the optimizer.
"""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import distributed_embeddings as dmp
import tensorflow as tf
from distributed_embeddings.keras import keras

from benchmarks.embedding_bag import __main__ as bags
from benchmarks.embedding_bag import workload
from benchmarks.harness import training
from benchmarks.harness.tensorflow_training import load_on_cpu
from benchmarks.harness.training import Case, Side
from config.flag import flag

MODULE = "embedding_bag.keras_tables"
PACKAGE, KERAS, TRAINER = (
    Side(name, MODULE, options=(("layers", layers),))
    for name, layers in (
        ("package's layers", "package"),
        ("Keras' layers", "keras"),
        ("toolkit's trainer", "trainer"),
    )
)
EPSILON, ACCUMULATOR = 1e-7, 0.1  # Keras' defaults
# Their names in the toolkit, if it has them.
OF_KERAS = {"SGD": "sgd", "momentum": "", "Adagrad": "adagrad", "Adam": "adam", "RMSprop": ""}
OPTIMIZERS = {f"{kind}.{name}": own for name, own in OF_KERAS.items() for kind in ("new", "legacy")}
OPTIMIZERS |= {"RowWiseAdagrad": "rowwise_adagrad", "LazyAdam": "lazy_adam"}
BATCH_SIZES = {1: 4096, 20: 2048}  # by the ids per sample of a table
NUM_TABLES = 26
TARGET_RATIO = 0.87  # of the trainer: 1 / 1.15
LOSS_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class KerasOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    optimizers: tuple[str, ...] = flag(tuple(OPTIMIZERS), "optimizers", choices=tuple(OPTIMIZERS))


def make_optimizer(name: str, rate: float):
    kind, _, optimizer = name.rpartition(".")
    if not kind:
        return getattr(dmp, optimizer)(rate)
    module = keras.optimizers if kind == "new" else keras.optimizers.legacy
    if optimizer == "momentum":
        return module.SGD(rate, momentum=0.9)
    return getattr(module, optimizer)(rate)


class KerasBags(keras.Model):
    """Keras' own layers: ids [batch, hotness] of each table to [batch, tables * dim]."""

    def __init__(self, sizes: SimpleNamespace):
        super().__init__()
        self.layers_of_tables = [
            keras.layers.Embedding(sizes.num_rows, sizes.dim) for _ in sizes.hotness
        ]
        for t, layer in enumerate(self.layers_of_tables):
            layer.build(None)
            layer.set_weights([workload.initial_table(sizes, t)])

    def call(self, ids):
        vectors = [layer(x) for layer, x in zip(self.layers_of_tables, ids, strict=True)]
        return tf.concat([tf.reduce_sum(v, axis=1) for v in vectors], axis=1)


def start(folder: Path, layers: str, optimizer: str):
    """Makes a side's training with a tape, or the trainer's; `optimizer` is of `OPTIMIZERS`."""
    if layers == "trainer":
        return bags.start(folder, OPTIMIZERS[optimizer], accumulator=ACCUMULATOR)
    rows, sizes = load_on_cpu(folder)
    gradients = [tf.constant(part) for part in workload.output_gradients(sizes, "concatenated")]
    model = KerasBags(sizes) if layers == "keras" else bags.BagModel(sizes, "concatenated")
    moved_by = make_optimizer(optimizer, sizes.learning_rate)

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = bags.loss_with_gradient(model(ids), gradients)
        variables = model.trainable_variables
        moved_by.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    batches = bags.batches(rows, sizes)
    return SimpleNamespace(step=lambda: float(step(next(batches))))


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(KerasOptions, argv, MODULE, __doc__, package=None, rounds=5)
    cases = []
    for optimizer, (hotness, batch_size) in itertools.product(args.optimizers, BATCH_SIZES.items()):
        sizes = bags.sizes_of(128, (hotness,) * NUM_TABLES, batch_size)
        sizes.epsilon = EPSILON
        if args.quick:
            sizes.num_rows, sizes.dim = 500, 16
        peers = (KERAS,) * ("." in optimizer) + (TRAINER,) * bool(OPTIMIZERS[optimizer])
        name = f"{optimizer}, hotness {hotness}, batch {batch_size:,}"
        options = {"optimizer": optimizer}
        cases.append(Case(name, (PACKAGE, *peers), sizes, options, LOSS_TOLERANCE, TARGET_RATIO))
    title = "Keras' optimizers on a CPU"
    return training.run(MODULE, title, cases, bags.make_rows, args, bags.FACT)


if __name__ == "__main__":
    sys.exit(main())
