"""Losses of the order within groups of samples, such as those of one user."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from distributed_embeddings.collectives import World

LISTWISE, PAIRWISE = "listwise", "pairwise"


class GroupLoss:
    """Listwise or pairwise loss of a batch, for `Trainer`: the mean over its groups.

    Only groups with a positive and a negative sample in the batch count. With the logits z of a
    group, its loss is

        listwise: -sum over positives i of ln(exp(z_i) / sum_j exp(z_j)), the softmax over the group
        pairwise: mean over pairs of a positive i and a negative j of ln(1 + exp(z_j - z_i))

    after Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007, and
    Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", 2009.

    Each rank receives labels, logits and groups of the global batch, 20 bytes per sample, and
    computes the same loss, of which it differentiates its own logits: N ranks train as one does.
    Memory of the pairwise loss: some 50 bytes per pair, of which a group of n samples has up to
    n^2 / 4.

    Args:
        kind: LISTWISE or PAIRWISE.
        group_of: returns the integer column of the inputs, [batch] or [batch, 1], of the groups.
        first_id: samples of smaller ids have no group.
        world: the ranks.
    """

    def __init__(
        self,
        kind: str,
        group_of: Callable[[Any], tf.Tensor],
        first_id: int = 0,
        world: World = World(),
    ):
        self._loss = {LISTWISE: listwise, PAIRWISE: pairwise}[kind]
        self._group_of, self._first_id, self._world = group_of, first_id, world

    def __call__(self, model, batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the loss of the global batch, which has no terms."""
        logits = model(batch.inputs, training=True, weights=batch.weights)
        groups = tf.cast(tf.reshape(self._group_of(batch.inputs), [-1, 1]), tf.int64)
        labels, counts = batch.labels, (batch.weights > 0) & (groups >= self._first_id)
        size = self._world.size
        if size > 1:
            groups = self._world.all_gather(groups, "loss.groups")
            own = tf.concat([labels, tf.cast(counts, tf.float32), logits], axis=1)
            values = self._world.all_gather(own, "loss.values")
            first = self._world.rank * tf.shape(logits)[0]
            after = first + tf.shape(logits)[0]
            logits = tf.concat([values[:first, 2:], logits, values[after:, 2:]], axis=0)
            labels, counts = values[:, :1], values[:, 1:2] > 0
        groups, labels, logits, counts = (
            tf.reshape(column, [-1]) for column in (groups, labels, logits, counts)
        )
        # Alone in a group, a sample has no loss. Shapes are those of the batch: XLA compiles once.
        alone = -1 - tf.range(tf.size(groups, tf.int64))
        loss = self._loss(tf.where(counts, groups, alone), labels, logits)
        if size > 1:
            # `Trainer` minimizes the mean over ranks, each of which has part of the gradient.
            loss += (size - 1.0) * (loss - tf.stop_gradient(loss))
        return loss, {}


def listwise(groups: tf.Tensor, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the mean over groups of the listwise loss, see `GroupLoss`; 0 without any.

    Args:
        groups: int64 [n], in any order.
        labels: float32 [n], 0 or 1.
        logits: float32 [n].
    """
    segments = _Groups.from_columns(groups, labels)
    largest = tf.math.unsorted_segment_max(
        tf.stop_gradient(logits), segments.group, segments.num_groups
    )
    shifted = logits - tf.gather(largest, segments.group)
    sums = tf.math.unsorted_segment_sum(tf.exp(shifted), segments.group, segments.num_groups)
    losses = labels * (tf.math.log(tf.gather(sums, segments.group)) - shifted)
    return segments.mean(tf.math.unsorted_segment_sum(losses, segments.group, segments.num_groups))


def pairwise(groups: tf.Tensor, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the mean over groups of the pairwise loss; see `listwise`."""
    segments = _Groups.from_columns(groups, labels)
    # Samples by group, negatives first: those of a group are a range.
    by_label = tf.argsort(2 * segments.group + tf.cast(labels, tf.int32), stable=True)
    begins = tf.cumsum(segments.positives + segments.negatives, exclusive=True)
    positives = tf.where(labels > 0)[:, 0]
    counts = tf.gather(segments.negatives, tf.gather(segments.group, positives))
    winners = tf.repeat(positives, counts)  # one per pair
    group = tf.gather(segments.group, winners)
    number = tf.range(tf.size(winners)) - tf.repeat(tf.cumsum(counts, exclusive=True), counts)
    losers = tf.gather(by_label, tf.gather(begins, group) + number)
    losses = tf.nn.softplus(tf.gather(logits, losers) - tf.gather(logits, winners))
    sums = tf.math.unsorted_segment_sum(losses, group, segments.num_groups)
    num_pairs = tf.cast(segments.positives, tf.float32) * tf.cast(segments.negatives, tf.float32)
    return segments.mean(tf.math.divide_no_nan(sums, num_pairs))


class _Groups(NamedTuple):
    """Groups of a batch.

    group: number of each sample's group; int32 [n].
    num_groups: int32, of which some may be empty.
    positives, negatives: samples of each group; int32 [num_groups].
    """

    group: tf.Tensor
    num_groups: tf.Tensor
    positives: tf.Tensor
    negatives: tf.Tensor

    @classmethod
    def from_columns(cls, groups: tf.Tensor, labels: tf.Tensor) -> "_Groups":
        _, group = tf.unique(groups)
        is_positive = tf.cast(labels > 0, tf.int32)
        positives, negatives = (
            tf.math.unsorted_segment_sum(counted, group, tf.size(groups))
            for counted in (is_positive, 1 - is_positive)
        )
        return cls(group, tf.size(groups), positives, negatives)

    def mean(self, losses: tf.Tensor) -> tf.Tensor:
        """Returns the mean of the losses of groups with both labels."""
        both = tf.cast((self.positives > 0) & (self.negatives > 0), losses.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(both * losses), tf.reduce_sum(both))
