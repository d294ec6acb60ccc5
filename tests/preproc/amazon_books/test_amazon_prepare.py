"""Whole preparations against a slow one, and by hand."""

import gzip
import importlib.util
import json
import random
from pathlib import Path

import pytest

from dataloading.histories.dataset import SequenceDataset
from dataloading.spec.feature_spec import FeatureSpec
from preproc.amazon_books import parquet_to_tfrecord
from preproc.encoding.encoder import Encoder
from preproc.histories import samples
from preproc.histories.prepare import prepare
from tests.preproc.amazon_books import amazon_reference as reference
from tests.preproc.amazon_books.amazon_reference import parse

ROOT = Path(__file__).parents[3]
NAMES = ["user_id", "item_id_trgt", "cat_id_trgt"]
ENGINES = ["duckdb", pytest.param("nvtabular", marks=pytest.mark.engines("nvtabular"))]


def review(user, item, time, **more):
    return json.dumps({"reviewerID": user, "asin": item, **more, "unixReviewTime": time})


def write_raw(folder, events, categories, *, literal=False, compress=False):
    """Reviews and metadata; categories: item -> name, or None for a line without any."""
    folder.mkdir()
    reviews = "".join(review(*event, reviewText="long 'text'") + "\n" for event in events)
    lines = []
    for item, name in categories.items():
        fields = {"asin": item, "title": "It's", "price": None}
        if name is not None:
            fields["categories"] = [["Books", "Other"], ["Books", name]]
        lines.append(repr(fields) if literal else json.dumps(fields))
    for name, text in (("reviews_B", reviews), ("meta_B", "\n".join(lines) + "\n")):
        if compress:
            (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{name}.json").write_text(text)
    return folder


def run(output, *flags):
    rows = prepare(parse(["--output_path", str(output), "--engine", "duckdb", *map(str, flags)]))
    result = reference.rows_of(output)
    assert {name: 2 * number for name, number in rows.items()} == {
        name: len(split) for name, split in result.items()
    }
    return result


def cardinalities(output):
    spec = FeatureSpec.from_yaml(output / "feature_spec.yaml")
    names = [*spec.channel("user_features"), *spec.channel("target_item_features")]
    return names, [spec.cardinality(name) for name in names]


def random_log(seed, num_users=9, num_items=12):
    draw = random.Random(seed)
    names = ["b", "B", "é", "ab", "a", "10", "9", "Ω", "~", "!", "a b", "\U0001f600"][:num_items]
    events = [
        (f"user {user}", draw.choice(names), draw.randrange(20))
        for user in range(num_users)
        for _ in range(draw.randrange(1, 12))
    ]
    draw.shuffle(events)
    categories = {name: draw.choice(["x", "y", "X's", "", None]) for name in names[2:]}
    return events, categories


@pytest.mark.parametrize(
    ("seed", "flags"),
    [
        (0, ["--min_events", 5, "--max_history", 4]),
        (1, ["--min_events", 2, "--max_history", 1, "--seed", 7, "--threads", 1]),
        (2, ["--min_events", 4, "--max_history", 20, "--validation_event"]),
        (4, ["--min_events", 3, "--max_history", 4, "--negatives", "popularity"]),
    ],
)
def test_rows_against_reference(tmp_path, monkeypatch, seed, flags):
    monkeypatch.setattr(samples, "_BLOCK", 1 + 7 * seed)
    events, categories = random_log(seed)
    raw = write_raw(tmp_path / "raw", events, categories, literal=seed % 2, compress=seed > 1)
    result = run(tmp_path / "out", "--amazon_dataset_path", raw, *flags)
    expected, sizes = reference.prepare(
        events,
        [{item: name or None for item, name in categories.items()}],
        min_events=flags[1],
        max_history=flags[3],
        seed=7 if "--seed" in flags else 0,
        validation_event="--validation_event" in flags,
        popularity="popularity" in flags,
    )
    assert result == expected
    assert cardinalities(tmp_path / "out") == (NAMES, sizes)
    negatives = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").metadata["negatives"]
    assert negatives["distribution"] == ("popularity" if "popularity" in flags else "uniform")


@pytest.mark.parametrize("engine", ENGINES)
def test_vocabularies(tmp_path, engine):
    """Values in the order of the ids with their kept events; the TFRecords have them, too."""
    events = [("u\t2", "z", 1), ("u\t2", "z", 2), ("u\t2", "é", 3), ("u1", "é", 1), ("u1", "a", 2)]
    events += [("rare", "only", 1)]
    raw = write_raw(tmp_path / "raw", events, {"z": "x"})
    flags = ("--amazon_dataset_path", raw, "--min_events", 2, "--engine", engine)
    run(tmp_path / "out", *flags)
    encoder = Encoder.load(tmp_path / "out/encoder")
    assert encoder["user_id"].values.to_pylist() == ["u\t2", "u1"]
    assert encoder["item_id_trgt"].values.to_pylist() == ["a", "z", "é"]
    assert encoder["item_id_trgt"].counts.to_pylist() == [1, 2, 2]
    ids = encoder.encode({"asin": ["é", "a", "only"]}, ["item_id_trgt"])
    assert ids["item_id_trgt"].tolist() == [[3], [1], [0]]
    assert ids["cat_id_trgt"].tolist() == [[1], [1], [0]]  # of no category; unknown
    assert encoder.encode({"asin": ["z"]}, ["item_id_trgt"])["cat_id_trgt"].tolist() == [[2]]
    folder = tmp_path / "records"
    paths = ["--amazon_dataset_path", tmp_path / "out", "--tfrecord_output_dir", folder]
    if importlib.util.find_spec("tensorflow") is None:  # the environment of NVTabular
        return
    assert parquet_to_tfrecord.main([*map(str, paths)]) == 0
    assert Encoder.load(folder / "encoder").digest == encoder.digest


def test_bad_lines(tmp_path):
    raw = write_raw(tmp_path / "raw", [("a", "x", 1), ("a", "y", 2), ("a", "z", 3)], {"x": "c"})
    with open(raw / "reviews_B.json", "a") as file:
        file.write('{"reviewerID": "a"}\n')
    with open(raw / "meta_B.json", "a") as file:
        file.write("broken\n" + '{"asin": "x", "categories": [["c"]]}\n' * 99)
    flags = ["--amazon_dataset_path", raw, "--min_events", 2, "--on_bad_line", "skip"]
    run(tmp_path / "out", *flags)
    metadata = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").metadata
    assert metadata["bad_lines"] == 2
    with open(raw / "reviews_B.json", "a") as file:
        file.write("broken\n")
    with pytest.raises(ValueError, match="at most 1% bad lines, got 1 of 5"):
        run(tmp_path / "other", *flags)


def test_optional_metadata(tmp_path):
    events = [("a", "x", 1), ("a", "y", 2), ("a", "z", 3)]
    raw = write_raw(tmp_path / "raw", events, {"x": "c", "y": "d"})
    flags = ["--min_events", 2]
    with pytest.raises(ValueError, match="'x' has two values .*meta_B.json: 'b' and"):
        other = write_raw(tmp_path / "other", [], {"x": "b"})
        both = [raw / "meta_B.json", other / "meta_B.json"]
        run(tmp_path / "out", "--amazon_dataset_path", raw, "--meta", *both, *flags)
    files = ["--reviews", raw / "reviews_B.json", "--meta", raw / "meta_B.json"]
    assert run(tmp_path / "1", *files, *flags) == run(
        tmp_path / "2", "--amazon_dataset_path", raw, *flags
    )
    (raw / "meta_B.json").unlink()
    with pytest.raises(ValueError, match="--no_metadata"):
        run(tmp_path / "out", "--amazon_dataset_path", raw, *flags)
    run(tmp_path / "3", "--amazon_dataset_path", raw, "--no_metadata", *flags)
    assert cardinalities(tmp_path / "3") == (NAMES, [2, 4, 2])
    (raw / "reviews_B.json").unlink()
    with pytest.raises(ValueError, match="--reviews"):
        run(tmp_path / "out", "--amazon_dataset_path", raw, *flags)


@pytest.mark.parametrize("engine", ENGINES)
def test_metadata_without_categories(tmp_path, engine):
    """Lines without a category: x has one before and one after its category, y no other line."""
    events = [("a", "x", 1), ("a", "y", 2), ("a", "z", 3)]
    raw = write_raw(tmp_path / "raw", events, {"x": None, "y": None, "z": "d"})
    meta = ['{"asin": "x", "categories": [["c"]]}\n', '{"asin": "x"}\n']
    for number, line in enumerate(meta):
        (raw / f"meta_{number}.json").write_text(line)
    flags = ("--amazon_dataset_path", raw, "--min_events", 2, "--engine", engine)
    (last, _) = run(tmp_path / "out", *flags)["test"]
    assert last[:4] == (1, 1, 3, 3)  # z, of category d, after none and c
    assert last[5][-2:] == [2, 1]  # the categories of x and y


def test_features_of_one_name(tmp_path):
    """Users and items share the name of a feature."""
    log = tmp_path / "log.csv"
    log.write_text("user_id,item_id,time,country,uid\n1,1,1,x,5\n1,2,2,x,6\n1,3,3,x,5\n")
    flags = ["--input_format", "tables", "--interactions", log, "--min_events", 2]
    run(tmp_path / "out", *flags, "--user_features", "country", "--item_features", "country,uid")
    names, sizes = cardinalities(tmp_path / "out")
    assert names == ["user_id", "country", "item_id_trgt", "country_trgt", "uid_trgt"]
    assert sizes == [2, 2, 4, 2, 3]


def test_splits_without_rows(tmp_path):
    """Two events per user leave no training row; the files are empty."""
    raw = write_raw(tmp_path / "raw", [("a", "x", 1), ("a", "y", 2)], {"x": "c"})
    flags = ["--amazon_dataset_path", raw, "--min_events", 2, "--validation_event"]
    result = run(tmp_path / "out", *flags)
    assert {name: len(rows) for name, rows in result.items()} == dict(train=0, validation=0, test=2)
    with pytest.raises(ValueError, match="split 'train' has no rows"):
        SequenceDataset(FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml"), "train", 1)


# Real data


def real_data(name):
    path = ROOT.parent / "shared/data" / name
    if not path.exists():
        pytest.skip(f"the real data are not there: {path}")
    return path


def test_musical_instruments(tmp_path):
    reviews = real_data("amazon_musical/Musical_Instruments.json")
    events = []
    for line in reviews.read_text().splitlines():
        fields = json.loads(line)
        events.append((fields["reviewerID"], fields["asin"], fields["unixReviewTime"]))
    categories = {item: item[-1] for _, item, _ in events if item[-2] != "0"}
    raw = write_raw(tmp_path / "raw", [], categories, literal=True)
    meta = ["--meta", raw / "meta_B.json"]
    result = run(tmp_path / "out", "--reviews", reviews, *meta, "--min_events", 12)
    settings = {"min_events": 12, "max_history": 100}  # the log is sorted by item
    expected, sizes = reference.prepare(events, [categories], **settings, hashed_ties=True)
    assert result == expected
    assert len(expected["train"]) > 1000
    assert cardinalities(tmp_path / "out")[1] == sizes
