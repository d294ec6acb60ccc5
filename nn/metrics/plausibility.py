"""Notes on metrics that are possible but rarely right: leaks, and models that learned nothing."""

import math
from typing import NamedTuple

ONE_CLASS, LEAK, HALF, ONE_VALUE = "one class", "leak", "half", "one value"  # kinds of notes

_HIGH = 0.99  # of an AUC or a hit rate
_LARGE_SHARE = 0.99
_LEAST = 50  # rows of each label, or candidate lists: of fewer, all of this happens by chance


class EqualScores(NamedTuple):
    """Most frequent score of an evaluation.

    Attributes:
        logit: its logit.
        rows: number of rows that have it; exact if it is more than half of them.
    """

    logit: float
    rows: int


def click_notes(
    auc: float, negatives: int, positives: int, equal: EqualScores | None
) -> dict[str, str]:
    """Returns notes on the metrics of a click model by their kind.

    Args:
        auc: NaN for labels of one class.
        negatives, positives: numbers of rows.
        equal: None with the AUC of a histogram.
    """
    rows = negatives + positives
    if not (negatives and positives):
        label = int(positives > 0)
        return {
            ONE_CLASS: f"AUC is undefined, it needs both classes: all {rows} labels are {label}"
        }
    notes = {}
    if min(negatives, positives) < _LEAST:
        return notes
    if auc > _HIGH:
        notes[LEAK] = (
            f"the AUC of {auc:.5f} is higher than most tasks allow: a column may follow from the "
            "label, or rows of train may be repeated here. `--mode importance` shows the columns "
            "that decide; leave out those that are not known yet when rows are scored"
        )
    if equal is not None and equal.rows > _LARGE_SHARE * rows:
        share = f"{equal.rows / rows:.2%}" if equal.rows < rows else "all"
        probability = 1 / (1 + math.exp(-max(-700.0, equal.logit)))
        notes[ONE_VALUE] = (
            f"{share} of the predictions are {probability:.4g}: the model has not learned, or most "
            "rows have equal features. Lower --learning_rate, train longer, and look for constant "
            "columns with `python -m dataloading.describe`"
        )
    elif auc == 0.5:
        notes[HALF] = "the AUC is exactly 0.5, as that of equal predictions: " + (
            "all may be in one bin of --auc_thresholds. Leave the flag out for the exact AUC"
            if equal is None
            else "here they differ. Look for labels that belong to other rows"
        )
    return notes


def ranking_notes(name: str, hit_rate: float, lists: int, k: int, length: int) -> dict[str, str]:
    """Returns notes on the hit rate `name`, of `k` of `length` candidates, by their kind."""
    if k >= length:
        return {ONE_CLASS: f"a candidate list has {length} items, so {name} is 1 for any model"}
    if lists < _LEAST:
        return {}
    if hit_rate == 0:
        return {
            ONE_VALUE: f"{name} is exactly 0, as of items with equal scores, which rank before the "
            "held-out one: the model has not learned. Lower --learning_rate, or train longer"
        }
    if hit_rate > _HIGH and k <= length / 2:
        return {
            LEAK: f"{name} of {hit_rate:.5f} is higher than most tasks allow: held-out items may "
            "be in train, or negatives never are. Check how the interactions were split"
        }
    return {}
