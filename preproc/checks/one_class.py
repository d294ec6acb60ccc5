"""Splits in which all labels are equal."""

from collections.abc import Mapping
from dataclasses import dataclass

from preproc.checks.report import PASSED, WARNING, Check
from preproc.encoding.encodings import Label

_LEAST_ROWS = 10  # fewer may have one class by chance


@dataclass(frozen=True)
class OneClass(Check):
    """Labels of a split. Where the preparation fits a label, one class in train is an error.

    Attributes:
        split: its name.
        rows: number of its rows.
        rate: share of labels that are 1.
        conditions: of the labels 0 and 1, see `Label`.
        divided_by: flag that divided the rows; empty: none did.
    """

    name = "one_class"
    why = "the AUC of such a split is not defined, and log losses mean little"
    split: str
    rows: int
    rate: float
    conditions: tuple[str, str]
    divided_by: str = ""

    @property
    def level(self) -> str:
        return WARNING if self.rows >= _LEAST_ROWS and self.rate in (0, 1) else PASSED

    @property
    def seen(self) -> str:
        return f"all rows of {self.split} have {self.conditions[int(self.rate)]}"

    @property
    def remedy(self) -> str:
        if self.divided_by == "split_by_time":
            return "divide the rows at random: --split without --split_by_time"
        if self.divided_by:
            return f"a larger share of {self.split} in --split"
        return f"add rows of the other class to {self.split}"


def one_class(
    rows: Mapping[str, int], rates: Mapping[str, float], label: Label, divided_by: str
) -> list[OneClass]:
    """Returns the check of each split.

    Args:
        rows: split -> number of rows.
        rates: split -> share of labels that are 1.
    """
    return [OneClass(s, rows[s], rate, label.conditions, divided_by) for s, rate in rates.items()]
