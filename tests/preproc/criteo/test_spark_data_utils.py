"""Commands of NVIDIA's run_spark_*.sh with spark_data_utils.py, and what follows them."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from preproc import spark_data_utils
from preproc.criteo.__main__ import main as prepare_criteo
from preproc.criteo.generate_logs import generate_day

LIMIT = "3,14:5"  # fields of a line; --frequency_threshold 3,0:5


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for day, rows in enumerate((300, 200, 101)):
        generate_day(folder / f"day_{day}", rows, [4, day])
    return folder


def run(*arguments):
    return spark_data_utils.main([*map(str, arguments), "--memory_limit", "1GiB"])


@pytest.fixture(scope="module")
def models(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "models"
    flags = ["--frequency_limit", LIMIT, "--input_folder", raw, "--days", "0-2"]
    flags += ["--model_folder", folder, "--write_mode", "overwrite", "--low_mem"]
    assert run("--mode", "generate_models", *flags) == 0
    return folder


def transform(raw, models, output, *flags, days="0-1"):
    folders = ["--input_folder", raw, "--model_folder", models, "--output_folder", output]
    return run("--mode", "transform", *folders, "--days", days, *flags)


def read(folder):
    """The rows of a folder of Parquet files, as rows of 40 values."""
    tables = [pq.read_table(file, partitioning=None) for file in sorted(folder.glob("*.parquet"))]
    rows = [np.stack([column.to_numpy() for column in table.columns], 1) for table in tables]
    return np.concatenate(rows)


def test_whole_pipeline(root, raw, models, tmp_path, capsys):
    """The data set is that of `python -m preproc.criteo`, byte for byte."""
    lines = (raw / "day_2").read_bytes().splitlines(keepends=True)
    output, halves = tmp_path / "output", {"test": lines[:50], "validation": lines[50:]}
    sizes = output / "model_size.json"
    assert transform(raw, models, output / "train", "--model_size_file", sizes, "--low_mem") == 0
    assert "note: --low_mem tunes Spark's joins and has no effect" in capsys.readouterr().err
    for split, part in halves.items():
        temporary = tmp_path / "temp" / split
        temporary.mkdir(parents=True)
        (temporary / "day_2").write_bytes(b"".join(part))
        flags = ["--output_ordering", "input", "--write_mode", "overwrite"]
        assert transform(temporary, models, output / split, *flags, days="2-2") == 0
    assert sorted(path.name for path in output.iterdir()) == [
        *("model_size.json", "test", "train", "validation")
    ]
    assert (output / "train/_SUCCESS").exists()
    for script, flags in (
        ("parquet_to_binary.py", ["--src_dir", output, "--dst_dir", tmp_path / "records"]),
        ("split_dataset.py", ["--dataset", tmp_path / "records", "--output", tmp_path / "data"]),
    ):
        command = [sys.executable, root / "preproc" / script, *flags]
        subprocess.run(list(map(str, command)), check=True, cwd=root)
    flags = ["--input", raw, "--output", tmp_path / "ours", "--frequency_threshold", "3,0:5"]
    assert prepare_criteo([*map(str, flags), "--memory_limit", "1GiB"]) == 0
    ours, theirs = (
        {file.relative_to(folder): file.read_bytes() for file in folder.glob("t*/*.bin")}
        for folder in (tmp_path / "ours", tmp_path / "data")
    )
    assert len(ours) == 2 * 28 and theirs == ours
    spec = FeatureSpec.from_yaml(tmp_path / "ours/feature_spec.yaml")
    cardinalities = [size + 1 for size in json.loads(sizes.read_text()).values()]
    assert cardinalities == spec.cardinalities("categorical")


@pytest.mark.parametrize(
    "ordering",
    [
        "total_random",
        "input",
        *(pytest.param(o, marks=pytest.mark.long) for o in ("day_random", "any")),
    ],
)
def test_partitions_by_day(raw, models, tmp_path, ordering):
    assert transform(raw, models, tmp_path / "plain", "--output_ordering", "input") == 0
    in_order = read(tmp_path / "plain")
    flags = ["--output_ordering", ordering, "--output_partitioning", "day", "--debug_mode"]
    assert transform(raw, models, tmp_path / "out", *flags) == 0
    days = [read(tmp_path / f"out/day={day}") for day in range(2)]
    rows = np.concatenate(days)
    if ordering == "total_random":
        assert [len(day) for day in days] == [250, 250]
    else:
        assert [len(day) for day in days] == [300, 200]
        np.testing.assert_array_equal(np.sort(days[0], 0), np.sort(in_order[:300], 0))
    np.testing.assert_array_equal(np.sort(rows, 0), np.sort(in_order, 0))
    assert (rows != in_order).any() == ordering.endswith("random")
    assert (tmp_path / "out.binaries").is_dir()  # of --debug_mode
    assert not (tmp_path / "plain.binaries").exists()


def test_vocabulary_of_all_values(raw, tmp_path):
    """Without --frequency_limit every value has an id."""
    folder = tmp_path / "models"
    flags = ["--input_folder", raw, "--days", "0-0", "--model_folder", folder]
    assert run("--mode", "generate_models", *flags) == 0
    lines = (raw / "day_0").read_text().splitlines()
    values = {line.split("\t")[14] for line in lines} - {""}
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    assert spec.cardinality("cat_0") == len(values) + 1
    assert not spec.source_spec
    assert not list(folder.rglob("*.bin"))


def test_refusals(raw, models, tmp_path, capsys):
    flags = ["--input_folder", raw, "--model_folder", models, "--days", "0-0"]

    def refusal(*more):
        assert run(*flags, *more) == 2
        return capsys.readouterr().err

    assert "replace it with --overwrite" in refusal("--mode", "generate_models")
    assert "writes to --output_folder, which is missing" in refusal("--mode", "transform")
    message = "--no_numeric_log_col is not supported"
    assert message in refusal("--mode", "transform", "--no_numeric_log_col")
    (tmp_path / "file").touch()
    output = ["--mode", "transform", "--output_folder", tmp_path]
    assert "replace it with --write_mode overwrite" in refusal(*output)
    assert "is not an earlier output" in refusal(*output, "--write_mode", "overwrite")
    other = ["--mode", "transform", "--output_folder", tmp_path / "out"]
    assert "exists: replace it" in refusal(*other, "--model_size_file", tmp_path / "file")
    assert "is not a prepared data set" in refusal(*other, "--model_folder", tmp_path)
    assert not (tmp_path / "out").exists()


def test_unlabelled_rows(raw, models, tmp_path, capsys):
    lines = (raw / "day_0").read_bytes().splitlines(keepends=True)
    (tmp_path / "day_0").write_bytes(b"".join(line[1:] for line in lines))
    assert transform(tmp_path, models, tmp_path / "out", days="0-0") == 2
    assert "the lines have no labels" in capsys.readouterr().err


def test_vocabulary_only_flag(raw, models, tmp_path, capsys):
    """`--vocabulary_only` writes what --encode_only reads."""
    folder = tmp_path / "vocabulary"
    flags = ["--input", raw, "--output", folder, "--frequency_threshold", "3,0:5"]
    command = [*map(str, flags), "--vocabulary_only", "--memory_limit", "1GiB"]
    assert prepare_criteo(command) == 0
    assert "has the vocabulary of 601 rows" in capsys.readouterr().out
    for file in models.glob("vocabulary/*"):
        assert (folder / "vocabulary" / file.name).read_bytes() == file.read_bytes()
    assert prepare_criteo([*command, "--output_ordering", "input"]) == 2
    assert "--output_ordering is only read with a preparation of rows" in capsys.readouterr().err
