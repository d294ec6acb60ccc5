"""Columns of texts that may be something else: numbers of which some are texts, and lists."""

from collections.abc import Mapping

from preproc.checks.report import PASSED, WARNING, Finding, Kind
from preproc.fitting.infer import ColumnFacts
from preproc.fitting.whole_numbers import has_id_name

_EXAMPLES = 3
_MIXED = Kind("mixed_texts", "some texts among the values of a column make all of them categorical")
_UNSPLIT = Kind("unsplit_lists", "the vector of a combination is trained by its own rows alone")


def mixed_texts(facts: Mapping[str, ColumnFacts]) -> Finding:
    """Returns which columns hold numbers and other texts, which have many spellings and may be
    codes, such as those of ICD-9; facts: of the columns whose kinds are not stated."""
    mixed = {
        name: own.near_numbers
        for name, own in facts.items()
        if own.near_numbers is not None and not has_id_name(name)
    }
    return _MIXED.finding(
        WARNING if mixed else PASSED,
        mixed,
        ", ".join(
            f"'{name}' is categorical: {near.share:.1%} of the values are numbers, others are "
            + ", ".join(map(repr, near.others[:_EXAMPLES]))
            for name, near in mixed.items()
        ),
        f"state that they are codes with --categorical {','.join(mixed)}, or name the texts that "
        "stand for missing values with --missing_values",
    )


def unsplit_lists(facts: Mapping[str, ColumnFacts]) -> Finding:
    """Returns which columns of texts look like lists with another separator, whose combinations
    are categories; facts: of the columns whose kinds are not stated."""
    unsplit = {n: own.unsplit_lists for n, own in facts.items() if own.unsplit_lists is not None}
    return _UNSPLIT.finding(
        WARNING if unsplit else PASSED,
        unsplit,
        ", ".join(
            f"'{name}': each combination such as {lists.example!r:.60} is one of "
            f"{facts[name].distinct:,} categories, of {lists.num_values:,} different values"
            for name, lists in unsplit.items()
        ),
        "write lists with ';' between the values, or as JSON arrays; if combinations are to be "
        f"categories, state it with --categorical {','.join(unsplit)}",
    )
