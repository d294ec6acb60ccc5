"""New raw rows with the ids of an existing data set, for prediction."""

import gzip
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from preproc.criteo.__main__ import main
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.prepare import prepare
from preproc.encoding.encoder import Encoder
from tests.preproc.criteo import criteo_reference as reference


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    for day in range(3):
        generate_day(folder / f"day_{day}", 500, [5, day])
    return folder


@pytest.fixture(scope="module")
def known(log, tmp_path_factory):
    """A data set with bins."""
    output = tmp_path_factory.mktemp("known") / "out"
    prepare(
        CriteoOptions(
            input=log,
            output=output,
            frequency_threshold=2,
            column_thresholds=((3, 5),),
            bin_numericals=True,
            memory_limit_bytes=1 << 30,
        )
    )
    return output


def encode(source, output, vocabulary, *flags):
    arguments = ["--encode_only", "--vocabulary", vocabulary, "--input", source, "--output", output]
    return main([*map(str, arguments), "--memory_limit", "1GiB", *flags])


def unlabelled(path, target):
    """The file's lines with empty labels."""
    lines = path.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(line[1:] for line in lines))
    return target


def data_of(folder, split):
    return {p.name: p.read_bytes() for p in (folder / split).iterdir()}


def _last_day(known):
    test, validation = data_of(known, "test"), data_of(known, "validation")
    return {name: test[name] + validation[name] for name in test}


def test_last_day_again(log, known, tmp_path):
    """Encoding a prepared day gives the rows that the preparation stored, in one split."""
    assert encode(log / "day_2", tmp_path / "out", known) == 0
    assert data_of(tmp_path / "out", "test") == _last_day(known)
    spec = FeatureSpec.from_yaml(tmp_path / "out" / "feature_spec.yaml")
    old = FeatureSpec.from_yaml(known / "feature_spec.yaml")
    assert spec.feature_spec == old.feature_spec
    assert spec.channel_spec == old.channel_spec
    assert list(spec.source_spec) == ["test"]
    assert spec.metadata["column_thresholds"] == {"cat_3": 5}
    assert spec.metadata["rows"] == {"test": 500}
    assert spec.metadata["encoder"] == old.metadata["encoder"]
    assert Encoder.load(tmp_path / "out/encoder") == Encoder.load(known / "encoder")


def test_vocabulary_alone(log, known, tmp_path, capsys):
    """`--vocabulary_only` writes the vocabulary of a preparation, and no rows."""
    flags = ["--input", log, "--output", tmp_path / "out", "--frequency_threshold", "2,3:5"]
    command = [*map(str, flags), "--bin_numericals", "--vocabulary_only", "--memory_limit", "1GiB"]
    assert main(command) == 0
    assert Encoder.load(tmp_path / "out/encoder") == Encoder.load(known / "encoder")
    assert not list((tmp_path / "out").rglob("*.bin"))
    assert main([*command, "--output_ordering", "input"]) == 2
    assert "--output_ordering" in capsys.readouterr().err


def test_rows_without_labels(log, known, tmp_path):
    """Rows without labels give all files but label.bin; the feature spec lists no label file."""
    source = unlabelled(log / "day_2", tmp_path / "new")
    source.write_bytes(gzip.compress(source.read_bytes()))
    assert encode(source, tmp_path / "out", known) == 0
    expected = _last_day(known)
    del expected["label.bin"]
    assert data_of(tmp_path / "out", "test") == expected
    spec = FeatureSpec.from_yaml(tmp_path / "out" / "feature_spec.yaml")
    spec.validate_files()
    stored = {name for chunk in spec.source_spec["test"] for name in chunk.features}
    assert "label" in spec.feature_spec and "label" not in stored
    assert "clicks" not in spec.metadata


def test_value_that_begins_with_a_byte_order_mark(tmp_path):
    lines = [reference.line(str(i % 2), {}, {0: "\ufeffa" if i % 4 else "b"}) for i in range(20)]
    for day in range(2):
        (tmp_path / f"day_{day}").write_text("\n".join(lines) + "\n")
    days = ("--input", tmp_path, "--output", tmp_path / "known", "--frequency_threshold", 1)
    assert main([*map(str, days), "--memory_limit", "1GiB"]) == 0
    assert reference.vocabulary_text(tmp_path / "known", 0).decode() == "\ufeffa\t30\nb\t10\n"
    assert encode(tmp_path / "day_1", tmp_path / "out", tmp_path / "known") == 0
    ids = np.fromfile(tmp_path / "out/test/cat_0.bin", np.int8)
    assert ids.tolist() == [1 if i % 4 else 2 for i in range(20)]


