"""Report of all checks of a run.

TIES = Kind("tied_events", "the log does not have the order of events at the same time")
report = Report((TIES.finding(NOTE, seen="12% of the events share a time", remedy="finer times"),))
report.refuse_warnings(flags.strict)
report.write(folder)
print(report.text())
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dataloading.spec.data_checks import NOTE, WARNING, Finding, write_findings

PASSED = "passed"  # level of a check that found nothing
STRICT_HELP = "end with an error, and write nothing, where a check of the data warns"
_MOST_OF_A_CHECK = 5  # findings of one check that are printed; all are stored
_LEVELS = (WARNING, NOTE)


class Kind(NamedTuple):
    """Kind of fault: its name, and why it matters, a clause such as "it is known by heart"."""

    name: str
    why: str

    def finding(
        self, level: str, columns: Sequence[str] = (), seen: str = "", remedy: str = ""
    ) -> Finding:
        """Returns what a check found.

        Args:
            level: `PASSED`, `NOTE` for what is taken care of, or `WARNING` for what a user shall
                decide.
            columns: those concerned; empty for whole rows.
            seen: measured values, with numbers.
            remedy: advice that helps; a test follows it and sees that it helps.
        """
        return Finding(self.name, level, tuple(columns), seen, self.why, remedy)


@dataclass(frozen=True)
class Report:
    """The checks of a run.

    Attributes:
        checks: what they found; several of one kind are possible, such as one per column.
    """

    checks: tuple[Finding, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """Findings, warnings first, then notes."""
        findings = [check for check in self.checks if check.level != PASSED]
        return sorted(findings, key=lambda finding: _LEVELS.index(finding.level))

    @property
    def passed(self) -> list[str]:
        """Names of the kinds that found nothing."""
        failed = {finding.check for finding in self.findings}
        names = dict.fromkeys(finding.check for finding in self.checks)
        return [name for name in names if name not in failed]

    def text(self) -> str:
        """Returns the report for people: a line of counts, and some for each finding."""
        findings = self.findings
        counts = [f"{len(self.passed)} passed"]
        for level in _LEVELS:
            if number := sum(finding.level == level for finding in findings):
                counts.append(f"{number} {level}{'s' * (number > 1)}")
        lines = [f"checks: {', '.join(counts)}"]
        for name in dict.fromkeys(finding.check for finding in findings):
            lines += _lines([finding for finding in findings if finding.check == name])
        return "\n".join(lines)

    def refuse_warnings(self, is_strict: bool) -> None:
        """Raises ValueError with all warnings if there are any and `is_strict`."""
        texts = [
            f"{finding.check}: {finding.seen}: {finding.remedy}"
            for finding in self.findings
            if finding.level == WARNING
        ]
        if is_strict and texts:
            raise ValueError(f"--strict: {len(texts)} checks warn:\n  " + "\n  ".join(texts))

    def write(self, folder: Path) -> None:
        """Writes `checks.json` to a data set."""
        write_findings(folder, self.findings, self.passed)


def _lines(findings: list[Finding]) -> Iterable[str]:
    """Yields the lines on the findings of one kind."""
    for finding in findings[:_MOST_OF_A_CHECK]:
        yield f"  {finding.level}: {finding.seen}" + f": {finding.remedy}" * bool(finding.remedy)
    if len(findings) > _MOST_OF_A_CHECK:
        more = len(findings) - _MOST_OF_A_CHECK
        yield f"  {findings[0].level}: {more} more like these: see checks.json"
    yield f"    ({findings[0].why})"
