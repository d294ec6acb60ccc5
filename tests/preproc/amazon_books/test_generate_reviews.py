"""Generated reviews: contents of the lines, reproducibility, predictive histories."""

import ast
import gzip
import itertools
import json
from collections import Counter, defaultdict

import numpy as np
import pytest

from preproc.amazon_books.generate_reviews import METADATA, REVIEWS, main


def run(folder, *flags):
    assert main(["--output", str(folder), *map(str, flags)]) == 0
    return folder


def records(path, read=json.loads):
    return [read(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return run(tmp_path_factory.mktemp("raw"), "--reviews", 10_000, "--categories", 20)


def test_reviews(folder):
    reviews = records(folder / REVIEWS)
    assert len(reviews) == 10_000
    assert {review["overall"] for review in reviews} == {1.0, 2.0, 3.0, 4.0, 5.0}
    times = np.array([review["unixReviewTime"] for review in reviews])
    dates = times.astype("datetime64[s]").astype("datetime64[D]")
    assert [review["reviewTime"] for review in reviews] == [
        date.item().strftime("%m %d, %Y") for date in dates
    ]
    asins = [review["asin"] for review in reviews]
    blocks = 1 + sum(a != b for a, b in itertools.pairwise(asins))
    assert blocks == len(set(asins))  # by item
    text = " ".join(review["reviewText"] for review in reviews)
    for word in ('"masterpiece"', "don't", "café", "漢字", "back\\slash", "😀"):
        assert word in text


@pytest.mark.parametrize("literal", [False, True], ids=["JSON", "Python"])
def test_metadata(tmp_path, literal):
    flags = ["--literal_metadata"] if literal else []
    run(tmp_path, "--reviews", 2000, "--items", 1000, "--categories", 6, *flags)
    lines = records(tmp_path / METADATA, ast.literal_eval if literal else json.loads)
    assert 970 <= len(lines) < 1000  # some have none
    last = Counter(line["categories"][-1][-1] for line in lines)
    assert len(last) == 6
    assert {"Children's Books 0", 'The "Classics" 3', "Café 5"} <= set(last)
    assert {len(line["categories"]) for line in lines} == {1, 2}
    known = {line["asin"] for line in lines}
    seen = [review["asin"] in known for review in records(tmp_path / REVIEWS)]
    assert 0.9 < np.mean(seen) < 1.0


def test_predictive_history(folder):
    """The category of a user's last review is the next one's far more often than by chance."""
    category = {line["asin"]: line["categories"][-1][-1] for line in records(folder / METADATA)}
    histories = defaultdict(list)
    for review in records(folder / REVIEWS):
        name = category.get(review["asin"])
        histories[review["reviewerID"]].append((review["unixReviewTime"], name))
    pairs, other = [], []
    everybody = [name for history in histories.values() for _, name in history]
    for history in histories.values():
        names = [name for _, name in sorted(history, key=lambda event: event[0])]
        pairs += [a == b for a, b in itertools.pairwise(names)]
        other += [a == b for a, b in zip(names, everybody, strict=False)]
    assert np.mean(pairs) > 2 * np.mean(other)


def test_seeds_and_gzip(tmp_path):
    """Equal seeds give equal bytes, with gzip equal lines; different seeds differ."""
    sizes = ("--reviews", 300)
    run(tmp_path / "a", *sizes)
    run(tmp_path / "b", *sizes, "--gzip")
    run(tmp_path / "c", *sizes, "--gzip")
    run(tmp_path / "d", *sizes, "--seed", 1)
    for name in (REVIEWS, METADATA):
        plain = (tmp_path / "a" / name).read_bytes()
        packed = (tmp_path / "b" / f"{name}.gz").read_bytes()
        assert gzip.decompress(packed) == plain
        assert packed[4:8] == bytes(4)  # no time
        assert (tmp_path / "c" / f"{name}.gz").read_bytes() == packed
        assert (tmp_path / "d" / name).read_bytes() != plain
