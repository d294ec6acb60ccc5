"""Synthetic models and their generated input."""

import numpy as np
import tensorflow as tf
from absl import logging
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from distributed_embeddings.python.layers.embedding import Embedding
from model_sizes import ModelSizes


class SyntheticModel(keras.Model):
    """Pooled embedding vectors and numerical features through an MLP to one logit.

    Args:
        sizes: Sizes of the model.
        embedding_api: "tfde" (`DistributedEmbedding`) or "native" (one Keras layer per table).
        embedding_device: Device of native tables; None: TensorFlow's default.
        **options: Further arguments of `DistributedEmbedding`.
    """

    def __init__(self, sizes: ModelSizes, embedding_api="tfde", embedding_device=None, **options):
        super().__init__()
        self.input_table_map = [table for table, _ in sizes.features]
        self.embedding_device = embedding_device
        self.embeddings: dmp.DistributedEmbedding | list[keras.layers.Embedding]
        if embedding_api == "native":
            self.embeddings = [keras.layers.Embedding(rows, dim) for rows, dim in sizes.tables]
        else:
            self.embeddings = dmp.DistributedEmbedding(
                [Embedding(rows, dim, combiner="sum") for rows, dim in sizes.tables],
                strategy="memory_balanced",
                input_table_map=self.input_table_map,
                **options,
            )
        logging.info("%d embedding tables created.", len(sizes.tables))
        self.pooling = None
        if sizes.pooling:
            self.pooling = keras.layers.AveragePooling1D(sizes.pooling, padding="same")
        hidden = [keras.layers.Dense(width, activation="relu") for width in sizes.mlp]
        self.mlp = keras.Sequential([*hidden, keras.layers.Dense(1, dtype="float32")])

    def call(self, inputs):
        """Returns logits [batch, 1] of (numerical [batch, n], ids of each feature)."""
        numerical, ids = inputs
        vectors = tf.concat(self._look_up(ids), axis=1)
        if self.pooling is not None:
            vectors = tf.squeeze(self.pooling(vectors[:, :, None]), axis=2)
        return self.mlp(tf.concat([vectors, tf.cast(numerical, vectors.dtype)], axis=1))

    def _look_up(self, ids):
        if not isinstance(self.embeddings, dmp.DistributedEmbedding):
            with tf.device(self.embedding_device):
                layers = [self.embeddings[table] for table in self.input_table_map]
                pairs = zip(layers, ids, strict=True)
                return [tf.reduce_sum(layer(feature), axis=1) for layer, feature in pairs]
        return self.embeddings(ids)


def power_law_ids(rng: np.random.Generator, count: int, rows: int, alpha: float) -> np.ndarray:
    """Draws `count` ids below `rows` whose density falls with id ** -alpha; 0: uniform."""
    uniform, largest = rng.random(count), float(rows + 1)
    if alpha == 1:
        ranks = largest**uniform
    else:
        exponent = 1 - alpha
        ranks = (uniform * (largest**exponent - 1) + 1) ** (1 / exponent)
    return np.minimum(ranks.astype(np.int64) - 1, rows - 1)


class SyntheticBatches(keras.utils.Sequence):
    """Generated batches ((numerical, ids of each feature), labels), the same for any world size.

    Args:
        sizes: Sizes of the model.
        batch_size: Samples of all ranks.
        input_ids: Features whose ids this rank takes for all ranks' samples (model-parallel
            input); None: all features, of this rank's samples.
        rank, world_size: This rank, and their number.
        num_batches: Number of batches.
        alpha: Exponent of the power law of ids; 0: uniform.
        hotness_ratio: Mean ids per sample of features with several, as a fraction of their maximum.
            Below 1 their ids are ragged, with at least one per sample.
    """

    def __init__(
        self,
        sizes: ModelSizes,
        batch_size: int,
        input_ids=None,
        *,
        rank=0,
        world_size=1,
        num_batches=1,
        alpha=0.0,
        hotness_ratio=1.0,
    ):
        self.sizes, self.batch_size = sizes, batch_size
        self.alpha, self.hotness_ratio = alpha, hotness_ratio
        local_size = batch_size // world_size
        self._local = slice(rank * local_size, (rank + 1) * local_size)
        self._is_local = input_ids is None
        self._input_ids = range(len(sizes.features)) if input_ids is None else input_ids
        self._batches = [self._generate(number) for number in range(num_batches)]
        counts = len(sizes.features), len(sizes.tables)
        logging.info("Generated %d categorical inputs for %d embedding tables", *counts)

    def _generate(self, number: int):
        rng = np.random.default_rng([number, 0])
        shape = [self.batch_size, self.sizes.num_numerical]
        numerical = (100 * rng.random(shape, np.float32))[self._local]
        labels = rng.integers(0, 2, [self.batch_size, 1])[self._local]
        ids = [self._feature(number, feature) for feature in self._input_ids]
        return (tf.constant(numerical), ids), tf.constant(labels)

    def _feature(self, number: int, feature: int):
        rng = np.random.default_rng([number, 1 + feature])
        table, hotness = self.sizes.features[feature]
        rows, _ = self.sizes.tables[table]
        samples = self._local if self._is_local else slice(None)
        mean = max(1.0, hotness * self.hotness_ratio)
        if mean >= hotness:
            ids = power_law_ids(rng, self.batch_size * hotness, rows, self.alpha)
            return tf.constant(ids.reshape(self.batch_size, hotness)[samples])
        lengths = 1 + rng.binomial(hotness - 1, (mean - 1) / (hotness - 1), self.batch_size)
        ids = power_law_ids(rng, lengths.sum(), rows, self.alpha)
        return tf.RaggedTensor.from_row_lengths(ids, lengths)[samples]

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        return self._batches[index]
