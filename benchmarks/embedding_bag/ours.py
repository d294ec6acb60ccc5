"""Our side: a layer of tables with a combiner in the toolkit's training step."""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding

from benchmarks.embedding_bag import workload
from benchmarks.harness.tensorflow_training import RecipeTraining, batches_of, recipe_side
from benchmarks.harness.worker import Started
from config.sections.optimizer import OptimizerConfig
from nn.embedding_model import EmbeddingModel, ModelOptions
from nn.optim.optimizers import create_optimizers
from nn.train.trainer import Trainer


class BagModel(EmbeddingModel):
    """Tables alone: ids [batch, hotness] of each to sums of rows, in a layout of `workload`."""

    def __init__(self, sizes: workload.BagSizes, layout: str = "concatenated"):
        super().__init__(name="bags", dtype=sizes.dtype)
        self._concatenate = layout == "concatenated"
        self.embedding = ModelOptions(dtype=sizes.dtype).distribute(
            [
                Embedding(sizes.num_rows, sizes.dim, "zeros", combiner="sum", name=f"table_{t}")
                for t in range(sizes.num_tables)
            ]
        )
        self.embedding.build(None)
        for t, weight in enumerate(self.embedding.table_weights()):
            weight.write(0, workload.initial_table(sizes, t))

    def call(self, ids):
        return self.embedding(list(ids), concatenate=self._concatenate)


class BagTraining(RecipeTraining):
    """The layer in training with an output gradient that is the same in every step."""

    def __init__(
        self,
        rows: workload.BagRows,
        sizes: workload.BagSizes,
        optimizer: str,
        layout: str = "concatenated",
        epsilon: float = workload.EPSILON,
        accumulator: float = 0.0,
    ):
        model = BagModel(sizes, layout)
        options = OptimizerConfig(
            optimizer="sgd",
            embedding_optimizer=optimizer,
            learning_rate=workload.LEARNING_RATE,
            epsilon=epsilon,
            adagrad_initial_accumulator=accumulator,
            warmup_steps=0,
            decay_steps=0,
        )
        gradients = workload.output_gradients(sizes, layout)
        gradients = [tf.cast(part, sizes.dtype) for part in gradients]
        optimizers = create_optimizers(options, model.dense_variables, model.table_variables)
        ids = (part.reshape(-1, part.shape[-1]) for part in workload.by_table(rows.ids, sizes))
        super().__init__(
            model,
            Trainer(
                model,
                lambda model, ids: (loss_with_gradient(model(ids), gradients), {}),
                optimizers,
            ),
            batches_of(tuple(ids), sizes.batch_size),
            [],
        )

    def save_weights(self, path) -> None:
        """Writes nothing: all sides make the same initial tables."""


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


def side(folder: Path, threads: int) -> Started:
    return recipe_side(folder, threads, workload.BagRows, workload.BagSizes, BagTraining)
