"""A vocabulary that grows while the model trains on raw Criteo rows.

    python main.py train.txt

A line of the file is a label, 13 integers and 26 hexadecimal ids, separated by tabs; any of the 39
may be empty. `IntegerLookup` numbers the ids in the order of their first occurrence. One process:
ranks that see different ids would grow different vocabularies.
"""

import argparse

import numpy as np
import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from distributed_embeddings.python.layers.embedding import IntegerLookup

NUM_NUMERICAL, NUM_CATEGORICAL = 13, 26


def read_rows(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns numerical features scaled to [0, 1], ids and labels; 0 for an empty field.

    Raises:
        ValueError: A line does not have 40 fields.
    """
    numerical, ids, labels = [], [], []
    with open(path) as file:
        for number, line in enumerate(file, start=1):
            label, *fields = line.rstrip("\n").split("\t")
            if len(fields) != NUM_NUMERICAL + NUM_CATEGORICAL:
                raise ValueError(
                    f"{path}:{number}: expected 40 fields separated by tabs, got {len(fields) + 1}"
                )
            labels.append(int(label))
            numerical.append([float(field or 0) for field in fields[:NUM_NUMERICAL]])
            ids.append([int(field or "0", 16) for field in fields[NUM_NUMERICAL:]])
    values = np.array(numerical, np.float32)
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.maximum(high - low, 1e-6)
    return scaled, np.array(ids, np.int64), np.array(labels, np.float32)[:, None]


class GrowingVocabularyModel(keras.Model):
    """Raw ids through vocabularies, tables and an MLP.

    Args:
        max_tokens: Ids that a vocabulary can hold; the ids beyond share row 0.
        dim: Columns of the tables.
    """

    def __init__(self, max_tokens: int, dim: int):
        super().__init__()
        self.lookups = [IntegerLookup(max_tokens, use_gpu=False) for _ in range(NUM_CATEGORICAL)]
        self.embeddings = dmp.DistributedEmbedding(
            [keras.layers.Embedding(max_tokens + 1, dim) for _ in range(NUM_CATEGORICAL)]
        )
        hidden = [keras.layers.Dense(width, activation="relu") for width in (512, 256, 128)]
        self.mlp = keras.Sequential([*hidden, keras.layers.Dense(1)])

    def call(self, inputs):
        """Returns logits [batch, 1] of (numerical [batch, 13], raw ids [batch, 26])."""
        numerical, ids = inputs
        columns = tf.unstack(ids, NUM_CATEGORICAL, axis=1)
        indices = [lookup(column) for lookup, column in zip(self.lookups, columns, strict=True)]
        return self.mlp(tf.concat([numerical, *self.embeddings(indices)], axis=1))


def main() -> None:
    """Trains, and prints the sizes of the vocabularies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", help="file of raw rows")
    parser.add_argument("--batch_size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max_tokens", type=int, default=100_000)
    parser.add_argument("--embedding_dim", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=0.03)
    arguments = parser.parse_args()
    numerical, ids, labels = read_rows(arguments.rows)
    model = GrowingVocabularyModel(arguments.max_tokens, arguments.embedding_dim)
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.legacy.SGD(arguments.learning_rate), bce, metrics=["AUC"])
    options = {"batch_size": arguments.batch_size, "epochs": arguments.epochs, "verbose": 2}
    model.fit((numerical, ids), labels, **options)
    sizes = [len(lookup.get_vocabulary()) for lookup in model.lookups]
    print(f"vocabularies: {sizes}")


if __name__ == "__main__":
    main()
