"""The prepared files: by hand on a few rows, and byte for byte against the slow reference."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from preproc.criteo.column_encodings import number_encodings
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.prepare import prepare
from preproc.encoding.encoder import Encoder
from tests.preproc.criteo import criteo_reference as reference

KAGGLE = Path(__file__).parents[3].parent / "shared" / "data" / "criteo_kaggle"
needs_kaggle = pytest.mark.skipif(not KAGGLE.is_dir(), reason="no ../shared/data/criteo_kaggle")


THIRDS = {"holdout_fraction": 0.3, "validation_fraction": 0.3}
FIFTHS = {"holdout_fraction": 0.2, "validation_fraction": 0.15}
TRAIN_ROWS = {"vocabulary_training_rows": True}
BINS = {"bin_numericals": True, "column_thresholds": ((0, 0), (5, 40))}


def run(source, output, **options):
    options.setdefault("memory_limit_bytes", 1 << 30)
    options.setdefault("threads", 2)
    return prepare(CriteoOptions(input=source, output=output, **options))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Four generated days, plain and gzip, one of them with a prefix, one with a suffix."""
    folder = tmp_path_factory.mktemp("log")
    for day, name in enumerate(("day_0", "day_1.gz", "log-day_2.tsv", "day_3.txt")):
        generate_day(folder / name, 700 + 101 * day, [7, day])
    return folder


def days(log, *wanted):
    return [next(log.glob(f"*day_{day}*")) for day in wanted]


def write_day(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def test_files_by_hand(tmp_path):
    """Two days; cat_0 counts: b 3, then a and c 2 each, d 1, one value missing."""
    source = tmp_path / "raw"
    source.mkdir()
    cats = [{0: value} for value in ("b", "c", "a", "", "b", "d", "b", "a", "c")]
    large = 10**18 - 1
    numericals = [{0: 5, 12: -2}, {0: -3}, {0: 0}, {}, {0: 997, 12: large}, {0: -2}, {0: 1}, {}, {}]
    labels = [1, 0, 0, 1, 0, 1, 1, 0, 0]
    lines = [reference.line(*row) for row in zip(labels, numericals, cats, strict=True)]
    write_day(source / "day_0", *lines[:4])
    write_day(source / "day_1", *lines[4:])

    options = {"frequency_threshold": 2, "output_ordering": "input", "bin_numericals": True}
    spec = run(source, tmp_path / "out", **options)

    def column(split_name, name, dtype):
        return np.fromfile(tmp_path / "out" / split_name / f"{name}.bin", dtype).tolist()

    assert column("train", "cat_0", "i1") == [1, 3, 2, 0]
    assert column("test", "cat_0", "i1") == [1, 0]
    assert column("validation", "cat_0", "i1") == [1, 2, 3]
    assert column("train", "label", "?") == [True, False, False, True]
    assert column("test", "label", "?") == [False, True]
    numericals = np.array(column("train", "numerical", "<f2")).reshape(4, 13)
    # log(8) = 2.0794, log(0) undefined, log(3) = 1.0986, in float16
    assert numericals[:, 0].tolist() == [2.080078125, 0.0, 1.0986328125, 0.0]
    assert not numericals[:, 1:].any()  # log(-2 + 3) = 0, and missing
    assert spec.cardinality("cat_0") == 4
    assert spec.cardinality("cat_1") == 1
    assert spec.dtype("cat_0") == np.int8
    assert reference.vocabulary_text(tmp_path / "out", 0) == b"b\t3\na\t2\nc\t2\n"
    digest = Encoder.load(tmp_path / "out" / "encoder").digest
    assert spec.metadata == {
        "encoder": digest,
        "source": "criteo click logs",
        "frequency_threshold": 2,
        "days": [0, 1],
        "vocabulary_days": "all",
        "rows": {"train": 4, "validation": 3, "test": 2},
        "clicks": {"train": 2, "validation": 1, "test": 1},
        "click_rate": {"train": 0.5, "validation": 0.333333, "test": 0.5},
        "bad_lines": 0,
        "bin_numericals": "1 + floor(2 * log(x + 3))",
    }
    # 1 + floor(2 * log(8)), missing and undefined, 1 + floor(2 * log(3)), missing
    assert column("train", "bin_0", "i1") == [5, 0, 3, 0]
    assert column("test", "bin_0", "i1") == [14, 1]  # log(1000), log(1)
    assert column("test", "bin_12", "i1") == [83, 0]  # 2 * log(10^18 + 2) = 82.89
    bins = tuple(f"bin_{i}" for i in range(13))
    assert spec.channel("categorical") == (*(f"cat_{i}" for i in range(26)), *bins)
    assert {(spec.cardinality(name), spec.dtype(name).name) for name in bins} == {(89, "int8")}


def test_numbers():
    """Every int64 has a bin; the first x + 3 of bins 2 to 5 are 2, 3, 5 and 8 (e^(k/2))."""
    encoder = Encoder(number_encodings(with_bins=True))
    columns = {f"num_{i}": [0] for i in range(1, 13)}

    def encoded(name, shifted):
        return encoder.encode(columns | {"num_0": np.array(shifted) - 3}, [name])[name][:, 0]

    result = encoded("bin_0", [-5, 0, 1, 2, 3, 4, 5, 7, 8, 12, 13, 2**63 - 1])
    assert result.dtype == np.int8
    assert result.tolist() == [0, 0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 88]
    for k in range(2, 60):
        first = math.ceil(math.exp((k - 1) / 2))
        assert encoded("bin_0", [first - 1, first]).tolist() == [k - 1, k]
    result = encoded("num_0", [-5, 0, 1, 2, 3, 8, 10**6, 10**18 + 2])
    expected = [0, 0, 0, 0.693147, 1.098612, 2.079442, 13.815511, 41.446532]
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, np.array(expected, np.float16))


