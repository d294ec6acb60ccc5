"""The NCF paper's files: unchanged, with one more interaction held out, and errors."""

import gzip
import re

import pytest

from preproc.interactions import paper_files
from preproc.movielens.__main__ import main
from tests.preproc.movielens.movielens_reference import assert_same, prepared

# User 1 is in no question, user 2 in no training; the second question repeats its positive and a
# negative; (0, 3) occurs twice; the largest item is a negative.
TRAIN = "0\t3\t5\t100\n0\t1\t4\t90\n0\t3\t1\t80\n1\t2\t3\t70\n3\t0\t1\t5\n3\t2\t2\t5\n3\t3\t2\t5\n"
TEST = "0\t2\t5\t110\n2\t4\t5\t1\n3\t5\t1\t1\n"
NEGATIVE = "(0,2)\t5\t6\t4\n(2,4)\t4\t7\t7\n(3,5)\t1\t4\t6\n"


def write(folder, train=TRAIN, test=TEST, negative=NEGATIVE, name="x.train.rating"):
    (folder / name).write_text(train)
    (folder / "x.test.rating").write_text(test)
    (folder / "x.test.negative").write_text(negative)
    return folder / name


def test_files_by_hand(tmp_path):
    """Blank lines mean nothing."""
    blank = "\n  \n \t\n"
    path = write(tmp_path, TRAIN + blank, TEST + blank, NEGATIVE + blank)
    data_set = prepared(tmp_path, "--input", path)
    assert data_set.arrays["train"]["user"].tolist() == [0, 0, 1, 3, 3, 3]
    assert data_set.arrays["train"]["item"].tolist() == [3, 1, 2, 0, 2, 3]
    users, items = data_set.lists("test")
    assert users.tolist() == [0, 2, 3]
    assert items.tolist() == [[2, 5, 6, 4], [4, 4, 7, 7], [5, 1, 4, 6]]
    assert [data_set.spec.cardinality(name) for name in ("user", "item")] == [4, 8]
    assert data_set.values == {}
    assert data_set.spec.metadata == {
        "made_by": "preproc.movielens",
        "source_form": "ncf",
        "seed": 0,
        "valid_negative": 3,
        "stored_negatives": ["test"],
        "test_samples_per_series": 4,
        "counts": {
            "users": 4,
            "items": 8,
            "interactions": 9,
            "dropped_duplicates": 1,
            "test_positives_in_train": 0,
            "test_negatives_in_train": 0,
        },
    }


