"""Values without an id in later splits, which are far more frequent than in train."""

import math

from preproc.checks.report import PASSED, WARNING, Finding, Kind

_SMALLEST_SHARE = 0.01  # of the values of a feature; a smaller one cannot move a metric much
_FACTOR = 2
_ERRORS = 2  # standard errors that the share must be above that of chance
_KIND = Kind(
    "unknown_values",
    "training moves the vector of id 0 too little for as many values as there are later",
)
# Vocabularies: of this data set, of an earlier one, of one that grows, and of a deployed model;
# of this Criteo log, and of an earlier one.
OWN, KNOWN, GROWN, SCORED = "own", "known", "grown", "scored"
OWN_LOG, KNOWN_LOG = "own log", "known log"
_THRESHOLD = "a larger --frequency_threshold, --hash_buckets {0}=N, or --drop {1}"
_REMEDIES = {
    OWN: f"possible solutions: {_THRESHOLD}",
    KNOWN: "compare '{1}' in both files; new values get ids with --grow",
    GROWN: f"possible solutions: without --vocabulary: {_THRESHOLD}",
    SCORED: "compare '{1}' with the training's file; a data set made with preproc.transcode "
    "--grow, and a model trained with it, know new values",
    OWN_LOG: "a larger threshold of the column, e.g. --frequency_threshold 15,{2}:60",
    KNOWN_LOG: "compare '{1}' in both logs; values that are right get ids when both are prepared "
    "together",
}


def unknown_share(
    feature: str,
    column: str,
    split: str,
    share: float,
    trained: float,
    count: int,
    vocabulary: str = OWN,
    value: str = "",
) -> Finding:
    """Returns whether the share of id 0 in a split is far above that in train.

    Args:
        share, trained: shares of id 0 in the split and in train.
        count: number of values in the split.
        vocabulary: whose vocabulary it is, one of `OWN`, `KNOWN`, `GROWN`, `SCORED`, `OWN_LOG` and
            `KNOWN_LOG`.
        value: what is known about the most frequent one; empty: nothing.
    """
    error = math.sqrt(share * (1 - share) / max(count, 1))
    return _KIND.finding(
        WARNING if is_far_above(share - _ERRORS * error, trained) else PASSED,
        (column,),
        f"'{feature}': {share:.2%} of the values of {split} have id 0, but only {trained:.2%} of "
        f"train{value}",
        _REMEDIES[vocabulary].format(feature, column, column.removeprefix("cat_")),
    )


def is_far_above(share: float, trained: float) -> bool:
    """Returns whether the share of id 0 is at least 1% and over twice that of training."""
    return share >= _SMALLEST_SHARE and share > _FACTOR * trained
