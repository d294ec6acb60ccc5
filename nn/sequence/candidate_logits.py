"""Logits of many candidates of each user, whose history is looked up and read once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from nn.sequence.model import SequenceModel
from nn.sequence.sequence_lookup import Vectors
from nn.sequence.sizes import DIEN, SIM


class UserHistories(NamedTuple):
    """Vectors of users and their histories, see `sequence_lookup.Vectors`, and what a model
    computes of them alone.

    states: states of the interests [users, steps, units]; no steps for models without them.
    categories: int [users, long history], of which hard search reads the target's category.
    """

    user: tf.Tensor
    long: tf.Tensor
    short: tf.Tensor
    long_mask: tf.Tensor
    short_mask: tf.Tensor
    states: tf.Tensor
    categories: tf.Tensor


class CandidateScorer:
    """Scores candidates of users by a sequential recommender.

    Args:
        model: the model.
    """

    def __init__(self, model: SequenceModel):
        self._model, self._config = model, model.config
        self._num_user = len(model.config.user_features)
        self._user_width = self._num_user * model.config.embedding_dim

    @tf.function(reduce_retracing=True, autograph=False)
    def histories(self, user: Sequence[tf.Tensor], positive: Sequence[tf.Tensor]) -> UserHistories:
        """Looks users and histories up; collective.

        Args:
            user: integers [users, 1] of each user feature.
            positive: integers [users, history_length] of each item feature.
        """
        config, model = self._config, self._model
        num_users = tf.shape(positive[0])[0]
        positions = config.num_positions
        history = [ids[:, :positions] for ids in positive]
        vectors = self._look_up(user, [tf.reshape(ids, [-1]) for ids in history])
        dim, start = config.item_dim, config.short_start
        items = tf.reshape(vectors[1], [num_users, positions, dim])
        mask = tf.not_equal(history[0], 0)
        short, short_mask = items[:, start:], mask[:, start:]
        states = tf.zeros([num_users, 0, dim], items.dtype)
        if config.model_type in (SIM, DIEN):
            states = model.evolution.interests(short, short_mask)
        return UserHistories(
            user=tf.reshape(vectors[0], [num_users, self._user_width]),
            long=items[:, :start],
            short=short,
            long_mask=mask[:, :start],
            short_mask=short_mask,
            states=states,
            categories=history[-1][:, :start],
        )

    def logits(self, users: UserHistories, targets: Sequence[tf.Tensor]) -> tf.Tensor:
        """Scores all candidates of each user; collective.

        Args:
            users: the users.
            targets: integers [candidates] of each item feature.

        Returns:
            Logits of a click, [users, candidates] float32.
        """
        target = self._look_up_items(targets)

        def of_user(parts: UserHistories) -> tf.Tensor:
            return self._logits_of_user(parts, target, targets[-1])

        return tf.map_fn(of_user, users, fn_output_signature=tf.TensorSpec([None], tf.float32))

    @tf.function(reduce_retracing=True, autograph=False)
    def list_logits(self, users: UserHistories, targets: Sequence[tf.Tensor]) -> tf.Tensor:
        """Scores candidates of its own for each user; collective.

        Args:
            users: the users.
            targets: integers [users, candidates] of each item feature.

        Returns:
            Logits of a click, [users, candidates] float32.
        """
        flat = self._look_up_items([tf.reshape(ids, [-1]) for ids in targets])
        shape = tf.concat([tf.shape(targets[0]), tf.shape(flat)[1:]], axis=0)

        def of_user(parts: tuple[UserHistories, tf.Tensor, tf.Tensor]) -> tf.Tensor:
            return self._logits_of_user(*parts)

        lists = (users, tf.ensure_shape(tf.reshape(flat, shape), [None, None, flat.shape[1]]))
        signature = tf.TensorSpec([None], tf.float32)
        return tf.map_fn(of_user, (*lists, targets[-1]), fn_output_signature=signature)

    def _logits_of_user(
        self, user: UserHistories, target: tf.Tensor, category: tf.Tensor
    ) -> tf.Tensor:
        """Returns logits [candidates] float32 of their vectors and last features."""
        num = tf.shape(target)[0]
        repeated = UserHistories(*(tf.repeat(part[tf.newaxis], num, axis=0) for part in user))
        vectors = Vectors(
            repeated.user,
            target,
            repeated.long,
            repeated.short,
            None,
            repeated.long_mask,
            repeated.short_mask,
        )
        categories = category[:, tf.newaxis], repeated.categories
        logits = self._model.logits_of_vectors(vectors, categories, repeated.states)
        return tf.cast(tf.reshape(logits, [-1]), tf.float32)

    def _look_up_items(self, items: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns vectors [n, item_dim] of item features [n]."""
        return self._look_up([tf.zeros([0], tf.int32)] * self._num_user, items)[1]

    def _look_up(self, users: Sequence[Any], items: Sequence[Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns vectors of users [n, user features * dim] and of items [m, item_dim]."""
        ids = [*(tf.reshape(values, [-1]) for values in users), *items]
        ragged = [
            tf.RaggedTensor.from_row_lengths(values, [tf.size(values)], validate=False)
            for values in ids
        ]
        vectors = [values.values for values in self._model.embedding(ragged)]
        num_user = len(users)
        empty = tf.zeros([tf.size(ids[0]), 0], vectors[-1].dtype)
        user = tf.concat(vectors[:num_user], axis=1) if num_user else empty
        return user, tf.concat(vectors[num_user:], axis=1)
