"""Popular items in a data set of histories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from config.config import Config
from dataloading.histories.dataset import blocks, count_samples
from dataloading.spec.feature_spec import LABEL_CHANNEL, TRAIN, FeatureSpec
from dataloading.spec.history_channels import TARGET_CHANNEL, num_ids
from recipes.baseline.comparison import BaselineRow, BaselineTask
from recipes.baseline.fitted import scores_over
from recipes.from_flags import evaluation_split


def task(spec: FeatureSpec, config: Config, max_rows: int) -> BaselineTask:
    """Returns the comparison on the rows that `sim.py --mode eval` scores; see `Family.baseline`.

    Raises:
        ValueError: the spec or a file does not fit.
    """
    split = evaluation_split("auto", "eval", spec)

    def constant() -> BaselineRow:
        return BaselineRow("constant", "", {"auc": 0.5}, 0.0)

    def popular() -> BaselineRow:
        start = time.perf_counter()
        auc = popularity_auc(spec, split)
        elapsed_s = time.perf_counter() - start
        settings = f"clicks of {_item(spec)} in train"
        return BaselineRow("popularity", settings, {"auc": auc}, elapsed_s)

    description = f"{split} split of {count_samples(spec, split):,} rows"
    return BaselineTask(split, description, ("auc",), (constant, popular))


def popularity_auc(spec: FeatureSpec, split: str) -> float:
    """Returns the AUC of the number of clicks in train of the target item."""
    clicks = np.zeros(num_ids(spec, _item(spec)), np.int64)
    for labels, items in _blocks(spec, TRAIN):
        clicks += np.bincount(items[labels == 1], minlength=len(clicks))
    scores = ((clicks[items], labels == 1) for labels, items in _blocks(spec, split))
    return scores_over(scores).auc


def _blocks(spec: FeatureSpec, split: str) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yields labels and target items [rows]."""
    for labels, items in blocks(spec, split, (spec.channel(LABEL_CHANNEL)[0], _item(spec))):
        yield labels.ravel(), items.ravel()


def _item(spec: FeatureSpec) -> str:
    return spec.channel(TARGET_CHANNEL)[0]
