"""Events of one user at one time, whose order decides which of them is held out."""

import math
from dataclasses import dataclass

from preproc.checks.report import NOTE, PASSED, Finding, Kind

_LEAST_SHARE, _LEAST_ERRORS = 0.75, 5  # of pairs in the order of their items
_NOTED_SHARE = 0.01
_KIND = Kind(
    "tied_events",
    "the log does not have the order of events at the same time; the last one is held out",
)


@dataclass(frozen=True)
class TiedEvents:
    """Numbers of tied events, and of those whose order in the log follows from their items.

    Attributes:
        events: of the log, or of a sample.
        tied: events with another one of their user and time.
        pairs: neighbours among the tied events, in the order of the log.
        ascending: pairs whose second item is the larger one: as a number, or by its bytes.
        predictable: pairs whose items have different mean places in other ties.
        predicted: of these, pairs whose second item is the one that comes later in other ties.
    """

    events: int
    tied: int
    pairs: int
    ascending: int
    predictable: int
    predicted: int

    @property
    def of_items(self) -> str:
        """The order of the log if it follows from the items, for messages; or empty."""
        rules = (
            ("in ascending order", self.ascending, self.pairs),
            ("in descending order", self.pairs - self.ascending, self.pairs),
            ("in the same order everywhere", self.predicted, self.predictable),
        )
        for rule, count, num in rules:
            errors = (2 * count - num) / math.sqrt(max(num, 1))
            if count > _LEAST_SHARE * num and errors > _LEAST_ERRORS:
                return f"{count / num:.0%} of {num:,} pairs have their items {rule}"
        return ""

    def finding(self) -> Finding:
        """Returns the check of the ties."""
        share = self.tied / max(self.events, 1)
        order = "They keep the order of their rows"
        if self.of_items:
            order = f"The log has them by item, not by time ({self.of_items}), so that a hash of"
            order += " --seed and the row orders them"
        return _KIND.finding(
            NOTE if share >= _NOTED_SHARE else PASSED,
            seen=f"{share:.1%} of the events have the user and time of another one. {order}",
            remedy="if the log has finer times, name that column",
        )
