"""Users with few events, which preparations leave out."""

import pytest

from dataloading.spec.data_checks import read_findings
from preproc.histories.__main__ import main as histories
from preproc.interactions.__main__ import main as interactions

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
