"""Ratings to training rows and questions: by hand, against loops, on real logs."""

import gzip
import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.encoding.encoder import Encoder
from preproc.engines import open_engine as engines
from preproc.movielens.generate_ratings import RatingSizes, generate
from tests.preproc.movielens.movielens_reference import (
    CSV_HEADER,
    assert_same,
    prepared,
    rows_of,
    split,
)

# Users 9 and 10 are kept. User 10 saw movie 30 twice and, at the end, two movies at one time.
BY_HAND = f"""{CSV_HEADER}
10,30,4.0,50
9,7,1.0,300
9,200,1.0,10
10,100,0.5,70
9,100,5.0,100
10,30,2.0,90
10,8,3.0,70
11,55,3.0,1
11,55,3.0,2
9,30,3.5,200

10,7,3.5,60
"""


@pytest.fixture
def by_hand(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(BY_HAND)
    return path


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A log of 4,000 ratings by 60 users."""
    return generate(tmp_path_factory.mktemp("log"), RatingSizes(4000, 60, 300), 0)


def test_ratings_by_hand(tmp_path, by_hand, capsys):
    """Movies 7, 8, 30, 100, 200 are items 0 to 4; 55 is only user 11's, who is left out. User 10's
    movies 100 and 8 are of one time: 8, of the later row, is the last. Each user has one unseen
    item."""
    data_set = prepared(tmp_path, "--input", by_hand, "--min_ratings", 4, "--valid_negative", 1)
    assert data_set.values == {"item": ["7", "8", "30", "100", "200"], "user": ["9", "10"]}
    assert list(data_set.arrays) == ["train", "test"]
    assert list(data_set.arrays["train"]) == ["user", "item"]
    assert data_set.arrays["train"]["user"].tolist() == [0, 0, 0, 1, 1, 1]
    assert data_set.arrays["train"]["item"].tolist() == [4, 3, 2, 2, 0, 3]
    assert data_set.arrays["test"]["user"].tolist() == [0, 0, 1, 1]
    assert data_set.arrays["test"]["item"].tolist() == [0, 1, 1, 4]
    assert data_set.arrays["test"]["label"].tolist() == [True, False, True, False]
    features = data_set.spec.feature_spec
    assert features["user"] == {"dtype": "int32", "cardinality": 2}
    assert features["item"] == {"dtype": "int32", "cardinality": 5}
    assert features["label"] == {"dtype": "bool"}
    assert data_set.spec.channel_spec == {"user": ("user",), "item": ("item",), "label": ("label",)}
    counts = {"users": 2, "items": 5, "interactions": 8, "dropped_duplicates": 2}
    counts |= {"users_left_out": 1, "interactions_left_out": 1}
    encoder = Encoder.load(tmp_path / "prepared/encoder")
    rows = {"userId": ["10", "9.0"], "movieId": [200, 7]}
    ids = {name: values.tolist() for name, values in encoder.encode(rows).items()}
    assert ids == {"user": [[1], [0]], "item": [[4], [0]]}
    assert data_set.spec.metadata == {
        "encoder": encoder.digest,
        "made_by": "preproc.movielens",
        "source_form": "table",
        "seed": 0,
        "valid_negative": 1,
        "stored_negatives": [],
        "min_ratings": 4,
        "test_samples_per_series": 2,
        "counts": counts,
    }
    message = capsys.readouterr().out
    for part in ("users: 2 ", "items: 5 ", "users left out: 1 (", "train: 6 ", "test: 2 "):
        assert f"  {part}" in message


@pytest.mark.parametrize("num_held", [1, 2])
def test_split_against_loops(tmp_path, generated, num_held):
    rows = rows_of(generated)
    rows += random.Random(0).choices([(u, i, t - 5000) for u, i, t in rows], k=100)
    random.Random(1).shuffle(rows)
    log = tmp_path / "ratings.csv"
    log.write_text("\n".join([CSV_HEADER, *(f"{u},{i},3.0,{t}" for u, i, t in rows)]))
    flags = ["--input", log, "--min_ratings", 30, "--valid_negative", 50, "--threads", 2]
    data_set = prepared(tmp_path, *flags, *["--validation"][: num_held - 1])
    train, stored = split(rows, 30, num_held)
    assert 0 < len(stored) < 60
    assert_is(data_set, train, stored)


def assert_is(data_set, train, held_out):
    users, items = (list(map(int, data_set.values[kind])) for kind in ("user", "item"))
    assert users == sorted(held_out)
    held_items = {item for lists in held_out.values() for item in lists}
    assert items == sorted({item for _, item in train} | held_items)
    pairs = zip(data_set.arrays["train"]["user"], data_set.arrays["train"]["item"], strict=True)
    assert [(users[u], items[i]) for u, i in pairs] == train
    for place, split_name in enumerate(list(data_set.arrays)[1:]):
        user, lists = data_set.lists(split_name)
        assert user.tolist() == list(range(len(users)))
        assert [items[i] for i in lists[:, 0]] == [held_out[user][place] for user in users]
        data_set.check_negatives(split_name)


def test_forms_of_one_log(tmp_path, generated):
    """ratings.dat, gzip, carriage returns, Parquet, JSON lines, two files with other columns,
    quotes, fractions."""
    lines = generated.read_text().splitlines()[1:]
    plain = prepared(tmp_path, "--input", generated, "--valid_negative", 20)
    forms = tmp_path / "forms"
    forms.mkdir()
    for name in ("ratings.dat", "ratings.dat.gz"):
        data = "\r\n".join(line.replace(",", "::") for line in lines).encode()
        (forms / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        assert_same(plain, prepared(tmp_path, "--input", forms / name, "--valid_negative", 20))
    fields = [line.split(",") for line in lines]
    names = ("userId", "movieId", "rating", "timestamp")
    rows = [dict(zip(names, map(float, own), strict=True)) for own in fields]
    (forms / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    keys = {name: [int(row[name]) for row in rows] for name in names if name != "rating"}
    pq.write_table(pa.table(keys), forms / "log.parquet")
    for name in ("log.jsonl", "log.parquet"):
        assert_same(plain, prepared(tmp_path, "--input", forms / name, "--valid_negative", 20))
    first = ["what\twho\twhen", *(f'{i}\t"{u}"\t{t}.500' for u, i, _, t in fields[:1000])]
    second = ["when\textra\twho\twhat", *(f"{t}\t,\t{u}\t{i}" for u, i, _, t in fields[1000:])]
    (forms / "1.tsv").write_text("\ufeff" + "\n".join(first), encoding="utf-8")
    (forms / "2.tsv.gz").write_bytes(gzip.compress("\r\n".join(second).encode()))
    (forms / "ratings.csv").write_text(generated.read_text().replace("\n", "\r"), newline="")
    returns = prepared(tmp_path, "--input", forms / "ratings.csv", "--valid_negative", 20)
    assert_same(plain, returns)  # also after the header
    columns = ["--user_column", "who", "--item_column", "what", "--time_column", "when"]
    data_set = prepared(
        tmp_path,
        *("--input", forms / "1.tsv", forms / "2.tsv.gz"),
        *(*columns, "--valid_negative", 20),
    )
    assert_same(plain, data_set)


def test_seeds_memory_and_temp_dir(tmp_path, generated, monkeypatch):
    """Seeds change only negatives; threads, memory and the spill folder change nothing. Negatives
    of test and validation differ."""
    flags = ["--input", generated, "--validation"]
    first = prepared(tmp_path, *flags)
    (tmp_path / "spill").mkdir()
    folders = []

    def open_engine(name, scratch, **settings):
        folders.append(scratch)
        return engines.open_engine(name, scratch, **settings)

    monkeypatch.setattr("preproc.interactions.prepare.open_engine", open_engine)
    more = ["--threads", 1, "--memory_limit", "384MiB", "--temp_dir", tmp_path / "spill"]
    assert_same(first, prepared(tmp_path, *flags, *more))
    assert not any((tmp_path / "spill").iterdir())
    assert first.spec.metadata["test_samples_per_series"] == 101
    other = prepared(tmp_path, *flags, "--seed", 1)
    assert folders[0].parent == tmp_path / "spill"
    assert folders[1].parent.name.startswith(".prepared.")  # the later output
    assert other.spec.metadata["seed"] == 1
    lists = [
        data_set.lists(name)[1] for data_set in (first, other) for name in ("test", "validation")
    ]
    assert np.array_equal(lists[0][:, 0], lists[2][:, 0])
    for one, another in ((0, 1), (0, 2), (1, 3)):
        assert not np.array_equal(lists[one][:, 1:], lists[another][:, 1:])
    assert np.array_equal(first.arrays["train"]["item"], other.arrays["train"]["item"])


def test_movielens_latest_small(tmp_path, root):
    """The real log: 610 users with 20 ratings or more, no duplicates, many equal times; it is
    sorted by user and movie."""
    folder = root.parent / "shared/data/movielens_latest_small"
    if not folder.is_dir():
        pytest.skip(f"the real ratings are not there: {folder}")
    data_set = prepared(tmp_path, "--path", folder, "--validation")
    assert list(data_set.spec.metadata["counts"].values()) == [610, 9724, 100_836, 0, 0, 0]
    assert_is(data_set, *split(rows_of(folder / "ratings.csv"), 20, 2, True))
