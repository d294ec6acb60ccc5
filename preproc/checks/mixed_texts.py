"""Columns of ids of which nearly all are numbers, such as the codes of ICD-9."""

from collections.abc import Mapping
from dataclasses import dataclass

from preproc.checks.report import PASSED, WARNING, Check
from preproc.fitting.infer import ColumnFacts
from preproc.fitting.near_numbers import NearNumbers
from preproc.fitting.whole_numbers import has_id_name

_EXAMPLES = 3


@dataclass(frozen=True)
class MixedTexts(Check):
    """Columns of numbers and other texts, which have many spellings and may be codes.

    Attributes:
        mixed: column -> its facts.
    """

    name = "mixed_texts"
    why = "some texts among the values of a column make all of them categorical"
    mixed: Mapping[str, NearNumbers]

    @property
    def level(self) -> str:
        return WARNING if self.mixed else PASSED

    @property
    def seen(self) -> str:
        return ", ".join(
            f"'{name}' is categorical: {near.share:.1%} of the values are numbers, others are "
            + ", ".join(map(repr, near.others[:_EXAMPLES]))
            for name, near in self.mixed.items()
        )

    @property
    def remedy(self) -> str:
        names = ",".join(self.mixed)
        return (
            f"state that they are codes with --categorical {names}, or name the texts that stand "
            "for missing values with --missing_values"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.mixed)


def mixed_texts(facts: Mapping[str, ColumnFacts]) -> MixedTexts:
    """Returns the check of the columns whose kinds are not stated."""
    return MixedTexts(
        {
            name: own.near_numbers
            for name, own in facts.items()
            if own.near_numbers is not None and not has_id_name(name)
        }
    )
