"""Splits in which all labels are equal, and rows that are sorted by their labels."""

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from preproc.checks.report import PASSED, WARNING, Finding, Kind
from preproc.encoding.encodings import Label

_LEAST_ROWS = 10  # fewer may have one class by chance
_KIND = Kind("one_class", "the AUC of such a split is not defined, and log losses mean little")
_ORDER = Kind(
    "sorted_by_label",
    "a training without a validation split evaluates the last tenth of the rows",
)
_LEAST_ERRORS, _MOST_RATIO = 10, 0.5


def one_class(
    rows: Mapping[str, int], rates: Mapping[str, float], label: Label, divided_by: str
) -> list[Finding]:
    """Returns whether the labels of each split are equal; in train, fitting a label refuses it.

    Args:
        rows: split -> number of rows.
        rates: split -> share of labels that are 1.
        divided_by: flag that divided the rows; empty: none did.
    """
    remedy = {
        "split_by_time": "divide the rows at random: --split without --split_by_time",
        "split": "a larger share of {} in --split",
    }.get(divided_by, "add rows of the other class to {}")
    return [
        _KIND.finding(
            WARNING if rows[split] >= _LEAST_ROWS and rate in (0, 1) else PASSED,
            seen=f"all rows of {split} have {label.conditions[int(rate)]}",
            remedy=remedy.format(split),
        )
        for split, rate in rates.items()
    ]


def sorted_by_label(labels: NDArray[Any], label: Label) -> Finding:
    """Returns whether the last tenth of the rows has far more or less rows of label 1.

    Args:
        labels: 0 or 1, in the order of the rows, [rows].
        label: encoding of the label.
    """
    if len(labels) < _LEAST_ROWS:
        return _ORDER.finding(PASSED)
    start = len(labels) - len(labels) // 10
    share, before, after = (float(part.mean()) for part in (labels, labels[:start], labels[start:]))
    error = math.sqrt(share * (1 - share) * (1 / start + 1 / (len(labels) - start)))
    is_sorted = abs(after - before) > _LEAST_ERRORS * error and (
        min(after, before) < _MOST_RATIO * max(after, before)
    )
    return _ORDER.finding(
        WARNING if is_sorted else PASSED,
        seen=f"share of {label.conditions[1]} in the last tenth of the rows {after:.4f}, before "
        f"{before:.4f}",
        remedy="divide the rows at random: --split 0.8,0.1,0.1",
    )
