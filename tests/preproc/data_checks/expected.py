"""Expectations of a cell of the table: right, warned or refused."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.preproc.data_checks.places import Outcome, Place, is_of_scores
from tests.preproc.data_checks.tables import Table

Write = Callable[[Place, Path], Path]  # writes the input of a place into a folder


def of_table(table: Table) -> Write:
    return lambda place, folder: place.write(folder, table)


@dataclass(frozen=True)
class Right:
    """The input is read as another one is."""

    equal: Write
    finding: str = ""
    rows_only: bool = False
    flags: tuple[str, ...] = ()

    def check(self, place: Place, outcome: Outcome, folder: Path, flags: tuple[str, ...]) -> None:
        assert outcome.status == 0, outcome.errors
        path = self.equal(place, folder / "equal")
        own = [flag.format(folder=folder) for flag in self.flags]
        other = place.run(path, folder / "equal_out", *own)
        assert other.status == 0, other.errors
        results = [o.rows() if self.rows_only else o.result() for o in (outcome, other)]
        assert results[0].keys() == results[1].keys()
        different = [name for name, own in results[0].items() if own != results[1][name]]
        assert not different
        if not is_of_scores(place):
            names = {f.check for f in outcome.findings} - {f.check for f in other.findings}
            assert names == ({self.finding} if self.finding else set()), outcome.findings


@dataclass(frozen=True)
class Reads:
    """The input is read with certain results, and no warning."""

    rule: Callable[[Outcome], bool]

    def check(self, place: Place, outcome: Outcome, folder: Path, flags: tuple[str, ...]) -> None:
        assert outcome.status == 0, outcome.errors
        assert self.rule(outcome), (outcome.output, outcome.errors)
        assert not [f for f in outcome.findings if f.level == "warning"]


@dataclass(frozen=True)
class Reported:
    """A check warns, so that --strict refuses, or notes what the preparation took care of."""

    check_name: str
    column: str = ""
    level: str = "warning"
    remedy: tuple[str, ...] = ()

    def check(self, place: Place, outcome: Outcome, folder: Path, flags: tuple[str, ...]) -> None:
        assert outcome.status == 0, outcome.errors
        assert f"{self.level}: " in outcome.output + outcome.errors
        if not is_of_scores(place):
            findings = [f for f in outcome.findings if f.check == self.check_name]
            assert findings, outcome.findings
            assert not self.column or any(self.column in f.columns for f in findings), findings
            assert {f.level for f in findings} == {self.level}
        path = next((folder / "input").iterdir())
        if self.level == "warning":
            strict = place.run(path, folder / "strict", *flags, "--strict")
            assert strict.status == 2
            assert f"{self.check_name}: " in strict.errors, strict.errors
            assert not strict.folder.exists()
        if self.remedy:
            after = place.run(path, folder / "after", *flags, *self.remedy)
            assert after.status == 0, after.errors
            assert self.check_name not in [f.check for f in after.findings]


@dataclass(frozen=True)
class Refused:
    """The command ends with an error that names the cause."""

    words: tuple[str, ...]
    remedy: tuple[str, ...] = ()
    fixed: Write | None = None

    def check(self, place: Place, outcome: Outcome, folder: Path, flags: tuple[str, ...]) -> None:
        assert outcome.status == 2, outcome.output
        errors = [line for line in outcome.errors.splitlines() if "error: " in line]
        assert len(errors) == 1, outcome.errors
        assert "Traceback" not in outcome.errors
        lacking = [word for word in self.words if word not in outcome.errors]
        assert not lacking, outcome.errors
        assert not outcome.folder.exists()
        if self.remedy:
            path = next((folder / "input").iterdir())
            after = place.run(path, folder / "after", *flags, *self.remedy)
            assert after.status == 0, after.errors
        if self.fixed:
            path = self.fixed(place, folder / "fixed")
            after = place.run(path, folder / "after_fix", *flags)
            assert after.status == 0, after.errors


Expected = Right | Reads | Reported | Refused


@dataclass(frozen=True)
class Cell:
    kind: str
    member: str
    place: str
    write: Write
    expected: Expected
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.member}-{self.place}"
