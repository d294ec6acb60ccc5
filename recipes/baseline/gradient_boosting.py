"""Gradient boosted trees of LightGBM on numbers and ids as categories."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipes.baseline.fitted import SimpleModel, scores_of
from recipes.baseline.sample_arrays import ClickRows

LEAVES = (7, 15, 63)
LEARNING_RATE = 0.05
_MAX_TREES, _PATIENCE = 2000, 50
_MAX_BAG_IDS = 64  # most frequent ids of a feature with several per row that are columns of 0 and 1
_ROWS_PER_THREAD = 50_000
_WHOLE_FLOATS = 1 << 24  # whole numbers up to this one are exact in float32


def gradient_boosting(train: ClickRows, choosing: ClickRows) -> SimpleModel:
    """Returns the trees with the number of leaves of the least log loss of `choosing`.

    Each number of leaves stops at the number of trees that is best by that loss.
    """
    import lightgbm

    bag_ids = {
        feature: _most_frequent(bag.values, train.cardinalities[feature])
        for feature, bag in train.bags.items()
    }
    start = train.numbers.shape[1]
    categories = list(range(start, start + len(train.ids)))
    common = {"objective": "binary", "verbosity": -1, "seed": 0, "feature_pre_filter": False}
    common |= {"learning_rate": LEARNING_RATE, "num_threads": _num_threads(len(train.labels))}
    options = {"categorical_feature": categories, "params": common}
    train_set = lightgbm.Dataset(_matrix(train, bag_ids), train.labels, **options)
    choosing_matrix = _matrix(choosing, bag_ids)
    choosing_set = train_set.create_valid(choosing_matrix, choosing.labels)
    trials = []
    for leaves in LEAVES:
        stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
        model = lightgbm.train(
            {**common, "num_leaves": leaves, "metric": "binary_logloss"},
            train_set,
            num_boost_round=_MAX_TREES,
            valid_sets=[choosing_set],
            callbacks=[stop],
        )
        logits = model.predict(choosing_matrix, raw_score=True)
        trials.append((scores_of(logits, choosing.labels).log_loss, leaves, model))
    _, leaves, best = min(trials, key=lambda trial: trial[0])

    def logits_of(rows: ClickRows) -> NDArray[np.float64]:
        return np.asarray(best.predict(_matrix(rows, bag_ids), raw_score=True))

    return SimpleModel("LightGBM", f"{leaves} leaves, {best.best_iteration} trees", logits_of)


def _num_threads(rows: int) -> int:
    """Returns the number of threads.

    More threads wait for each other at every split of a tree: 6,300 rows took 18 s with two threads
    where both cores had other work, and 1 s with one.
    """
    return max(1, min(len(os.sched_getaffinity(0)), rows // _ROWS_PER_THREAD))


def _matrix(rows: ClickRows, bag_ids: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Returns numbers, ids and columns of 0 and 1, [rows, values]."""
    is_exact = all(rows.cardinalities[feature] <= _WHOLE_FLOATS for feature in rows.ids)
    dtype = np.float32 if is_exact else np.float64
    parts = [rows.numbers.astype(dtype, copy=False)]
    parts += [ids.astype(dtype)[:, None] for ids in rows.ids.values()]
    for feature, columns in bag_ids.items():
        bag = rows.bags[feature]
        row_of = np.repeat(np.arange(len(rows.labels)), np.diff(bag.row_splits))
        place = np.full(rows.cardinalities[feature], len(columns))
        place[columns] = np.arange(len(columns))
        present = np.zeros((len(rows.labels), len(columns) + 1), dtype)
        present[row_of, place[bag.values]] = 1
        parts.append(present[:, :-1])
    return np.concatenate(parts, axis=1)


def _most_frequent(ids: NDArray[Any], cardinality: int) -> NDArray[np.int64]:
    counts = np.bincount(ids, minlength=cardinality)
    return np.argsort(-counts, kind="stable")[:_MAX_BAG_IDS]
