"""Preparations in folders named `name=value`, which several readers take for partition columns."""

import re
from pathlib import Path

import pytest

from preproc.amazon_books.__main__ import main as amazon_books
from preproc.amazon_books.generate_reviews import ReviewSizes
from preproc.amazon_books.generate_reviews import generate as generate_reviews
from preproc.criteo.__main__ import main as criteo
from preproc.criteo.generate_logs import generate_day
from tests.preproc.contents import contents

# Columns of staged files: Criteo's, Amazon Books'.
HIVE = "label=1/user=7/item=books/time=2014/value=abc/cat_0=5/num_0=3/count=9/row=2/id=1"


ENGINES = ["duckdb", pytest.param("nvtabular", marks=pytest.mark.engines("nvtabular"))]
SPARK = pytest.param("spark", marks=[pytest.mark.engines("pyspark"), pytest.mark.long])


def prepared(folder: Path, command, generate, *flags) -> dict[str, bytes]:
    """Prepares raw data with all files in one folder; returns the output files."""
    raw, temporary = folder / "raw", folder / "temporary"
    raw.mkdir(parents=True)
    temporary.mkdir()
    generate(raw)
    flags = [flag.format(raw=raw, output=folder / "out", temporary=temporary) for flag in flags]
    assert command(flags) == 0
    return contents(folder / "out")


def assert_same_files(tmp_path, command, generate, *flags):
    plain, hive = (prepared(tmp_path / name, command, generate, *flags) for name in ("plain", HIVE))
    assert plain
    assert {name for name in plain | hive if plain.get(name) != hive.get(name)} == set()


@pytest.mark.quick("duckdb")
@pytest.mark.parametrize("name", ["duckdb", SPARK])
def test_criteo(name, tmp_path):
    """Also new rows with the ids of a data set whose vocabulary lies below such folders."""

    def generate(raw):
        for day in range(2):
            generate_day(raw / f"day_{day}", 300, [3, day])

    def command(flags):
        output = flags.pop()
        Path(output).mkdir()
        assert criteo([*flags, "--output", f"{output}/known", "--frequency_threshold", "2"]) == 0
        if name == "duckdb":
            encoded = ["--output", f"{output}/new", "--encode_only"]
            return criteo([*flags, *encoded, "--vocabulary", f"{output}/known"])
        return 0

    assert_same_files(
        tmp_path,
        command,
        generate,
        *("--input", "{raw}", "--temp_dir", "{temporary}", "--engine", name),
        *("--threads", "2", "--memory_limit", "3GB", "{output}"),
    )


@pytest.mark.parametrize("name", ENGINES)
def test_amazon_books(name, tmp_path):
    assert_same_files(
        tmp_path,
        amazon_books,
        lambda raw: generate_reviews(raw, ReviewSizes(600, 30, 40, 5), 0, False, False),
        *("--amazon_dataset_path", "{raw}", "--output_path", "{output}"),
        *("--temp_dir", "{temporary}", "--min_events", "5", "--max_history", "5"),
        *("--engine", name, "--memory_limit", "1GB", "--threads", "2"),
    )


def test_sql_readers_in_one_module(root):
    """Only `duckdb_files.py` has SQL calls of DuckDB's readers, with hive_partitioning=false."""
    call = re.compile(r"\bread_(parquet|csv\w*|n?d?json\w*)\(['\[{]|\bFROM '")
    files = [
        path.name
        for folder in ("dataloading", "preproc", "benchmarks", "deployment")
        for path in (root / folder).rglob("*.py")
        if call.search(path.read_text())
    ]
    assert call.search("FROM read_ndjson_objects({path}, a)")
    assert files == []
