"""Rankings of the items of users by NCF: recommendations, and held-out items."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed_embeddings.collectives import World
from numpy.typing import NDArray

from config.config import Config
from config.sections.recommendation import NONE, TRAIN
from dataloading.interactions.stored import positive_keys, touched_keys
from dataloading.spec import feature_spec as fs
from nn.metrics.held_out_ranking import HeldOutRanking, users_per_block
from nn.ncf.model import NCFModel
from nn.top_items import MAX_USERS, TopItemSearch
from recipes import from_flags
from recipes.original_ids import original_ids
from recipes.recommendation import ItemsOfUsers, Recommendation, user_ids


def recommendation(
    config: Config, spec: fs.FeatureSpec, model: NCFModel, world: World
) -> Recommendation:
    """Returns the users of `--users` and the search of their items."""
    (user,), (item,) = (spec.channel(channel) for channel in (fs.USER_CHANNEL, fs.ITEM_CHANNEL))
    (users, user_note), (items, item_note) = (
        original_ids(spec, name, spec.cardinality(name)) for name in (user, item)
    )
    ids, seen = user_ids(config, user, users), None
    if (excluded := config.recommendation.exclude_seen) != NONE:
        is_of_train = excluded == TRAIN
        keys = positive_keys(spec, (fs.TRAIN,)) if is_of_train else touched_keys(spec, fs.TRAIN)
        seen = ItemsOfUsers(keys, len(items), ids, items.ids)
    count = config.recommendation.top
    return Recommendation(
        users=ids,
        user_values=users,
        item_values=items,
        count=count,
        candidates=items.ids,
        search=_search(model, items.ids, count, world),
        inputs=lambda numbers: ids[numbers].astype(np.int32),
        excluded=seen,
        notes=(user_note, item_note),
    )


def held_out_rankings(
    config: Config,
    spec: fs.FeatureSpec,
    model: NCFModel,
    world: World,
    popularity: NDArray[np.int64],
) -> list[HeldOutRanking]:
    """Returns the ranking of `--full_ranking`: the users of the evaluated split, and their items in
    it; popularity: of each item.

    Raises:
        ValueError: a file of a split does not fit.
    """
    if not config.recommendation.full_ranking:
        return []
    split = from_flags.evaluation_split(config.data.eval_mapping, config.run.mode, spec)
    (item,) = spec.channel(fs.ITEM_CHANNEL)
    items = original_ids(spec, item, spec.cardinality(item))[0]
    keys, popularity = positive_keys(spec, (split,)), popularity[items.ids]
    users = np.unique(keys // len(items))
    search = _search(model, items.ids, 1, world)
    return [
        HeldOutRanking(
            prefix="full_",
            k=config.family_flags.topk,
            num_users=len(users),
            block=users_per_block(len(items.ids), MAX_USERS),
            logits=lambda numbers: search.logits(users[numbers].astype(np.int32)),
            popularity=lambda numbers: np.broadcast_to(popularity, [len(numbers), len(popularity)]),
            held_out=ItemsOfUsers(keys, len(items), users, items.ids),
            left_out=ItemsOfUsers(positive_keys(spec, (fs.TRAIN,)), len(items), users, items.ids),
            world=world,
        )
    ]


def _search(
    model: NCFModel, candidates: NDArray[np.int64], count: int, world: World
) -> TopItemSearch:
    def score(users: Any, places: Any) -> Any:
        return model.pair_logits(model.vectors_of(users, places + candidates[0]))

    return TopItemSearch(score, len(candidates), count, world)
