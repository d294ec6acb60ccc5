"""Click probabilities of every sample of a data set, in their order."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World

from nn.metrics.classification import NonFiniteScores


def predict(model, dataset, world: World | None = None) -> Iterator[np.ndarray]:
    """Scores a data set once; collective: every rank must take every item.

    Args:
        model: `model(inputs) -> logits [batch, 1]`.
        dataset: See `DatasetEvaluator`; labels are not read. Each rank has its share of a global
            batch, in the order of ranks.
        world: The ranks; None: one process.

    Yields:
        sigmoid(logit), float32 [samples of the global batch] on rank 0, without padding; float32
        [0] on the other ranks.

    Raises:
        NonFiniteScores: On every rank: a logit is NaN or infinite.
    """
    world = world or World()

    @tf.function(reduce_retracing=True, autograph=False)
    def score_next(iterator) -> tf.Tensor:
        batch = iterator.get_next()
        logits = tf.reshape(tf.cast(model(batch.inputs), tf.float32), [-1])
        # The sigmoid of infinity is 1, a score like any other.
        scores = tf.where(tf.math.is_finite(logits), tf.sigmoid(logits), np.nan)
        return tf.boolean_mask(scores, tf.reshape(batch.weights, [-1]) > 0)

    iterator = iter(dataset.dataset())
    num_rows = 0
    for _ in range(dataset.num_batches):
        scores = np.asarray(world.all_gather(score_next(iterator), "predict.scores"))
        _check_finite(scores, num_rows)
        num_rows += len(scores)
        yield scores if world.is_chief else scores[:0]


def _check_finite(scores: np.ndarray, first_row: int) -> None:
    bad = np.flatnonzero(np.isnan(scores))
    if bad.size:
        raise NonFiniteScores(
            f"predictions: {bad.size} of {scores.size} logits of a batch are NaN or infinite, "
            f"first that of row {first_row + bad[0]} (counted from 0). The model has diverged: "
            "restore an earlier checkpoint; with --amp, try without it."
        )
