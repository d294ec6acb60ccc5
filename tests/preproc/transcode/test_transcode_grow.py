"""--grow, --date and --evict_after: new values after known ones, by hand."""

import datetime
import re
import shutil

import numpy as np
import pytest

from dataloading.keys.growth import Growth
from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from tests.preproc.transcode.test_transcode import raw, run, stored, vocabulary

FIRST = ["Bern", "Oslo", "Bern", "Rome", "Oslo", "Bern"]  # Bern 1, Oslo 2; Rome once
SECOND = ["Rome", "Oslo", "Lima", "Rome", "Kyiv", "Lima", "", "Lima"]  # Lima 3, Rome 4


def click_log(folder, cities):
    """Rows with a city, a hashed user, and a plain id."""
    spec = {
        "feature_spec": {"click": {}, "user": {}, "city": {}, "shop": {}},
        "source_spec": {
            "train": [
                {"type": "csv", "features": ["click", "user", "city", "shop"], "files": ["a"]}
            ]
        },
        "channel_spec": {"label": ["click"], "categorical": ["user", "city", "shop"]},
    }
    rows = "".join(f"{i % 2},u{i},{city},{20 * i}\n" for i, city in enumerate(cities))
    return raw(folder, spec, a=rows)


ENCODING = ("--categorify=city", "--hash_buckets=user=7", "--frequency_threshold=2")


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The data set of FIRST, of 5 November."""
    folder = click_log(tmp_path_factory.mktemp("grown") / "first", FIRST)
    assert run(folder, *ENCODING, "--date=2026-11-05") == 0
    return folder / "out"


def grown(folder, known, cities, date, *flags):
    assert run(click_log(folder, cities), f"--vocabulary={known}", "--grow", date, *flags) == 0
    return folder / "out"


def spec_of(data_set):
    return FeatureSpec.from_yaml(data_set / "feature_spec.yaml")


def test_other_spellings_of_known_values(tmp_path):
    for name, known, new, expected in (
        (
            "booleans",
            ["True", "False"],
            ["true", "FALSE", "True", "False"],
            {"True": 3, "False": 3},
        ),
        ("texts", ["7.0", "x"], ["7.0", "8.0"], {"7.0": 2, "x": 1, "8.0": 1}),
        ("whole", ["7", "8"], ["7.0", "x"], {"7": 2, "8": 1, "x": 1}),
        ("separators", ["a;b", "c"], ["a;b", "b;c"], {"a;b": 2, "c": 1, "b;c": 1}),
        ("parts", ["a", "b"], ["a;b", "b;a"], None),  # single values: new ones, no lists
    ):
        folder = click_log(tmp_path / name, known * 6)
        assert run(folder, *ENCODING) == 0
        second = click_log(tmp_path / f"{name}_2", new * 6)
        code = run(second, f"--vocabulary={folder / 'out'}", "--grow")
        assert code == (2 if expected is None else 0), name
        if expected is not None:
            counts = {value: 6 * count for value, count in expected.items()}
            assert vocabulary(second / "out", "city") == counts
            assert 0 not in stored(second / "out", "city"), name


def test_new_values(tmp_path, first, capsys):
    second = grown(tmp_path / "second", first, SECOND, "--date=2026-11-06")
    assert list(vocabulary(second, "city").items()) == [
        *(("Bern", 3), ("Oslo", 3), ("Lima", 3), ("Rome", 2))
    ]
    assert stored(second, "city") == [4, 2, 3, 4, 0, 3, 0, 3]
    report = capsys.readouterr().out
    assert "  5 ids, 2 new (2+)" in report
    old, new = spec_of(first), spec_of(second)
    assert [old.cardinality(name) for name in ("user", "city", "shop")] == [7, 3, 101]
    assert [new.cardinality(name) for name in ("user", "city", "shop")] == [7, 5, 141]
    assert (old.dtype("shop"), new.dtype("shop")) == (np.int8, np.int16)
    own = new.metadata["transcode"]
    assert own["new_values"] == {"city": 2} and own["date"] == "2026-11-06"
    assert Encoder.load(second / "encoder")["city"].threshold == 2
    days = [datetime.date(2026, 11, day) for day in (5, 6, 6, 6)]
    assert Encoder.load(second / "encoder")["city"].last_seen.to_pylist() == days
    growth = Growth.from_spec(new)
    assert growth.ancestors == (old.fingerprint(),) and not growth.evicted
    assert growth.id_spaces[1:] == Growth.from_spec(old).id_spaces
    # Nothing new: ids stay, also those that no row has.
    third = grown(tmp_path / "third", second, ["Oslo"], "--date=2026-11-07")
    assert list(vocabulary(third, "city")) == ["Bern", "Oslo", "Lima", "Rome"]
    spec = spec_of(third)
    assert [spec.cardinality(name) for name in ("user", "city", "shop")] == [7, 5, 141]
    assert Growth.from_spec(spec).ancestors == (new.fingerprint(), old.fingerprint())


def test_evicted_values(tmp_path, first, capsys):
    """Bern is last seen on the 5th; ids move up, and the former ones are kept for checkpoints."""
    second = grown(tmp_path / "second", first, SECOND, "--date=2026-11-06", "--evict_after=2")
    assert list(vocabulary(second, "city")) == ["Bern", "Oslo", "Lima", "Rome"]
    third = grown(
        tmp_path / "third", second, ["Nice", "Rome"] * 2, "--date=2026-11-07", "--evict_after=2"
    )
    assert "  5 ids, 1 new, 1 evicted" in capsys.readouterr().out
    assert list(vocabulary(third, "city")) == ["Oslo", "Lima", "Rome", "Nice"]
    assert stored(third, "city") == [4, 3, 4, 3]
    before, after = spec_of(second), spec_of(third)
    assert after.metadata["transcode"]["evicted"] == {"city": 1}
    growth = Growth.from_spec(after)
    assert growth.ancestors == (before.fingerprint(),)
    assert growth.evicted_from == Growth.from_spec(before).id_spaces[0]
    assert growth.kept_rows(before.fingerprint())["city"].tolist() == [0, 2, 3, 4]
    assert growth.kept_rows("another") is None
    # Evicted values come back as new ones, and all others are gone.
    fourth = grown(tmp_path / "4", third, ["Bern"] * 2, "--date=2026-11-20", "--evict_after=2")
    assert list(vocabulary(fourth, "city")) == ["Bern"]


def test_growth_of_the_training_part(tmp_path, first):
    """Values of validation and test get no id."""
    cities = [f"c{i // 2}" for i in range(200)]
    folder = click_log(tmp_path / "second", cities)
    flags = (f"--vocabulary={first}", "--grow", "--date=2026-11-06", "--split=0.5,0,0.5")
    flags += ("--allow_mostly_new",)
    assert run(folder, *flags) == 0
    ids, counts = np.unique(stored(folder / "out", "city"), return_counts=True)
    number = len(vocabulary(folder / "out", "city"))
    assert ids.tolist() == [0, *range(3, number + 1)] and set(counts[1:]) == {2}
    assert 0 in stored(folder / "out", "city", "test")


GROW = ("--vocabulary={first}", "--grow")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--grow"], "--grow is only read with --vocabulary"),
        (["--vocabulary={first}", "--date=2026-11-06"], "expected --grow, other vocabularies stay"),
        ([*GROW], "expected the day of the new rows, 2026-11-05 or later"),
        ([*GROW, "--date=2026-11-06", "--evict_after=0"], "--evict_after 0"),
        (["--hash_buckets=city=5", "--date=2026-11-06"], "--date is kept with the values of"),
        ([*GROW, "--date=2026-11-06", "--frequency_threshold=3"], "--frequency_threshold"),
        (["--vocabulary={encoded}", "--grow", "--date=2026-11-06"], "vocabularies of another data"),
        ([*GROW, "--date=2026-11-04"], "--date 2026-11-04: .*, 2026-11-05 or later"),
        (["--vocabulary={hashed}", "--grow"], "has no ids that can grow: .* got user, city, shop"),
    ],
)
def test_refused_growth(tmp_path, first, capsys, flags, message):
    known = {"first": first, "encoded": tmp_path / "encoded", "hashed": tmp_path / "hashed"}
    folder = click_log(tmp_path / "new", SECOND)
    if "encoded" in "".join(flags):
        (folder / "a").write_text("1,u,Oslo,3\n")
        assert run(folder, f"--vocabulary={first}", output=known["encoded"]) == 0
    if "hashed" in "".join(flags):
        buckets = "--hash_buckets=user=7,city=5,shop=9"
        assert run(folder, buckets, output=known["hashed"]) == 0
    assert_refused(capsys, message, folder, *(flag.format_map(known) for flag in flags))


def assert_refused(capsys, message, folder, *flags):
    capsys.readouterr()
    assert run(folder, *flags) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not (folder / "out").exists()


def test_damaged_vocabulary(tmp_path, first, capsys):
    first = shutil.copytree(first, tmp_path / "first")
    file = first / "encoder/vocabulary/city.parquet"
    data = bytearray(file.read_bytes())
    data[4:40] = bytes(36)
    folder = click_log(tmp_path / "new", SECOND)
    for content in (bytes(data), b""):
        file.write_bytes(content)
        flags = (f"--vocabulary={first}", "--grow", "--date=2026-11-06")
        assert_refused(
            capsys, "encoder: expected the complete folder of an encoder", folder, *flags
        )
