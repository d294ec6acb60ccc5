"""Embedding bags compared with three libraries: lookup, gradient and update of 26 tables."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding

from benchmarks.embedding_bag import workload
from benchmarks.harness import training
from benchmarks.harness.tensorflow_training import (
    RecipeTraining,
    batches_of,
    constant_rate,
    load_on_cpu,
)
from benchmarks.harness.training import Case, Side
from config.criteo_multi_hot import HOTNESS
from config.flag import flag
from nn.embedding_model import EmbeddingModel, ModelOptions
from nn.optim.optimizers import create_optimizers
from nn.train.trainer import Trainer

OURS = Side("ours", "embedding_bag.__main__")
FBGEMM = Side("fbgemm", "peers.torch_bags", options=(("library", "fbgemm"),))
TORCH = Side("EmbeddingBag", "peers.torch_bags", options=(("library", "torch"),))
# SGD of version 2.8.0 sums the gradients of a row wrongly above 16 columns.
INTEL = Side("Intel's bags", "peers.torch_bags", options=(("library", "intel"),), is_compared=False)
PEERS = {"sgd": (FBGEMM, TORCH, INTEL), "adagrad": (FBGEMM, INTEL), "rowwise_adagrad": (FBGEMM,)}
LOSS_TOLERANCES = {"float32": 1e-3, "bfloat16": 2e-2}
TARGET_RATIO = 1.1
FACT = "a step is the lookup of all tables, the gradient of a fixed output gradient, and the update"


@dataclass(frozen=True, kw_only=True)
class BagOptions(training.TrainingOptions):
    """Flags of the benchmark."""

    optimizers: tuple[str, ...] = flag(tuple(PEERS), "optimizers of the tables")
    hotness: tuple[str, ...] = flag(("1", "20"), "ids per sample of each table, or mlperf")
    dims: tuple[int, ...] = flag((128,), "columns of the tables", at_least=1)
    layouts: tuple[str, ...] = flag(
        ("concatenated",), "one output of all tables, or one per table", choices=workload.LAYOUTS
    )
    dtype: str = flag(
        "float32", "dtype of outputs and their gradients", choices=tuple(LOSS_TOLERANCES)
    )
    intel_python: Path | None = flag(None, "Python with intel-extension-for-pytorch: one more peer")


def sizes_of(dim: int, hotness: tuple[int, ...], batch_size: int, dtype: str = "float32"):
    """Sizes of tables and batches; `hotness` is that of each table.

    `dtype` is that of outputs and their gradients; tables are float32.
    """
    return SimpleNamespace(
        dim=dim,
        hotness=hotness,
        batch_size=batch_size,
        dtype=dtype,
        num_rows=100_000,  # of each table
        num_batches=2,  # different ones; the third step shows the update of the first
        learning_rate=0.01,
        epsilon=1e-8,  # of row-wise Adagrad, whose sums start at 0
    )


def make_rows(sizes: SimpleNamespace, folder: Path) -> dict[str, np.ndarray]:
    """Log-uniform ids: floor(exp(u log(rows))), u uniform in [0, 1).

    Returns:
        ids: int32 [num_batches, ids per batch]: by table, then by sample.
    """
    shape = (sizes.num_batches, sizes.batch_size * sum(sizes.hotness))
    uniform = np.random.default_rng(1).random(shape, np.float32)
    ids = np.exp(uniform * np.float32(np.log(sizes.num_rows))).astype(np.int32)
    return {"ids": np.minimum(ids, sizes.num_rows - 1)}


class BagModel(EmbeddingModel):
    """Tables alone: ids [batch, hotness] of each to sums of rows, in a layout of `workload`."""

    def __init__(self, sizes: SimpleNamespace, layout: str):
        super().__init__(name="bags", dtype=sizes.dtype)
        self._concatenate = layout == "concatenated"
        tables = range(len(sizes.hotness))
        self.embedding = ModelOptions(dtype=sizes.dtype).distribute(
            [
                Embedding(sizes.num_rows, sizes.dim, "zeros", combiner="sum", name=f"table_{t}")
                for t in tables
            ]
        )
        self.embedding.build(None)
        for t, weight in enumerate(self.embedding.table_weights()):
            weight.write(0, workload.initial_table(sizes, t))

    def call(self, ids):
        return self.embedding(list(ids), concatenate=self._concatenate)


def batches(rows, sizes: SimpleNamespace):
    """Batches of ids [batch, hotness] of each table."""
    ids = (part.reshape(-1, part.shape[-1]) for part in workload.by_table(rows.ids, sizes))
    return batches_of(tuple(ids), sizes.batch_size)


def loss_with_gradient(outputs, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns sum(outputs * gradients) of the first samples; its gradients are `gradients`."""

    @tf.custom_gradient
    def loss(*outputs):
        first = slice(None, workload.LOSS_SAMPLES)
        pairs = zip(outputs, gradients, strict=True)
        products = (out[first] * gradient[first] for out, gradient in pairs)
        value = tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in products])

        def backward(upstream):  # upstream is 1
            with tf.control_dependencies([value]):  # as in a model: after the forward pass
                return [tf.identity(gradient) for gradient in gradients]

        return value, backward

    return loss(*tf.nest.flatten(outputs))


def start(
    folder: Path, optimizer: str, layout: str = "concatenated", accumulator: float = 0.0
) -> RecipeTraining:
    """Our side: a layer of tables with a combiner in the toolkit's training step."""
    rows, sizes = load_on_cpu(folder)
    model = BagModel(sizes, layout)
    options = constant_rate(
        "sgd",
        sizes.learning_rate,
        embedding_optimizer=optimizer,
        epsilon=sizes.epsilon,
        adagrad_initial_accumulator=accumulator,
    )
    gradients = [tf.cast(x, sizes.dtype) for x in workload.output_gradients(sizes, layout)]
    optimizers = create_optimizers(options, model.dense_variables, model.table_variables)

    def loss(model, ids):
        return loss_with_gradient(model(ids), gradients), {}

    return RecipeTraining(model, Trainer(model, loss, optimizers), batches(rows, sizes))


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(BagOptions, argv, "embedding_bag", __doc__, "fbgemm_gpu", rounds=7)
    dims, hotness, batch_size = args.dims, args.hotness, 4096
    if args.quick:
        dims, hotness, batch_size = (16,), ("mlperf",), 64
    cases = []
    for optimizer, hot, dim, layout in itertools.product(
        args.optimizers, hotness, dims, args.layouts
    ):
        of_tables = HOTNESS if hot == "mlperf" else (int(hot),) * len(HOTNESS)
        peers = list(PEERS[optimizer])
        if args.intel_python and optimizer != "rowwise_adagrad":
            peers.append(INTEL._replace(python=args.intel_python))
        cases.append(
            Case(
                f"{optimizer}, hotness {hot}, dim {dim}, {layout}",
                (OURS, *peers, *(peer.memory_kept(is_peer=True) for peer in peers)),
                sizes_of(dim, of_tables, batch_size, args.dtype),
                {"optimizer": optimizer, "layout": layout},
                LOSS_TOLERANCES[args.dtype],
                TARGET_RATIO,
            )
        )
    return training.run("embedding_bag", "Embedding bags on a CPU", cases, make_rows, args, FACT)


if __name__ == "__main__":
    sys.exit(main())
