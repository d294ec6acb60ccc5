"""Click probabilities of every row of a data set, in the order of its rows."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from nn.metrics.classification import NonFiniteScores
from runtime.cluster.distributed import World


def predict(model, dataset, world: World | None = None) -> Iterator[np.ndarray]:
    """Runs over the data set once; yields sigmoid(logit) of each real row, batch by batch.

    Every rank must take every item: each is a collective, one message of 4 bytes per row.

    Args:
        model: `model(inputs) -> logits [batch, 1]`.
        dataset: `num_batches`, the same on all ranks, and `dataset() -> tf.data.Dataset` of
            batches, with labels or without. Each rank has its share of a global batch, in the order
            of ranks.
        world: the ranks that share the rows; None is one process.

    Yields:
        float32 [rows of the global batch] on rank 0, computed in float32 and without padding;
        float32 [0] on the other ranks.

    Raises:
        NonFiniteScores: on every rank, at the first global batch with a logit that is NaN or
            infinite; the message has the row.
    """
    world = world or World()

    @tf.function(reduce_retracing=True, autograph=False)
    def score_next(iterator) -> tf.Tensor:
        """Scores [real rows] of this rank's next batch; NaN where the logit is not finite."""
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
