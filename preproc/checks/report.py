"""Checks of data, and the report of all checks of a run.

report = Report((RepeatedRows("test", rows=500, repeated=60), TiedEvents(...)))
report.refuse_warnings(flags.strict)
report.write(folder)
print(report.text())
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dataloading.spec.data_checks import NOTE, WARNING, Finding, write_findings

PASSED = "passed"
STRICT_HELP = "end with an error, and write nothing, where a check of the data warns"
_MOST_OF_A_CHECK = 5  # findings of one check that are printed; all are stored
_LEVELS = (WARNING, NOTE)


class Check(ABC):
    """Measurement of one kind of fault; a subclass for each kind.

    Attributes:
        name: of the kind.
        why: why the fault matters, a clause such as "the model learns it by heart".
    """

    name: ClassVar[str]
    why: ClassVar[str]

    @property
    @abstractmethod
    def level(self) -> str:
        """`PASSED`, `NOTE` for what is taken care of, or `WARNING` for what a user shall decide."""

    @property
    @abstractmethod
    def seen(self) -> str:
        """Measured values, with numbers."""

    @property
    @abstractmethod
    def remedy(self) -> str:
        """Advice that helps; a test follows it and sees that it helps."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns concerned; empty for whole rows."""
        return ()

    def finding(self) -> Finding:
        """Returns the check as it is stored."""
        return Finding(self.name, self.level, self.columns, self.seen, self.why, self.remedy)


@dataclass(frozen=True)
class Report:
    """The checks of a run.

    Attributes:
        checks: measurements; several of one kind are possible, such as one per column.
    """

    checks: tuple[Check, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """Findings, warnings first, then notes."""
        findings = [check.finding() for check in self.checks if check.level != PASSED]
        return sorted(findings, key=lambda finding: _LEVELS.index(finding.level))

    @property
    def passed(self) -> list[str]:
        """Names of the kinds that found nothing."""
        failed = {finding.check for finding in self.findings}
        names = dict.fromkeys(check.name for check in self.checks)
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
