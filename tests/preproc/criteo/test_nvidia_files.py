"""Files and commands of NVIDIA's Criteo preparation, made here as its documents describe them."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.spec.feature_spec import FeatureSpec
from preproc.criteo.options import parse, parse_thresholds, threshold_of_limit

ROWS = {"train": (70, 30), "test": (20,), "validation": (25,)}  # of each Parquet file
LARGEST = [200, 3, 70_000, *[9] * 23]  # ids of cat_0, cat_1, ...


@pytest.fixture(scope="module")
def spark_output(tmp_path_factory):
    """The output of the Spark job, and its rows by split: labels, numerical features, ids."""
    folder = tmp_path_factory.mktemp("spark") / "output"
    generator = np.random.default_rng(1)
    rows = {}
    for split, counts in ROWS.items():
        (folder / split).mkdir(parents=True)
        parts = []
        for number, count in enumerate(counts):
            label = generator.integers(0, 2, count, np.int32)
            numerical = generator.random((count, 13), np.float32) * 5
            ids = np.stack([generator.integers(0, n + 1, count, np.int32) for n in LARGEST], 1)
            columns = [label, *numerical.T, *ids.T]
            table = pa.table({f"_c{i}": column for i, column in enumerate(columns)})
            pq.write_table(table, folder / split / f"part-{number:05d}-c000.snappy.parquet")
            parts.append((label, numerical, ids))
        rows[split] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        (folder / split / "_SUCCESS").touch()
    sizes = {f"_c{14 + i}": size for i, size in enumerate(LARGEST)}
    (folder / "model_size.json").write_text(json.dumps(sizes))
    return folder, rows


def run(root, script, *arguments, cwd=None, **environment):
    command = [sys.executable, root / "preproc" / script, *map(str, arguments)]
    if script.endswith(".sh"):
        command[0] = "bash"
    return subprocess.run(
        command,
        cwd=cwd or root / "preproc",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def records(root, spark_output, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    flags = ["--parallel_jobs", 40, "--src_dir", spark_output[0]]
    flags += ["--intermediate_dir", folder / "unused", "--dst_dir", folder]
    done = run(root, "parquet_to_binary.py", *flags)
    assert done.returncode == 0, done.stderr
    assert "100 train rows, 20 test rows, 25 validation rows" in done.stdout
    return folder


def test_records(spark_output, records):
    _, rows = spark_output
    for split, (label, numerical, ids) in rows.items():
        words = np.fromfile(records / f"{split}_data.bin", "<i4").reshape(-1, 40)
        np.testing.assert_array_equal(words[:, 0], label)
        np.testing.assert_array_equal(words[:, 1:14].copy().view("<f4"), numerical)
        np.testing.assert_array_equal(words[:, 14:], ids)


@pytest.fixture(scope="module")
def data_set(root, records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("split") / "preprocessed"
    flags = ["--dataset", records, "--output", folder, "--batch_size", 32]
    done = run(root, "split_dataset.py", *flags)
    assert done.returncode == 0, done.stderr
    return folder


def test_data_set(spark_output, data_set):
    """Dtypes are those of NVIDIA's files: the smallest one that holds the ids."""
    _, rows = spark_output
    spec = FeatureSpec.from_yaml(data_set / "feature_spec.yaml")
    assert spec.cardinalities("categorical") == [size + 1 for size in LARGEST]
    for split, (label, numerical, ids) in rows.items():
        folder = data_set / split
        np.testing.assert_array_equal(np.fromfile(folder / "label.bin", "?"), label == 1)
        stored = np.fromfile(folder / "numerical.bin", "<f2").reshape(-1, 13)
        np.testing.assert_array_equal(stored, numerical.astype(np.float16))
        for i, dtype in ((0, "<i2"), (1, "i1"), (2, "<i4"), (25, "i1")):
            stored = np.fromfile(folder / f"cat_{i}.bin", dtype)
            np.testing.assert_array_equal(stored, ids[:, i])
        (batch,) = RawBinaryDataset(spec, split, len(label)).dataset()
        np.testing.assert_array_equal(batch.inputs.categorical[2][:, 0], ids[:, 2])


