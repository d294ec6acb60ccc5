"""Splits as ranges of one sequence, the whole log in input order: train, test and validation."""

import math
from dataclasses import dataclass

from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION


@dataclass(frozen=True)
class Split:
    """Rows start <= row < stop of the log."""

    name: str
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        return self.stop - self.start


def split_by_day(rows_per_day: list[int]) -> list[Split]:
    """Returns the splits of the original recipe, in time order; raises ValueError for an empty one.

    All days but the last train, the first half of the last day (rounded down) is `test`, the rest
    of it `validation`.
    """
    if len(rows_per_day) < 2:
        raise ValueError(
            "the last day is for test and validation, so one day alone leaves nothing to train "
            "on; add a day, or hold out the last part of its rows with --holdout_fraction 0.2"
        )
    total = sum(rows_per_day)
    last_day = total - rows_per_day[-1]
    half = last_day + rows_per_day[-1] // 2
    return _checked(
        [Split(TRAIN, 0, last_day), Split(TEST, last_day, half), Split(VALIDATION, half, total)]
    )


def split_by_fraction(
    num_rows: int, holdout_fraction: float, validation_fraction: float
) -> list[Split]:
    """Returns train, validation (unless its fraction is 0) and test, in time order.

    Fractions of all rows are rounded to whole rows. Raises ValueError for an empty split.
    """
    test = num_rows - math.floor(num_rows * holdout_fraction + 0.5)
    validation = test - math.floor(num_rows * validation_fraction + 0.5)
    splits = [Split(TRAIN, 0, validation), Split(TEST, test, num_rows)]
    if validation_fraction:
        splits.insert(1, Split(VALIDATION, validation, test))
    return _checked(splits)


def _checked(splits: list[Split]) -> list[Split]:
    for split in splits:
        if split.num_rows <= 0:
            rows = ", ".join(f"{s.name} {max(s.num_rows, 0)}" for s in splits)
            raise ValueError(
                f"no rows are left for {split.name} (rows: {rows}); give more days, or other "
                "fractions with --holdout_fraction and --validation_fraction"
            )
    return splits
