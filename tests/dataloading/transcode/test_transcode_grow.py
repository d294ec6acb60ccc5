"""--grow, --date and --evict_after: new values after known ones, by hand."""

import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading.keys.growth import Growth
from dataloading.keys.vocabulary import read_vocabulary
from dataloading.spec.feature_spec import FeatureSpec
from tests.dataloading.transcode.test_transcode import raw, run, stored

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


@pytest.fixture
def first(tmp_path):
    """The data set of FIRST, of 5 November."""
    folder = click_log(tmp_path / "first", FIRST)
    assert run(folder, *ENCODING, "--date=2026-11-05") == 0
    return folder / "out"


def grown(folder, known, cities, date, *flags):
    assert run(click_log(folder, cities), f"--vocabulary={known}", "--grow", date, *flags) == 0
    return folder / "out"


def values_of(data_set):
    cardinality = FeatureSpec.from_yaml(data_set / "feature_spec.yaml").cardinality("city")
    return read_vocabulary(data_set, "city", cardinality).values.to_pylist()[1:]


def test_new_values(tmp_path, first, capsys):
    second = grown(tmp_path / "second", first, SECOND, "--date=2026-11-06")
    assert (second / "vocabulary/city.tsv").read_text() == "Bern\t3\nOslo\t3\nLima\t3\nRome\t2\n"
    assert stored(second, "city") == [4, 2, 3, 4, 0, 3, 0, 3]
    report = capsys.readouterr().out
    assert "city: cardinality 5 (2 new), vocabulary of values seen 2 times or more" in report
    old, new = (FeatureSpec.from_yaml(path / "feature_spec.yaml") for path in (first, second))
    assert [old.cardinality(name) for name in ("user", "city", "shop")] == [7, 3, 101]
    assert [new.cardinality(name) for name in ("user", "city", "shop")] == [7, 5, 141]
    assert (old.dtype("shop"), new.dtype("shop")) == (np.int8, np.int16)
    assert new.metadata["transcode"]["frequency_threshold"] == {"city": 2}
    growth = Growth.from_spec(new)
    assert growth.ancestors == (old.fingerprint(),) and not growth.evicted
    assert growth.id_spaces[1:] == Growth.from_spec(old).id_spaces
    # Nothing new: ids stay, also those that no row has.
    third = grown(tmp_path / "third", second, ["Oslo"], "--date=2026-11-07")
    assert values_of(third) == ["Bern", "Oslo", "Lima", "Rome"]
    spec = FeatureSpec.from_yaml(third / "feature_spec.yaml")
    assert [spec.cardinality(name) for name in ("user", "city", "shop")] == [7, 5, 141]
    assert Growth.from_spec(spec).ancestors == (new.fingerprint(), old.fingerprint())


def test_evicted_values(tmp_path, first):
    """Bern is last seen on the 5th; ids move up, and the former ones are kept for checkpoints."""
    second = grown(tmp_path / "second", first, SECOND, "--date=2026-11-06", "--evict_after=2")
    assert values_of(second) == ["Bern", "Oslo", "Lima", "Rome"]
    third = grown(
        tmp_path / "third", second, ["Nice", "Rome"] * 2, "--date=2026-11-07", "--evict_after=2"
    )
    assert values_of(third) == ["Oslo", "Lima", "Rome", "Nice"]
    assert stored(third, "city") == [4, 3, 4, 3]
    before, after = (FeatureSpec.from_yaml(path / "feature_spec.yaml") for path in (second, third))
    assert after.metadata["transcode"]["evicted"] == {"city": 1}
    growth = Growth.from_spec(after)
    assert growth.ancestors == (before.fingerprint(),)
    assert growth.kept_rows(before.fingerprint())["city"].tolist() == [0, 2, 3, 4]
    assert growth.kept_rows("another") is None
    # Evicted values come back as new ones, and all others are gone.
    fourth = grown(tmp_path / "4", third, ["Bern"] * 2, "--date=2026-11-20", "--evict_after=2")
    assert values_of(fourth) == ["Bern"]


GROW = ("--vocabulary={first}", "--grow")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--grow"], "--grow is for the ids of an earlier data set: expected --vocabulary DIR"),
        (["--evict_after=3"], "--evict_after is for vocabularies that grow: expected --grow"),
        (["--vocabulary={first}", "--date=2026-11-06"], "expected --grow, other vocabularies stay"),
        ([*GROW], "expected the day of the new rows, --date YYYY-MM-DD"),
        ([*GROW, "--date=6.11."], "expected a day such as 2026-11-26"),
        ([*GROW, "--date=2026-11-06", "--evict_after=0"], "--evict_after 0"),
        (["--hash_buckets=city=5", "--date=2026-11-06"], "--date is kept with the values of"),
        ([*GROW, "--date=2026-11-06", "--frequency_threshold=3"], "--frequency_threshold"),
        (["--vocabulary={encoded}", "--grow", "--date=2026-11-06"], "vocabulary of 'city'"),
        ([*GROW, "--date=2026-11-04"], "--date 2026-11-04: expected"),
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
    capsys.readouterr()
    assert run(folder, *(flag.format_map(known) for flag in flags), output=tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not (tmp_path / "out").exists()


def days_file(*columns):
    return lambda path: pq.write_table(pa.table(dict(columns)), path)


def damaged(path):
    data = bytearray(path.read_bytes())
    data[4:40] = bytes(36)
    path.write_bytes(data)


TODAY = datetime.date(2026, 11, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "got a file that cannot be read: .*make the data set again"),
        (lambda path: path.write_bytes(b""), "got a file that cannot be read: "),
        (damaged, "got a file that cannot be read: "),
        (days_file(("day", [TODAY] * 2)), "got a file that cannot be read: "),
        (days_file(("last_seen", [TODAY])), "each of the 2 values of the vocabulary, got 1 days"),
        (days_file(("last_seen", [TODAY, None])), "each of the 2 values .*, got 1 days"),
        (days_file(("last_seen", [1, 2])), "each of the 2 values of the vocabulary, got 0 days"),
    ],
    ids=["absent", "empty", "damaged", "another column", "short", "null", "numbers"],
)
def test_unreadable_days(tmp_path, first, capsys, change, message):
    """Growth needs the days of the values of a data set that has a date."""
    change(first / "vocabulary/city.last_seen.parquet")
    folder = click_log(tmp_path / "new", SECOND)
    flags = (f"--vocabulary={first}", "--grow", "--date=2026-11-06")
    assert run(folder, *flags, output=tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert re.search(f"city.last_seen.parquet: expected the last day of .*{message}", error), error
    assert not (tmp_path / "out").exists()