@pytest.mark.parametrize("name", ["train_data.bin", "model_size.json"])
def test_missing_records(root, records, tmp_path, name):
    for file in records.iterdir():
        if file.name != name:
            (tmp_path / file.name).symlink_to(file)
    done = run(root, "split_dataset.py", "--dataset", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert name in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        (0, 2, "row 1: the label is 2, not 0 or 1"),
        (15, 4, "row 1: the id of cat_1 is 4; by model_size.json ids are 0 to 3"),
        (39, -1, "row 1: the id of cat_25 is -1;"),
    ],
)
def test_invalid_records(root, records, tmp_path, word, value, message):
    for file in records.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    words = np.fromfile(tmp_path / "test_data.bin", "<i4")
    words[40 + word] = value
    words.tofile(tmp_path / "test_data.bin")
    done = run(root, "split_dataset.py", "--dataset", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_records_cut_off(root, records, tmp_path):
    for file in records.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[:-4])
    (tmp_path / "model_size.json").write_text((records / "model_size.json").read_text())
    done = run(root, "split_dataset.py", "--dataset", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert "expected whole rows of 160 bytes (13 numerical and 26 categorical" in done.stderr


def test_parquet_files_that_do_not_fit(root, spark_output, tmp_path):
    def convert():
        flags = ["--src_dir", tmp_path / "output", "--dst_dir", tmp_path / "records"]
        done = run(root, "parquet_to_binary.py", *flags)
        assert done.returncode == 2
        assert not list(tmp_path.glob("records/*"))
        return done.stderr

    assert "expected Parquet files in" in convert()
    for split in ROWS:
        (tmp_path / "output" / split).mkdir(parents=True)
        for file in (spark_output[0] / split).glob("*.parquet"):
            table = pq.read_table(file).drop_columns(["_c7", "_c39"])
            pq.write_table(table, tmp_path / "output" / split / file.name)
    assert "expected the columns _c0 to _c39 of NVIDIA's Spark job, _c7, _c39 missing" in convert()


def test_frequency_limit():
    """NVIDIA's --frequency_limit counts the fields of a line."""
    assert parse_thresholds(threshold_of_limit("15")) == (15, ())
    assert parse_thresholds(threshold_of_limit("15,14:30,39:3")) == (15, ((0, 30), (25, 3)))
    for wrong in ("15,13:30", "15,40:3", "15,x:3", "15,14"):
        with pytest.raises(ValueError, match="categorical fields are 14 to 39"):
            threshold_of_limit(wrong)


def test_names_of_flags(tmp_path):
    flags = ["--input_folder", str(tmp_path), "--output_folder", str(tmp_path / "out")]
    options = parse([*flags, "--frequency_limit", "3,14:5", "--write_mode", "overwrite"])
    assert (options.input, options.output) == (tmp_path, tmp_path / "out")
    assert (options.frequency_threshold, options.column_thresholds) == (3, ((0, 5),))
    assert options.overwrite
    assert not parse([*flags, "--write_mode", "errorifexists"]).overwrite
    with pytest.raises(ValueError, match="are one; leave one out"):
        parse([*flags, "--frequency_limit", "3", "--frequency_threshold", "3"])


def test_verification(root, tmp_path):
    for day in range(23):
        (tmp_path / f"day_{day}.gz").write_text("x")
    (tmp_path / "day_23").touch()
    done = run(root, "verify_criteo_downloaded.sh", tmp_path)
    assert done.returncode == 1
    assert "missing or empty: day_23;" in done.stderr
    (tmp_path / "day_23").write_text("x")
    done = run(root, "verify_criteo_downloaded.sh", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Criteo data verified" in done.stdout
