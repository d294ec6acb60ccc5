"""--min_rating, and patterns of part files."""

import pytest

from dataloading.spec.data_checks import NOTE, read_findings
from tests.preproc.movielens.movielens_reference import CSV_HEADER, prepared

FLAGS = ("--min_ratings", 2, "--valid_negative", 1)


def lines(users):
    """Items 1 to 5 of each user, rated 0.5 to 4.5, at the same time; the last items are 9 and 8."""
    rows = [f"{u},{i},{i - 0.5},7" for u in users for i in range(1, 6)]
    return [*rows, *(f"{u},{9 - u % 2},5,8" for u in users)]


def write(path, rows, header=CSV_HEADER):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize("form", ["csv", "dat"])
def test_least_rating(tmp_path, form):
    """Three of six items of each user count: those rated 3.5, 4.5 and 5."""
    log = write(tmp_path / "r.csv", lines(range(4)))
    if form == "dat":
        rows = "\n".join(lines(range(4))).replace(",", "::")
        log = tmp_path / "r.dat"
        log.write_text(rows + "\n")
    data_set = prepared(tmp_path, "--input", log, *FLAGS, "--min_rating", 3.5)
    assert data_set.values["item"] == ["4", "5", "8", "9"]
    counts = data_set.spec.metadata["counts"]
    assert (counts["interactions"], counts["below_min_rating"]) == (12, 12)
    assert counts["dropped_duplicates"] == 0
    assert data_set.spec.metadata["min_rating"] == 3.5


def test_part_files(tmp_path):
    (tmp_path / "log").mkdir()
    rows = [f"{u},{i},1,7" for u in range(3) for i in (3, 1, 2)]
    for part, user in ((10, 2), (2, 1), (1, 0)):
        write(tmp_path / f"log/part-{part}.csv", rows[3 * user : 3 * user + 3])
    write(tmp_path / "log/part-11.csv", ["0,4,1,6", "1,5,1,6", "2,6,1,6"])
    data_set = prepared(tmp_path, "--input", tmp_path / "log/part-*.csv", *FLAGS)
    assert data_set.arrays["test"]["item"][::2].tolist() == [1, 1, 1]
    (finding,) = read_findings(tmp_path / "prepared")
    assert (finding.check, finding.level) == ("tied_events", NOTE)
    assert finding.seen.startswith("75.0% of the events")
