"""Permutation importance: the loss of quality of a model without the information of a feature.

Breiman, "Random Forests", 2001; Fisher, Rudin and Dominici, "All Models are Wrong, but Many are
Useful", 2019.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from nn.metrics.evaluator import ClickEvaluator


class FeatureImportance(NamedTuple):
    """Change of the metrics when the values of a feature are permuted across the samples.

    Attributes:
        feature: name of the feature.
        auc_drop: AUC of the samples as they are, less that of permuted ones; mean over repetitions.
        auc_drop_std: its standard deviation over repetitions, by n - 1; NaN of one.
        log_loss_rise: log loss of permuted samples, less that of the samples as they are; mean.
        log_loss_rise_std: its standard deviation over repetitions, by n - 1; NaN of one.
    """

    feature: str
    auc_drop: float
    auc_drop_std: float
    log_loss_rise: float
    log_loss_rise_std: float


def permutation_importance(
    evaluator: ClickEvaluator,
    metrics: Mapping[str, float],
    repeats: int,
    seed: int,
    advance: Callable[[], object] = lambda: None,
) -> list[FeatureImportance]:
    """Returns the importance of each feature, the highest drop of the AUC first; collective.

    Args:
        evaluator: of a data set with `features` and `permuted(feature, seed)`.
        metrics: those of the samples as they are, "auc" and "log_loss" among them.
        repeats: permutations of each feature.
        seed: seed of the permutations.
        advance: called before every batch, `evaluator.num_batches * repeats` times per feature.
    """
    dataset, result = evaluator.dataset, []
    for feature in dataset.features:
        changes = []
        for number in range(repeats):
            permuted = evaluator.with_dataset(dataset.permuted(feature, [seed, number]))
            values = dict(permuted.evaluate(lambda: bool(advance())))
            changes.append(
                (metrics["auc"] - values["auc"], values["log_loss"] - metrics["log_loss"])
            )
        drop, rise = np.mean(changes, axis=0)
        drop_std = rise_std = math.nan
        if repeats > 1:
            drop_std, rise_std = np.std(changes, axis=0, ddof=1)
        values_of_feature = map(float, (drop, drop_std, rise, rise_std))
        result.append(FeatureImportance(feature, *values_of_feature))
    return sorted(result, key=lambda importance: -importance.auc_drop)
