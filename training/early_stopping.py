"""Early stopping: counts evaluations without improvement."""

import math
from collections.abc import Iterable
from pathlib import Path


def is_improvement(value: float, best: float | None) -> bool:
    """Returns whether an evaluation is better than all earlier ones.

    Any increase is an improvement, however small; an equal value is not. NaN (an AUC of rows of one
    class) never replaces a number, and is replaced by any later value.

    Args:
        value: the metric of this evaluation; higher is better.
        best: the highest value so far; None before the first evaluation.
    """
    return best is None or math.isnan(best) or value > best


def stale_evaluations(values: Iterable[float]) -> int:
    """Returns the number of evaluations since the best one, from the metric of each in order.

    An evaluation whose metric is NaN counts as one without improvement.
    """
    best, stale = None, 0
    for value in values:
        improved = is_improvement(value, best)
        best = value if improved else best
        stale = 0 if improved and not math.isnan(value) else stale + 1
    return stale


def describe_best(metric: str, value: float, step: int, path: Path | None) -> str:
    """Returns the sentence for the log that names the best evaluation and its checkpoint.

    Args:
        metric: name of the metric, with its split.
        value: the best value.
        step: step after which it was measured.
        path: the checkpoint of that step; None if it was not kept.
    """
    checkpoint = "its checkpoint was not kept" if path is None else f"checkpoint {path}"
    return f"best {metric} {value:.5f} at step {step}: {checkpoint}"
