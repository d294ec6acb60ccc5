"""The report of checks: counts, text, --strict and the stored findings."""

import pytest

from dataloading.spec.data_checks import read_findings
from preproc.checks.report import NOTE, PASSED, WARNING, Kind, Report


def wheels(level, number=4, name="wheels"):
    kind = Kind(name, "it does not roll")
    return kind.finding(level, ("axle",), f"{number} wheels", f"mount {4 - number}")


REPORT = Report(
    (
        *(wheels(PASSED), wheels(NOTE, 3)),
        *(wheels(PASSED, name="doors"), wheels(WARNING, 1, "doors")),
        wheels(PASSED, name="roof"),
    )
)


def test_text_of_findings():
    """Counts, then each finding with its reason; many of one kind are shortened."""
    first, *lines = REPORT.text().splitlines()
    assert first == "checks: 1 passed, 1 warning, 1 note" and len(lines) == 4
    assert "warning: 1 wheels: mount 3" in lines[0] and "it does not roll" in lines[1]
    assert Report((wheels(PASSED), wheels(PASSED, name="roof"))).text() == "checks: 2 passed"
    lines = Report(tuple(wheels(WARNING, 10 + i) for i in range(9))).text().splitlines()
    assert len(lines) == 8 and "4 more like these" in lines[-2]


def test_strict_refuses_warnings_alone():
    REPORT.refuse_warnings(False)
    Report((wheels(NOTE),)).refuse_warnings(True)
    with pytest.raises(ValueError, match="--strict: 1 checks warn:\n  doors: 1 wheels: mount 3$"):
        REPORT.refuse_warnings(True)


def test_stored_findings(tmp_path):
    assert read_findings(tmp_path) == []
    REPORT.write(tmp_path)
    warning, note = read_findings(tmp_path)
    assert warning == REPORT.findings[0]
    assert (note.check, note.level, note.columns) == ("wheels", NOTE, ("axle",))
    (tmp_path / "checks.json").write_text("{")
    with pytest.raises(ValueError, match="checks.json: expected the findings"):
        read_findings(tmp_path)
