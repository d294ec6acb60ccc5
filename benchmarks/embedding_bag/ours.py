"""Our side: a layer of tables with a combiner in the toolkit's training step."""

import contextlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.ops import kernels

import config as configuration
from benchmarks.embedding_bag import workload
from benchmarks.harness.tensorflow_training import RecipeTraining, use_threads, wait
from benchmarks.harness.worker import (
    parser_of,
    peak_memory_mib,
    reset_peak_memory,
    serve_training,
    timed_in_turn,
)
from benchmarks.harness.workload_files import load
from nn.embedding_model import EmbeddingModel, ModelOptions
from nn.optim.optimizers import create_optimizers


class BagModel(EmbeddingModel):
    """Tables alone: ids [batch, hotness] of each to sums of rows, [batch, tables * dim]."""

    def __init__(self, sizes: workload.BagSizes):
        super().__init__(name="bags", dtype="float32")
        self.embedding = ModelOptions().distribute(
            [
                Embedding(sizes.num_rows, sizes.dim, "zeros", combiner="sum", name=f"table_{t}")
                for t in range(sizes.num_tables)
            ]
        )
        self.embedding.build(None)
        for t, weight in enumerate(self.embedding.table_weights()):
            weight.write(0, workload.initial_table(sizes, t))

    def call(self, ids):
        return self.embedding(list(ids), concatenate=True)


class BagTraining(RecipeTraining):
    """The layer in training with an output gradient that is the same in every step."""

    def __init__(self, rows: workload.BagRows, sizes: workload.BagSizes, optimizer: str):
        reset_peak_memory()
        self._base_mib = peak_memory_mib()
        model = BagModel(sizes)
        options = configuration.OptimizerConfig(
            optimizer="sgd",
            embedding_optimizer=optimizer,
            learning_rate=workload.LEARNING_RATE,
            epsilon=workload.EPSILON,
            adagrad_initial_accumulator=0.0,
            warmup_steps=0,
            decay_steps=0,
        )
        gradient = workload.output_gradient(sizes).reshape([sizes.batch_size, -1])
        gradient = tf.constant(gradient)
        super().__init__(
            model,
            lambda model, ids: (loss_with_gradient(model(ids), gradient), {}),
            create_optimizers(options, model.dense_variables, model.table_variables),
            [],
            tuple(ids.reshape(-1, ids.shape[-1]) for ids in workload.by_table(rows.ids, sizes)),
            sizes.batch_size,
        )
        self._forward = self.parts()["forward"]
        reset_peak_memory()

    def facts(self) -> dict:
        return {"base_mib": self._base_mib}

    def forward_ms(self, count: int) -> list[float]:
        """Milliseconds of the forward pass of all tables."""
        return timed_in_turn({"forward": lambda: wait(self._forward())}, count)["forward"]

    def save_tables(self, path: str) -> None:
        with Path(path).open("wb") as file:
            for weight in self.model.embedding.table_weights():
                for first, last in weight.pieces():
                    file.write(np.ascontiguousarray(weight.gather_rows(first, last)).tobytes())


def loss_with_gradient(output: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Returns sum(output * gradient) of the first samples; its gradient is `gradient`."""

    @tf.custom_gradient
    def loss(output):
        first = slice(None, workload.LOSS_SAMPLES)
        value = tf.reduce_sum(output[first] * gradient[first])

        def backward(upstream):  # upstream is 1
            with tf.control_dependencies([value]):  # as in a model: after the forward pass
                return tf.identity(gradient)

        return value, backward

    return loss(output)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--plain", action="store_true", help="without the compiled operations")
    args = parser.parse_args()
    use_threads(args.threads)
    rows, sizes = load(args.folder, workload.BagRows, workload.BagSizes)

    def start(optimizer: str) -> BagTraining:
        return BagTraining(rows, sizes, optimizer)

    with kernels.disabled() if args.plain else contextlib.nullcontext():
        serve_training(f"TensorFlow {tf.__version__}", start, args.address)


if __name__ == "__main__":
    main()
