"""Synthetic models and their generated input."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from distributed_embeddings.collectives import World
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from distributed_embeddings.python.layers.embedding import Embedding
from model_sizes import ModelSizes


class SyntheticModel(keras.Model):
    """Pooled embedding vectors and numerical features through an MLP to one logit.

    Args:
        sizes: Sizes of the model.
        **options: Further arguments of `DistributedEmbedding`.
    """

    def __init__(self, sizes: ModelSizes, **options):
        super().__init__()
        self.embeddings = dmp.DistributedEmbedding(
            [Embedding(rows, dim, combiner="sum") for rows, dim in sizes.tables],
            strategy="memory_balanced",
            input_table_map=[table for table, _ in sizes.features],
            **options,
        )
        logging.info("%d embedding tables created.", len(sizes.tables))
        self.pooling = None
        if sizes.pooling:
            self.pooling = keras.layers.AveragePooling1D(sizes.pooling, padding="same")
        hidden = [keras.layers.Dense(width, activation="relu") for width in sizes.mlp]
        self.mlp = keras.Sequential([*hidden, keras.layers.Dense(1)])

    def call(self, inputs):
        """Returns logits [batch, 1] of (numerical [batch, n], ids of each feature)."""
        numerical, ids = inputs
        vectors = tf.concat(self.embeddings(ids), axis=1)
        if self.pooling is not None:
            vectors = tf.squeeze(self.pooling(vectors[:, :, None]), axis=2)
        return self.mlp(tf.concat([vectors, numerical], axis=1))


def power_law_ids(rng: np.random.Generator, count: int, rows: int, alpha: float) -> np.ndarray:
    """Draws `count` ids below `rows` whose density falls with id ** -alpha; 0: uniform."""
    uniform, largest = rng.random(count), float(rows + 1)
    if alpha == 1:
        ranks = largest**uniform
    else:
        exponent = 1 - alpha
        ranks = (uniform * (largest**exponent - 1) + 1) ** (1 / exponent)
    return np.minimum(ranks.astype(np.int64) - 1, rows - 1)


class SyntheticBatches:
    """Generated batches ((numerical, ids of each feature), labels), the same for any world size.

    Args:
        sizes: Sizes of the model.
        batch_size: Samples of all ranks.
        input_ids: Features whose ids this rank takes for all ranks' samples (model-parallel
            input); None: all features, of this rank's samples.
        world: The ranks.
        num_batches: Number of batches.
        alpha: Exponent of the power law of ids; 0: uniform.
    """

    def __init__(
        self,
        sizes: ModelSizes,
        batch_size: int,
        input_ids: Sequence[int] | None,
        world: World,
        *,
        num_batches: int,
        alpha: float,
    ):
        self._sizes, self._batch_size, self._alpha = sizes, batch_size, alpha
        local_size = batch_size // world.size
        self._local = slice(world.rank * local_size, (world.rank + 1) * local_size)
        self._samples = self._local if input_ids is None else slice(None)
        features = range(len(sizes.features)) if input_ids is None else input_ids
        self._batches = [self._generate(number, features) for number in range(num_batches)]
        counts = len(sizes.features), len(sizes.tables)
        logging.info("Generated %d categorical inputs for %d embedding tables", *counts)

    def _generate(self, number: int, features: Sequence[int]) -> tuple:
        rng = np.random.default_rng([number, 0])
        shape = [self._batch_size, self._sizes.num_numerical]
        numerical = (100 * rng.random(shape, np.float32))[self._local]
        labels = rng.integers(0, 2, [self._batch_size, 1])[self._local]
        ids = [self._feature(number, feature) for feature in features]
        return (tf.constant(numerical), ids), tf.constant(labels)

    def _feature(self, number: int, feature: int) -> tf.Tensor:
        table, hotness = self._sizes.features[feature]
        rows, _ = self._sizes.tables[table]
        rng = np.random.default_rng([number, 1 + feature])
        ids = power_law_ids(rng, self._batch_size * hotness, rows, self._alpha)
        return tf.constant(ids.reshape(self._batch_size, hotness)[self._samples])

    def __getitem__(self, index: int) -> tuple:
        return self._batches[index]
