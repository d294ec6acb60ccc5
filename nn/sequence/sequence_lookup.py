"""Ids of a batch to the vectors of its users and items, one lookup per table."""

from typing import NamedTuple

import tensorflow as tf
from distributed_embeddings.precision import precise

from nn.sequence.sizes import SequenceModelConfig


class Vectors(NamedTuple):
    """Vectors of a batch's users and items, in the compute dtype.

    An item's vector is its features' embeddings side by side, [item_dim].

    user: [batch, user features * embedding_dim].
    target: [batch, item_dim].
    long: [batch, short_start, item_dim], the long history; without search it has no positions.
    short: [batch, positions - short_start, item_dim].
    negatives: [batch, num_negatives, item_dim], of the last positions; None if not requested.
    long_mask, short_mask: bool [batch, positions of each]; False is padding.
    """

    user: tf.Tensor
    target: tf.Tensor
    long: tf.Tensor
    short: tf.Tensor
    negatives: tf.Tensor | None
    long_mask: tf.Tensor
    short_mask: tf.Tensor


def look_up(embedding, config: SequenceModelConfig, inputs, with_negatives: bool) -> Vectors:
    """Looks up a batch; collective.

    The ids of target, history and negatives are one lookup per table: its gradient is one
    `tf.IndexedSlices`, and its exchange between ranks one message.
    """
    num_negatives = config.num_negatives if with_negatives else 0
    ids = list(inputs.user)
    for i, target in enumerate(inputs.target):
        parts = [target]
        if config.num_positions:
            parts.append(inputs.positive[i])
        if num_negatives:
            parts.append(inputs.negative[i][:, -num_negatives:])
        ids.append(_side_by_side(parts))
    flat = embedding(ids, concatenate=True)
    return arrange(config, flat, history_mask(config, flat, inputs), num_negatives)


def history_mask(config: SequenceModelConfig, flat: tf.Tensor, inputs) -> tf.Tensor:
    """Returns where the history has an item, bool [batch, positions]; `flat` is [batch, any]."""
    if not config.num_positions:
        return tf.zeros([tf.shape(flat)[0], 0], tf.bool)
    return tf.not_equal(inputs.positive[0], 0)


def arrange(
    config: SequenceModelConfig, flat: tf.Tensor, mask: tf.Tensor, num_negatives: int
) -> Vectors:
    """Splits the vectors of all lookups.

    Args:
        flat: [batch, width], the vectors of each lookup side by side: user features, then for each
            item feature those of target, long history, short history and negatives.
        mask: bool [batch, positions].
        num_negatives: Negatives per sample in `flat`.
    """
    dim, num_user = config.embedding_dim, len(config.user_features)
    num_long = config.short_start
    counts = [1, num_long, config.num_positions - num_long, num_negatives]
    sizes = [num_user * dim] + [count * dim for count in counts] * len(config.item_features)
    user, *pieces = tf.split(flat, sizes, axis=1)
    target, long, short, negatives = (
        _side_by_side_vectors(pieces[part::4], count, dim) for part, count in enumerate(counts)
    )
    return Vectors(
        user=user,
        target=tf.squeeze(target, axis=1),
        long=long,
        short=short,
        negatives=negatives if num_negatives else None,
        long_mask=mask[:, :num_long],
        short_mask=mask[:, num_long:],
    )


def mean_of_history(vectors: Vectors) -> tf.Tensor:
    """Returns the mean of the items of the history, [batch, item_dim]; 0 without one."""
    parts = (vectors.long, vectors.long_mask), (vectors.short, vectors.short_mask)
    total, count = 0.0, 0.0
    for items, mask in parts:
        if not items.shape[1]:
            continue
        is_item = precise(tf.cast(mask, items.dtype))
        total += tf.squeeze(tf.matmul(is_item[:, tf.newaxis], precise(items)), axis=1)
        count += tf.reduce_sum(is_item, axis=1, keepdims=True)
    return tf.cast(total / tf.maximum(count, 1), vectors.target.dtype)


def _side_by_side(parts: list[tf.Tensor]) -> tf.Tensor:
    """Concatenates integers [batch, n]; int64 if one of them is."""
    if any(part.dtype == tf.int64 for part in parts):
        parts = [tf.cast(part, tf.int64) for part in parts]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


def _side_by_side_vectors(pieces: list[tf.Tensor], count: int, dim: int) -> tf.Tensor:
    """Joins [batch, count * dim] of each feature to [batch, count, features * dim]."""
    # Stacked, because the gradient of tf.concat along the last axis is slower than tf.unstack.
    stacked = tf.stack([tf.reshape(piece, [-1, count, dim]) for piece in pieces], axis=2)
    return tf.reshape(stacked, [-1, count, len(pieces) * dim])
