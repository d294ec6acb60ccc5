"""DLRM: https://arxiv.org/abs/1906.00091."""

import math
from collections.abc import Sequence

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from distributed_embeddings.python.layers.embedding import Embedding


def table_initializer(rows: int) -> keras.initializers.Initializer:
    """Uniform within 1 / sqrt(rows)."""
    limit = 1 / math.sqrt(rows)
    return keras.initializers.RandomUniform(-limit, limit)


def mlp(widths: Sequence[int], last_activation: str | None) -> keras.Sequential:
    """Dense layers with ReLU, but for the last one."""
    activations = ["relu"] * (len(widths) - 1) + [last_activation]
    pairs = zip(widths, activations, strict=True)
    return keras.Sequential([keras.layers.Dense(n, activation) for n, activation in pairs])


class DotDLRM(keras.Model):
    """DLRM with sharded tables and replicated MLPs.

    Args:
        table_sizes: Rows of each table.
        embedding_dim: Columns of all tables, and the last width of `bottom_mlp`.
        bottom_mlp, top_mlp: Widths of the dense layers.
        combiner: Combiner of the tables, for ids [batch, 1]; None for ids [batch].
        **options: Further arguments of `DistributedEmbedding`.

    Raises:
        ValueError: The bottom MLP does not end with `embedding_dim`.
    """

    def __init__(self, table_sizes, embedding_dim, bottom_mlp, top_mlp, combiner=None, **options):
        super().__init__()
        if bottom_mlp[-1] != embedding_dim:
            raise ValueError(
                f"expected a bottom MLP that ends with the embedding dimension {embedding_dim}, "
                f"got {bottom_mlp}: the interaction multiplies both"
            )
        self.bottom, self.top = mlp(bottom_mlp, "relu"), mlp(top_mlp, None)
        tables = [
            Embedding(rows, embedding_dim, table_initializer(rows), combiner=combiner)
            for rows in table_sizes
        ]
        self.embeddings = dmp.DistributedEmbedding(tables, **options)

    def call(self, inputs):
        """Returns logits [batch, 1] of (numerical [batch, 13], ids of each feature [batch])."""
        numerical, ids = inputs
        bottom = self.bottom(numerical)
        vectors = tf.stack([bottom, *self.embeddings(ids)], axis=1)
        products = tf.matmul(vectors, vectors, transpose_b=True)
        count = vectors.shape[1]
        below = [i * count + j for i in range(count) for j in range(i)]
        pairs = tf.gather(tf.reshape(products, [-1, count * count]), below, axis=1)
        return self.top(tf.concat([pairs, bottom], axis=1))
