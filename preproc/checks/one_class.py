"""Splits in which all labels are equal."""

from collections.abc import Mapping

from preproc.checks.report import PASSED, WARNING, Finding, Kind
from preproc.encoding.encodings import Label

_LEAST_ROWS = 10  # fewer may have one class by chance
_KIND = Kind("one_class", "the AUC of such a split is not defined, and log losses mean little")


def one_class(
    rows: Mapping[str, int], rates: Mapping[str, float], label: Label, divided_by: str
) -> list[Finding]:
    """Returns whether the labels of each split are equal; in train, fitting a label refuses it.

    Args:
        rows: split -> number of rows.
        rates: split -> share of labels that are 1.
        divided_by: flag that divided the rows; empty: none did.
    """
    return [
        _KIND.finding(
            WARNING if rows[split] >= _LEAST_ROWS and rate in (0, 1) else PASSED,
            seen=f"all rows of {split} have {label.conditions[int(rate)]}",
            remedy=_remedy(split, divided_by),
        )
        for split, rate in rates.items()
    ]


def _remedy(split: str, divided_by: str) -> str:
    if divided_by == "split_by_time":
        return "divide the rows at random: --split without --split_by_time"
    if divided_by:
        return f"a larger share of {split} in --split"
    return f"add rows of the other class to {split}"
