"""Findings of checks: short users, lists, drift; the report, --strict and the stored findings."""

import pytest

from dataloading.spec.data_checks import read_findings
from dataloading.spec.feature_spec import FeatureSpec
from preproc.checks.drift import amount_of_move
from preproc.checks.report import NOTE, PASSED, WARNING, Kind, Report
from preproc.histories.__main__ import main as histories
from preproc.interactions.__main__ import main as interactions
from tests.preproc.transcode.test_transcode import run

# 4 users with 20 events each, 10 with 6 each, and items that none of them has: 38% of the events.
_EVENTS = {user: range(20 if user < 4 else 6) for user in range(14)} | {99: range(30, 50)}
LOG = "user_id,item_id,time\n" + "".join(
    f"{user},{item},{item}\n" for user, items in _EVENTS.items() for item in items
)


@pytest.mark.parametrize(
    ("command", "flags"),
    [(interactions, ["--valid_negative=1", "--input"]), (histories, ["--interactions"])],
)
def test_left_out_events(command, flags, tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text(LOG)

    def findings(least):
        output = tmp_path / str(least)
        assert command([*flags, str(log), f"--min_events={least}", f"--output={output}"]) == 0
        return [finding for finding in read_findings(output) if finding.check == "short_users"]

    (finding,) = findings(20)
    assert finding.level == "warning" and "60 of 160 events (37.5%)" in finding.seen
    assert "10 of 15 users" in finding.seen and "5 keeps more" in finding.remedy
    assert not findings(5)
    strict = ["--min_events=20", "--strict", f"--output={tmp_path / 'strict'}"]
    assert command([*flags, str(log), *strict]) == 2
    assert "short_users" in capsys.readouterr().err


LISTS = ("Drama", "Drama|War", "War|Drama|Comedy", "Comedy|War")


def test_remedies_of_unsplit_lists(tmp_path):
    path, flags = tmp_path / "films.csv", ("--label=liked", "--strict")
    rows = (f"{LISTS[i % 4]},c{i % 5},{i % 3 % 2}" for i in range(60))
    path.write_text("\n".join(["genres,city,liked", *rows]) + "\n")
    assert run(path, "--label=liked", output=tmp_path / "a") == 0
    (finding,) = (f for f in read_findings(tmp_path / "a") if f.check == "unsplit_lists")
    assert finding.columns == ("genres",) and "'Comedy|War' is one of 4 categories" in finding.seen
    assert "of 3 different values" in finding.seen
    assert run(path, *flags, output=tmp_path / "x") == 2
    assert run(path, *flags, "--categorical=genres", output=tmp_path / "b") == 0
    path.write_text(path.read_text().replace("|", ";"))
    assert run(path, *flags, output=tmp_path / "c") == 0
    assert FeatureSpec.from_yaml(tmp_path / "c/feature_spec.yaml").hotness("genres") == 3


@pytest.mark.parametrize(
    ("rows", "distance", "outside", "is_moved"),
    [
        *((9, 1.0, 0.0, False), (10, 0.96, 0.0, True), (100, 0.4, 0.0, False)),
        *((10_000, 0.3, 0.0, True), (1000, 0.0, 0.02, True), (1000, 0.0, 0.001, False)),
    ],
)
def test_few_rows_must_move_farther(rows, distance, outside, is_moved):
    assert (amount_of_move(rows, 1000, 0.0, distance, outside) >= 1) == is_moved


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
