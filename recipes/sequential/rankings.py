"""Rankings of the items of users by SIM, DIEN and DIN: recommendations, and held-out items."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from numpy.typing import NDArray

from config.config import Config
from config.sections.recommendation import NONE, TRAIN
from dataloading.histories.catalogue import (
    Catalogue,
    last_samples,
    positive_samples,
    read_catalogue,
)
from dataloading.histories.dataset import row_reader
from dataloading.interactions.unseen_items import draw_unseen_in_use
from dataloading.spec import feature_spec as fs
from dataloading.spec.history_channels import num_ids, sequence_channels
from nn.metrics.held_out_ranking import HeldOutRanking, users_per_block
from nn.sequence.candidate_logits import CandidateScorer, UserHistories
from nn.sequence.model import SequenceModel
from nn.top_items import Pairs, TopItemSearch
from recipes import from_flags
from recipes.original_ids import original_ids
from recipes.recommendation import ItemsOfUsers, Recommendation, user_ids

# Users whose items are searched together: each takes a pass of the model over all items.
MAX_USERS = 16

# Seed of the negatives of rankings: equal in all runs, so that models can be compared.
_SEED = 0


class _Scorer:
    """Scores of items of the catalogue for samples of a split.

    Args:
        label: features that are read so that samples have the numbers of `positive_samples`.
    """

    def __init__(
        self,
        model: SequenceModel,
        spec: fs.FeatureSpec,
        split: str,
        catalogue: Catalogue,
        label: tuple[str, ...] = (),
    ):
        channels = sequence_channels(spec, with_labels=False, with_negatives=False)
        self._num_user = len(channels.user)
        self._rows = row_reader(spec, split, [*channels.user, *channels.positive, *label])
        self._columns = self._rows.columns[: self._num_user + len(channels.positive)]
        self._features = [tf.constant(feature) for feature in catalogue.features]
        self._scorer = CandidateScorer(model)

    def histories(self, samples: NDArray[np.int64]) -> UserHistories:
        """Returns the looked-up histories of samples, by their numbers; collective."""
        tensors = [tf.constant(c) for c in self._rows.read(samples, self._columns)]
        parts = tensors[: self._num_user], tensors[self._num_user :]
        histories: UserHistories = self._scorer.histories(*parts)
        return histories

    def scores(self, users: UserHistories, places: Any) -> Any:
        """Returns the logits of items, by their places, of all users; collective."""
        features = [tf.gather(feature, places) for feature in self._features]
        return self._scorer.logits(users, features)

    def list_scores(self, users: UserHistories, places: NDArray[np.int64]) -> Any:
        """Returns the logits of the items [users, items] of each user; collective."""
        features = [tf.gather(feature, places) for feature in self._features]
        return self._scorer.list_logits(users, features)


def recommendation(
    config: Config, spec: fs.FeatureSpec, model: SequenceModel, world: World
) -> Recommendation:
    """Returns the users of `--users` with their last histories and the search of their items."""
    channels = sequence_channels(spec, with_labels=False, with_negatives=False)
    split = from_flags.evaluation_split(config.data.eval_mapping, config.run.mode, spec)
    last = last_samples(spec, split)
    user, item = channels.user[0], channels.target[0]
    (users, user_note), (items, item_note) = (
        original_ids(spec, name, num_ids(spec, name)) for name in (user, item)
    )
    ids = user_ids(config, user, users, last >= 0, f"a sample in the split '{split}'")
    catalogue, seen = read_catalogue(spec), None
    if (excluded := config.recommendation.exclude_seen) != NONE:
        keys = catalogue.keys((fs.TRAIN,)) if excluded == TRAIN else catalogue.keys()
        seen = ItemsOfUsers(keys, num_ids(spec, item), ids, catalogue.ids)
    scorer, count = _Scorer(model, spec, split, catalogue), config.recommendation.top
    return Recommendation(
        users=ids,
        user_values=users,
        item_values=items,
        count=count,
        candidates=catalogue.ids,
        search=TopItemSearch(scorer.scores, len(catalogue.ids), count, world, MAX_USERS),
        inputs=lambda numbers: scorer.histories(last[ids[numbers]]),
        excluded=seen,
        notes=(user_note, item_note),
    )


def held_out_rankings(
    config: Config, spec: fs.FeatureSpec, model: SequenceModel, world: World
) -> list[HeldOutRanking]:
    """Returns the rankings of `--full_ranking` and `--valid_negative`: a sample of label 1 of the
    evaluated split is a user, and its target the held-out item.

    Raises:
        ValueError: the data set has no labels, or no features of the user.
        TooFewUnseen: a user has too few other items.
    """
    flags, rankings = config.family_flags, list[HeldOutRanking]()
    is_full = config.recommendation.full_ranking
    if not (is_full or flags.valid_negative):
        return rankings
    split = from_flags.evaluation_split(config.data.eval_mapping, config.run.mode, spec)
    samples, users, items = positive_samples(spec, split)
    catalogue, label = read_catalogue(spec), spec.channel(fs.LABEL_CHANNEL)
    num_items = num_ids(
        spec, sequence_channels(spec, with_labels=False, with_negatives=False).target[0]
    )
    places, none = np.searchsorted(catalogue.ids, items), Pairs(*np.zeros([2, 0], np.int64))
    scorer = _Scorer(model, spec, split, catalogue, label)
    common: dict[str, Any] = {"k": flags.topk, "num_users": len(samples), "world": world}
    if flags.valid_negative:
        negatives = draw_unseen_in_use(
            *(users, num_items, catalogue.keys(), flags.valid_negative), seed=_SEED
        )
        lists = np.searchsorted(catalogue.ids, np.column_stack([items, negatives]))
        rankings.append(
            HeldOutRanking(
                prefix="",
                block=users_per_block(lists.shape[1], MAX_USERS),
                logits=lambda numbers: scorer.list_scores(
                    scorer.histories(samples[numbers]), lists[numbers]
                ).numpy(),
                popularity=lambda numbers: catalogue.clicks[lists[numbers]],
                held_out=lambda numbers: Pairs(np.arange(len(numbers)), 0 * numbers),
                left_out=lambda numbers: none,
                **common,
            )
        )
    if is_full:
        search = TopItemSearch(scorer.scores, len(catalogue.ids), 1, world, MAX_USERS)
        rankings.append(
            HeldOutRanking(
                prefix="full_",
                block=users_per_block(len(catalogue.ids), MAX_USERS),
                logits=lambda numbers: search.logits(scorer.histories(samples[numbers])),
                popularity=lambda numbers: np.broadcast_to(
                    catalogue.clicks, [len(numbers), len(catalogue.clicks)]
                ),
                held_out=lambda numbers: Pairs(np.arange(len(numbers)), places[numbers]),
                left_out=ItemsOfUsers(catalogue.keys((fs.TRAIN,)), num_items, users, catalogue.ids),
                **common,
            )
        )
    return rankings
