"""--min_rating, --missing_values, patterns of part files, and --nvidia_negatives."""

import numpy as np
import pytest
import yaml

from dataloading.spec.data_checks import NOTE, read_findings
from preproc.encoding.encoder import Encoder
from preproc.movielens.__main__ import main
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


def test_spellings_of_missing_values(tmp_path):
    """Other texts than the spellings of the flag are users, also for the encoder."""
    log = write(tmp_path / "r.csv", ["NULL,1,1,1", "NULL,2,1,2", "Ann,3,1,3", "Ann,4,1,4"])
    data_set = prepared(tmp_path, "--input", log, *FLAGS, "--missing_values", "=NA,-")
    assert data_set.values["user"] == ["Ann", "NULL"]
    assert Encoder.load(tmp_path / "prepared/encoder").missing_values == ("", "NA", "-")


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


ITEMS, TRAINED = 30, 25  # each user has all but 5 items, the last one held out


def test_nvidia_negatives(tmp_path):
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(40):
        items = [(user + i) % ITEMS for i in range(TRAINED + 1)]
        lines += [f"{user},{item},3.5,{1000 + time}" for time, item in enumerate(items)]
    (tmp_path / "ratings.csv").write_text("\n".join(lines) + "\n")
    flags = ["--input", str(tmp_path / "ratings.csv"), "--nvidia_negatives", "--seed", "1"]
    assert main([*flags, "--output", str(tmp_path / "out")]) == 0
    metadata = yaml.safe_load((tmp_path / "out/feature_spec.yaml").read_text())["metadata"]
    assert (metadata["seed"], metadata["test_samples_per_series"]) == (1, 101)
    users, items = (
        np.fromfile(tmp_path / f"out/test/{name}.bin", np.int32).reshape(40, -1)
        for name in ("user", "item")
    )
    np.testing.assert_array_equal(items[:, 0], (users[:, 0] + TRAINED) % ITEMS)
    # Only the items of train/ are left out, 25 of the 30.
    distances = (items[:, 1:] - users[:, 1:]) % ITEMS
    counts = np.bincount(distances.ravel(), minlength=ITEMS)
    assert not counts[:TRAINED].any(), "a negative is not in train/"
    np.testing.assert_allclose(counts[TRAINED:] / counts.sum(), 1 / 5, atol=0.03)
