"""Values without an id in later splits, which are far more frequent than in train."""

import math
from dataclasses import dataclass

from preproc.checks.report import PASSED, WARNING, Check

_SMALLEST_SHARE = 0.01  # of the values of a feature; a smaller one cannot move a metric much
_FACTOR = 2
_ERRORS = 2  # standard errors that the share must be above that of chance

# Vocabularies: of this data set, of an earlier one, of one that grows, and of a deployed model.
OWN, KNOWN, GROWN, SCORED = "own", "known", "grown", "scored"
_THRESHOLD = "a larger --frequency_threshold, --hash_buckets {0}=N, or --drop {1}"
_REMEDIES = {
    OWN: f"possible solutions: {_THRESHOLD}",
    KNOWN: "compare '{1}' in both files; new values get ids with --grow",
    GROWN: f"possible solutions: without --vocabulary: {_THRESHOLD}",
    SCORED: "compare '{1}' with the training's file; a data set made with preproc.transcode "
    "--grow, and a model trained with it, know new values",
}


@dataclass(frozen=True)
class MoreUnknown(Check):
    """Share of id 0 in a split against that in train.

    Attributes:
        feature, column: of the values.
        split: where they are.
        share, trained: shares of id 0 in the split and in train.
        count: number of values in the split.
        value: what is known about the most frequent one; empty: nothing.
        vocabulary: whose vocabulary it is, one of `OWN`, `KNOWN`, `GROWN` and `SCORED`.
    """

    name = "unknown_values"
    why = "training moves the vector of id 0 too little for as many values as there are later"
    feature: str
    column: str
    split: str
    share: float
    trained: float
    count: int
    value: str = ""
    vocabulary: str = "own"

    @property
    def level(self) -> str:
        error = math.sqrt(self.share * (1 - self.share) / max(self.count, 1))
        return WARNING if is_far_above(self.share - _ERRORS * error, self.trained) else PASSED

    @property
    def seen(self) -> str:
        return (
            f"'{self.feature}': {self.share:.2%} of the values of {self.split} have id 0, but only "
            f"{self.trained:.2%} of train{self.value}"
        )

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.vocabulary].format(self.feature, self.column)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


def is_far_above(share: float, trained: float) -> bool:
    """Returns whether the share of id 0 is at least 1% and over twice that of training."""
    return share >= _SMALLEST_SHARE and share > _FACTOR * trained
