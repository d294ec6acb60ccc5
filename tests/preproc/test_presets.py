"""Preparations of any log, and their presets."""

import filecmp

import pytest

from preproc.amazon_books.__main__ import main as amazon_books
from preproc.histories.__main__ import main as histories
from preproc.interactions.__main__ import main as interactions
from preproc.movielens.__main__ import main as movielens

RATINGS = ("--min_ratings=3", "--valid_negative=2", "--input")
COLUMNS = ("--user_column=userId", "--item_column=movieId", "--timestamp_column=timestamp")
EVENTS = ("--min_events=3", "--interactions")


@pytest.mark.parametrize(
    ("header", "preset", "preparation", "flags"),
    [
        ("userId,movieId,timestamp", (movielens,), (interactions, *COLUMNS), RATINGS),
        ("user_id,item_id,time", (amazon_books, "--input_format=tables"), (histories,), EVENTS),
    ],
    ids=["movielens", "amazon_books"],
)
def test_presets(header, preset, preparation, flags, tmp_path):
    log = tmp_path / "log.csv"
    rows = [f"{u},{(u * n) % 11},{n}" for u in range(1, 6) for n in range(1, 8)]
    log.write_text("\n".join([header, *rows]) + "\n")
    for name, (command, *own) in (("a", preset), ("b", preparation)):
        assert command([*flags, str(log), *own, f"--output={tmp_path / name}"]) == 0
    files = ["feature_spec.yaml", "encoder/encoder.json"]
    assert filecmp.cmpfiles(tmp_path / "a", tmp_path / "b", files, False)[0] == files
