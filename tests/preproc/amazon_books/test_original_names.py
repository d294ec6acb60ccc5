"""The original's scripts by name, on generated reviews; what they write trains (tests/recipes)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from preproc.amazon_books import generate_reviews
from preproc.amazon_books.lines import metadata_lines

ROOT = Path(__file__).parents[3]
PREBATCHES = ("--prebatch_train_size", "8", "--prebatch_train_size", "16")  # as the document has it


def run(*command, code=0, **options):
    """Returns the output of a command, run in the root as the document's are."""
    result = subprocess.run(
        [str(part) for part in command], cwd=ROOT, text=True, capture_output=True, **options
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(folder, output of both scripts) of the quick start's two commands."""
    folder = tmp_path_factory.mktemp("original")
    raw = folder / "raw"
    flags = ("--users", "20", "--items", "50", "--reviews", "600", "--output", str(raw))
    assert generate_reviews.main(list(flags)) == 0
    for kind in ("meta", "reviews"):
        (file,) = raw.glob(f"{kind}_*")
        file.rename(raw / f"{kind}_Books.json{'.gz' if file.suffix == '.gz' else ''}")
    output = run(
        *(sys.executable, "preprocessing/sim_preprocessing.py"),
        *("--amazon_dataset_path", raw, "--output_path", folder / "parquet"),
        *("--metadata_loader_n_proc", "2", "--review_loader_num_workers", "2"),
        *("--shortest_sequence_for_user", "5", "--shortest_sequence_for_training", "3"),
        *("--max_sequence_length", "10"),
    )
    output += run(
        *(sys.executable, "preprocessing/parquet_to_tfrecord.py"),
        *("--amazon_dataset_path", folder / "parquet", "--tfrecord_output_dir", folder / "records"),
        *(*PREBATCHES, "--n_proc", "3", "--train_parts", "2"),
    )
    return folder, output


def test_preparation_by_name(prepared):
    folder, output = prepared
    metadata = json.loads((folder / "parquet/metadata.json").read_text())
    assert (metadata["negatives"], metadata["category_list"]) == ("popularity", "first")
    assert (metadata["seed"], metadata["min_training_history"]) == (12345, 3)
    assert "--review_loader_num_workers is not used" in output
    rows = pq.read_table(folder / "parquet/train").to_pydict()
    histories = rows[list(rows)[4]]
    assert min(np.count_nonzero(history) for history in histories) == 3


@pytest.mark.parametrize("kind", ["metadata", "reviews"])
def test_names_of_raw_files(prepared, tmp_path, kind):
    output = run(
        *(sys.executable, "preprocessing/sim_preprocessing.py"),
        *("--amazon_dataset_path", prepared[0] / "raw", "--output_path", tmp_path / "out"),
        *(f"--{kind}_file_name", "other.json"),
        code=2,
    )
    assert "raw/other.json" in output


def test_conversion_by_name(prepared):
    """A flag that is given twice has its last value."""
    folder, output = prepared
    spec = yaml.safe_load((folder / "records/feature_spec.yaml").read_text())
    assert spec["metadata"]["prebatch_train_size"] == 16
    assert "--n_proc is not used" in output and "--train_parts is not used" in output


@pytest.mark.parametrize(("category_list", "expected"), [("first", "Used"), ("last", "Art")])
def test_category_of_first_list(category_list, expected):
    line = json.dumps({"asin": "1", "categories": [["Books", "Used"], ["Books", "Art"]]})
    assert metadata_lines.parse(line, category_list) == ("1", expected)


def test_missing_raw_files(tmp_path):
    output = run("scripts/download_amazon_books_2014.sh", tmp_path, code=1)
    for name in ("meta_Books.json", "reviews_Books.json"):
        assert f"{tmp_path}/{name}: missing; download http" in output


def test_whole_raw_files(tmp_path):
    (tmp_path / "meta_Books.json").write_text("{}")
    (tmp_path / "reviews_Books.json.gz").write_bytes(b"no gzip")
    assert "reviews_Books.json.gz: damaged" in run(
        "scripts/download_amazon_books_2014.sh", tmp_path, code=1
    )
    (tmp_path / "reviews_Books.json").write_text("{}")
    output = run("scripts/download_amazon_books_2014.sh", tmp_path)
    assert "next: python preprocessing/sim_preprocessing.py" in output


def test_command_of_run_model():
    """The document's command; `echo` stands for Python."""
    flags = ("--data_path", "d", "--gpus", "1", "--amp", "1", "--xla", "0", "--benchmark", "1")
    more = ("--prebatch_train_size", "4", "--batch_size", "8", "--mode", "inference")
    output = run(
        *("scripts/run_model.sh", *flags, *more), env={**os.environ, "PYTHON": "echo"}
    ).splitlines()
    assert output[-1] == (
        "sim.py --dataset_dir=d --drop_remainder --amp --benchmark --prebatch_train_size=4 "
        "--global_batch_size=8 --mode=inference"
    )
    assert "--amp is 0 or 1, got '2'" in run("scripts/run_model.sh", "--amp", "2", code=2)
