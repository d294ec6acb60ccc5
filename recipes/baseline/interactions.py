"""Popular items in the candidate lists of a data set of users and items."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from config.config import Config
from dataloading.interactions.candidates import evaluated_lists
from dataloading.interactions.stored import CandidateArrays, count_of_items
from dataloading.spec.feature_spec import FeatureSpec
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives
from recipes.baseline.comparison import BaselineRow, BaselineTask
from recipes.collaborative.build import EVALUATION_SEED, num_negatives
from recipes.from_flags import evaluation_split


def task(spec: FeatureSpec, config: Config, max_rows: int) -> BaselineTask:
    """Returns the comparison on the candidate lists that `ncf.py --mode eval` ranks.

    Args:
        spec: the data set.
        config: flags of `ncf.py`, of which the length of the ranking and the number of negatives
            count.
        max_rows: not used.

    Raises:
        ValueError: the spec or a file does not fit.
    """
    split, k = evaluation_split("auto", "eval", spec), config.family_flags.topk
    lists = evaluated_lists(spec, split, num_negatives(config, spec, split), EVALUATION_SEED)
    num_lists, length = lists.items.shape

    def random() -> BaselineRow:
        by_rank = np.ones(length, np.int64)
        return BaselineRow("random order", "expected value", metrics_of(by_rank, k), 0.0)

    def popular() -> BaselineRow:
        start = time.perf_counter()
        metrics = metrics_of(ranks_by_popularity(spec, lists), k)
        elapsed_s = time.perf_counter() - start
        return BaselineRow("popularity", "interactions of the item in train", metrics, elapsed_s)

    def evaluator(model: Any, dataset: Any) -> Any:
        from nn.ncf.candidate_evaluator import HitRateEvaluator  # with TensorFlow

        return HitRateEvaluator(model, dataset, k)

    description = f"{split} split of {num_lists:,} candidate lists of {length} items"
    metrics = (f"hr@{k}", f"ndcg@{k}")
    return BaselineTask(split, description, metrics, (random, popular), evaluator)


def ranks_by_popularity(spec: FeatureSpec, lists: CandidateArrays) -> NDArray[np.int64]:
    """Returns the number of positives at each rank, by the interactions of an item in train."""
    assert lists.labels is not None
    ranks = ranks_of_positives(lists.items, lists.labels, count_of_items(spec)[lists.items])
    return np.bincount(ranks, minlength=lists.items.shape[1])


def metrics_of(by_rank: NDArray[np.int64], k: int) -> dict[str, float]:
    """Returns HR@k and NDCG@k of the number of positives at each rank."""
    return {f"hr@{k}": hit_rate(by_rank, k), f"ndcg@{k}": ndcg(by_rank, k)}