def test_days_and_skipped_lines(log, known, tmp_path):
    """A folder of days, one line malformed. The first line of the log decides if rows have labels,
    whatever its day."""
    source = tmp_path / "raw"
    source.mkdir()
    (source / "day_2").touch()
    unlabelled(log / "day_0", source / "day_3")
    with unlabelled(log / "day_1", source / "day_4").open("a") as file:
        file.write("no row\n")
    assert encode(source, tmp_path / "out", known, "--on_bad_line", "skip") == 0
    spec = FeatureSpec.from_yaml(tmp_path / "out" / "feature_spec.yaml")
    assert spec.metadata["rows"] == {"test": 1000}
    assert spec.metadata["bad_lines"] == 1
    assert spec.metadata["days"] == [2, 3, 4]
    assert not (tmp_path / "out" / "test" / "label.bin").exists()


def test_missing_labels(log, known, tmp_path, capsys):
    lines = (log / "day_2").read_bytes().splitlines(keepends=True)
    (tmp_path / "new").write_bytes(lines[0][1:] + lines[1])
    assert encode(tmp_path / "new", tmp_path / "out", known) == 2
    message = capsys.readouterr().err
    assert "line 2: its label is" in message and "the log's first line has none" in message
    (tmp_path / "new").write_bytes(lines[0] + lines[1][1:])
    assert encode(tmp_path / "new", tmp_path / "out", known) == 2
    assert "line 2: its label is ''; a label is 0 or 1" in capsys.readouterr().err


VALUES = "encoder/vocabulary/cat_7.parquet"


def change_values(change):
    """Returns a function that changes the vocabulary of cat_7 of a data set."""
    return lambda folder: pq.write_table(change(pq.read_table(folder / VALUES)), folder / VALUES)


def other_features(folder):
    path = folder / "feature_spec.yaml"
    path.write_text(path.read_text().replace("cat_7", "colour"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            change_values(lambda table: pa.concat_tables([table.slice(1), table.slice(1, 1)])),
            "expected the encoder [0-9a-f]+, got [0-9a-f]+; the data set was changed",
        ),
        (change_values(lambda table: table[:2]), r"expected \d+ values of cat_7, got 2; "),
        (
            lambda folder: (folder / "feature_spec.yaml").unlink(),
            "--vocabulary .*known: expected the folder of a data set",
        ),
        (
            lambda folder: shutil.rmtree(folder / "encoder"),
            "values of cat_0, got .*earlier version: prepare it again",
        ),
        (lambda folder: (folder / VALUES).write_bytes(b"PAR1"), r"values of cat_7, got Parquet"),
        (other_features, "categorical features"),
    ],
    ids=["changed", "cut off", "no spec", "earlier version", "no parquet", "features"],
)
def test_damaged_vocabulary(log, known, tmp_path, capsys, damage, message):
    shutil.copytree(known, tmp_path / "known")
    damage(tmp_path / "known")
    assert encode(log / "day_2", tmp_path / "out", tmp_path / "known") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags", ["--frequency_threshold=3", "--output_ordering=any", "--engine=spark"]
)
def test_unread_flags(log, known, tmp_path, capsys, flags):
    assert encode(log / "day_2", tmp_path / "out", known, flags) == 2
    assert flags.partition("=")[0] in capsys.readouterr().err


def test_vocabulary_within_output(log, known, capsys):
    assert encode(log / "day_2", known, known, "--overwrite") == 2
    assert "which is read; choose another output" in capsys.readouterr().err
    common = ["--input", str(log / "day_2"), "--output", "out"]
    for flags in (["--encode_only"], ["--vocabulary", str(known)]):
        assert main([*common, *flags]) == 2
        message = capsys.readouterr().err
        assert "--encode_only" in message and "--vocabulary" in message
