"""Columns of lists whose combinations are categories, as another separator is between values."""

from collections.abc import Mapping
from dataclasses import dataclass

from preproc.checks.report import PASSED, WARNING, Check
from preproc.fitting.infer import ColumnFacts


@dataclass(frozen=True)
class UnsplitColumns(Check):
    """Columns of texts that look like lists and are read as single values.

    Attributes:
        facts: column -> its facts.
    """

    name = "unsplit_lists"
    why = "the vector of a combination is trained by its own rows alone"
    facts: Mapping[str, ColumnFacts]

    @property
    def level(self) -> str:
        return WARNING if self.facts else PASSED

    @property
    def seen(self) -> str:
        return ", ".join(
            f"'{name}': each combination such as {own.unsplit_lists.example!r:.60} is one of "
            f"{own.distinct:,} categories, of {own.unsplit_lists.num_values:,} different values"
            for name, own in self.facts.items()
            if own.unsplit_lists is not None
        )

    @property
    def remedy(self) -> str:
        names = ",".join(self.facts)
        return (
            "write lists with ';' between the values, or as JSON arrays; if combinations are to be "
            f"categories, state it with --categorical {names}"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.facts)


def unsplit_columns(facts: Mapping[str, ColumnFacts]) -> UnsplitColumns:
    """Returns the check of the columns whose kinds are not stated."""
    return UnsplitColumns({n: own for n, own in facts.items() if own.unsplit_lists is not None})