@pytest.mark.parametrize(
    ("threshold", "used", "changes", "expected"),
    [
        (2, (0, 1, 2, 3), BINS, BINS),
        (
            3,
            (0, 2, 3),
            {"days": (0, 2, 3), "vocabulary_days": (0, 3)},
            {"vocabulary_files": (0, 3)},
        ),
        (2, (0, 1, 2, 3), {"vocabulary_days": "train", **THIRDS}, {**TRAIN_ROWS, **THIRDS}),
        (2, (3,), {"vocabulary_days": "train", **FIFTHS}, {**TRAIN_ROWS, **FIFTHS}),
    ],
    ids=["bins", "days", "train-holdout", "file-train"],
)
def test_logs_against_reference(log, tmp_path, threshold, used, changes, expected):
    (source,) = days(log, *used) if len(used) == 1 else (log,)
    spec = run(source, tmp_path / "out", frequency_threshold=threshold, **changes)
    if "vocabulary_files" in expected:
        expected = {"vocabulary_files": days(log, *expected["vocabulary_files"])}
    assert reference.files_of(tmp_path / "out") == reference.prepare(
        days(log, *used), threshold, **expected
    )
    columns = {f"cat_{i}": least for i, least in changes.get("column_thresholds", ())}
    assert spec.metadata.get("column_thresholds", {}) == columns
    if len(used) > 1:
        assert spec.metadata["days"] == list(used)
        vocabulary_days = changes.get("vocabulary_days", "all")
        assert spec.metadata["vocabulary_days"] in (vocabulary_days, list(vocabulary_days))


def test_literal_values(tmp_path):
    """Quotes, backslashes, NULL, other scripts: all text; ties are by UTF-8 bytes. Spaces around a
    value are dropped."""
    values = ['"', "'a", "NULL", "null", "\\N", "a b", " a", "a ", " ", "\u00a0", "#x", "é", "z",
              "漢", "\U0001f600", "￿", "A", "nan", "0", "00", "-", ",", "{", "[x]"]  # fmt: skip
    source = tmp_path / "raw"
    source.mkdir()
    lines = [reference.line(i % 2, {1: i}, {0: v, 25: v}) for i, v in enumerate(values)]
    write_day(source / "day_0", *lines)
    write_day(source / "day_1", *lines[::-1])
    run(source, tmp_path / "out", frequency_threshold=0, output_ordering="input")
    expected = reference.prepare(days(source, 0, 1), 0, seed=None)
    assert reference.files_of(tmp_path / "out") == expected
    encoded = reference.encode_raw(tmp_path / "out", days(source, 0, 1))
    assert encoded == reference.in_log_order(tmp_path / "out")


@needs_kaggle
@pytest.mark.long
def test_kaggle_rows(tmp_path):
    source = KAGGLE / "train_10000.txt"
    options = {"holdout_fraction": 0.2, "bin_numericals": True}
    spec = run(source, tmp_path / "out", frequency_threshold=2, **options)
    expected = reference.prepare([source], 2, **options)
    assert reference.files_of(tmp_path / "out") == expected
    clicks = spec.metadata["clicks"]
    assert (clicks["train"] + clicks["test"]) / 10_000 == 0.2182


def test_order_of_rows(tmp_path):
    """Several threads read one large file; cat_0 and num_0 hold the number of the row."""
    num_rows = 100_000
    filler = {i: "0123456789abcdef" for i in range(10, 20)}
    template = reference.line(0, {0: "%d"}, {0: "%08x"} | filler) + "\n"
    source = tmp_path / "log.tsv"
    source.write_text("".join(template % (i, i) for i in range(num_rows)))
    options = {"frequency_threshold": 0, "holdout_fraction": 0.01, "threads": 4}
    options["output_ordering"] = "input"
    run(source, tmp_path / "out", memory_limit_bytes=384 << 20, **options)
    ids = [np.fromfile(tmp_path / "out" / part / "cat_0.bin", "<i4") for part in ("train", "test")]
    np.testing.assert_array_equal(np.concatenate(ids), np.arange(1, num_rows + 1))
    numericals = np.fromfile(tmp_path / "out" / "train" / "numerical.bin", "<f2").reshape(-1, 13)
    expected = np.log(np.arange(len(numericals)) + 3.0).astype("<f2")
    np.testing.assert_array_equal(numericals[:, 0], expected)


def test_repeated_preparation(log, tmp_path):
    """Other threads, memory, folders and gzip change nothing, the feature spec included."""
    odd_folder = tmp_path / "a [1] * folder's"
    odd_folder.mkdir()
    shutil.copytree(log, odd_folder / "raw")
    run(log, tmp_path / "out", threads=1)
    again = odd_folder / "out"
    run(odd_folder / "raw", again, memory_limit_bytes=384 << 20, temp_dir=odd_folder)
    assert reference.files_of(again) == reference.files_of(tmp_path / "out")
    spec = (tmp_path / "out" / "feature_spec.yaml").read_bytes()
    assert (again / "feature_spec.yaml").read_bytes() == spec
    assert sorted(path.name for path in odd_folder.iterdir()) == ["out", "raw"]