def test_equivalent_forms(tmp_path):
    """Pairs alone, gzip, carriage returns, empty lines, a tab at the end of negatives; the folder
    instead of the file."""
    first = prepared(tmp_path, "--input", write(tmp_path))
    pairs = "".join("\t".join(line.split("\t")[:2]) + "\r\n" for line in TRAIN.splitlines())
    folder = tmp_path / "other"
    folder.mkdir()
    negative = NEGATIVE.replace("\n", "\t\n\n")
    write(folder, pairs, TEST + "\n", negative, "x.train.pairs.tsv")
    for name in ("x.train.pairs.tsv", "x.test.negative"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    other = prepared(tmp_path, "--input", folder)
    assert_same(other, first)


def test_validation(tmp_path):
    """Users 0 and 3 have two or more training rows; each is held out equally often."""
    write(tmp_path)
    chosen = []
    for seed in range(8):
        flags = ("--validation", "--seed", seed, "--valid_negative", 2)
        data_set = prepared(tmp_path, "--input", tmp_path, *flags)
        users, items = data_set.lists("validation")
        assert users.tolist() == [0, 3]
        assert items.shape == (2, 3)
        data_set.check_negatives("validation")
        kept = data_set.training_pairs()
        stored = list(zip(users.tolist(), items[:, 0].tolist(), strict=True))
        whole = [(0, 3), (0, 1), (1, 2), (3, 0), (3, 2), (3, 3)]
        assert kept == [pair for pair in whole if pair not in stored]
        assert set(stored) <= set(whole)
        chosen += stored
    counts = [chosen.count(pair) for pair in [(0, 3), (0, 1), (3, 0), (3, 2), (3, 3)]]
    assert sum(counts) == 16 and min(counts) > 0
    assert data_set.spec.metadata["validation"].startswith("any training interaction of each user")
    assert data_set.spec.metadata["stored_negatives"] == ["test"]
    # The default is the number of negatives of a test candidate list.
    data_set = prepared(tmp_path, "--input", tmp_path, "--validation")
    assert data_set.spec.metadata["validation_samples_per_series"] == 4


def test_trained_candidate_list(tmp_path, capsys, monkeypatch):
    """A positive in the training rows and a repeated positive each count as one touched item."""
    monkeypatch.setattr(paper_files, "_LISTS", 3)  # at a time
    write(
        tmp_path,
        train=TRAIN + "0\t2\t1\t1\n3\t7\t1\t1\n",
        test=TEST + "3\t5\t1\t1\n",
        negative=NEGATIVE.replace("(3,5)\t1\t4", "(3,5)\t0\t3") + "(3,5)\t7\t4\t6\n",
    )
    data_set = prepared(tmp_path, "--input", tmp_path, "--validation")
    data_set.check_negatives("validation")
    assert data_set.lists("test")[0].tolist() == [0, 2, 3, 3]
    counts = data_set.spec.metadata["counts"]
    # Of training 8 after duplicates; of questions (2, 4) and (3, 5).
    assert counts["interactions"] == 10
    assert counts["test_positives_in_train"] == 1  # (0, 2)
    assert counts["test_negatives_in_train"] == 3  # (3, 0), (3, 3), (3, 7)
    messages = capsys.readouterr().out
    assert "  test positives in train: 1\n  test negatives in train: 3\n" in messages


def test_lastfm(tmp_path, root):
    """The prepared real files agree with their text."""
    folder = root.parent / "shared/data/ncf_lastfm"
    if not folder.is_dir():
        pytest.skip(f"the real interactions are not there: {folder}")
    data_set = prepared(tmp_path, "--input", folder, "--validation")
    counts = {"users": 1741, "items": 2665, "interactions": 69_149, "dropped_duplicates": 0}
    counts |= {"test_positives_in_train": 0, "test_negatives_in_train": 2434}
    assert data_set.spec.metadata["counts"] == counts
    train = [
        tuple(map(int, line.split("\t")[:2]))
        for line in (folder / "lastfm.train.rating").read_text().splitlines()
    ]
    users, items = data_set.lists("validation")
    stored = set(zip(users.tolist(), items[:, 0].tolist(), strict=True))
    assert len(stored) == 1741
    assert data_set.training_pairs() == [pair for pair in train if pair not in stored]
    data_set.check_negatives("validation")
    users, items = data_set.lists("test")
    lines = (folder / "lastfm.test.negative").read_text().splitlines()
    for line, user, row in zip(lines, users, items.tolist(), strict=True):
        pair, *negatives = line.split("\t")
        assert (f"({user},{row[0]})", row[1:]) == (pair, list(map(int, negatives)))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("train", "0\t1\n0\n", r"x\.train\.rating: .*Row #2"),
        ("train", "0\t-1\n", "row 1: id -1"),
        ("train", "0\t2147483648\n", "row 1: id 2147483648"),
        ("train", "", r"x\.train\.rating: Empty CSV file"),
        ("train", "0\t1\n0\tx\n", r"x\.train\.rating: .*'x'"),
        ("negative", "(0,2)\t5\t6\t4\n(2;4)\t1\t1\t1\n", r"x\.test\.negative"),
        ("negative", NEGATIVE.replace("(0,2)", "(0,3)"), r"row 1: .* user 0 and item 3, .*test\.r"),
        ("negative", NEGATIVE + "(3,5)\t1\t4\t6\n", "4 rows, and .* 3 rows"),
        ("negative", "(0,2)\t5\t6\t4\n(2,4)\t4\n", "Row #2: Expected 4 columns, got 2"),
    ],
)
def test_invalid_files(tmp_path, capsys, file, text, message):
    path = write(tmp_path, **{file: text})
    assert main(["--input", str(path), "--output", str(tmp_path / "out")]) == 2
    assert re.search(f"error: .*{message}", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("train", "flags", "message"),
    [
        (TRAIN, ["--valid_negative", "5"], "user 3 touched 4 of 8 items"),
        ("0\t1\n1\t2\n", [], "--validation"),
    ],
)
def test_missing_validation_users(tmp_path, capsys, train, flags, message):
    path = write(tmp_path, train=train)
    flags = ["--input", str(path), "--output", str(tmp_path / "out"), "--validation", *flags]
    assert main(flags) == 2
    assert message in capsys.readouterr().err
