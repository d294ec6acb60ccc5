"""Ratings prepared with Spark: the files of DuckDB."""

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from preproc.movielens.__main__ import main
from preproc.movielens.generate_ratings import RatingSizes, generate
from tests.preproc.contents import contents

pytestmark = [pytest.mark.engines("pyspark"), pytest.mark.usefixtures("one_spark")]
MACHINE = ["--memory_limit", "3GB", "--threads", "2"]
ODD = ["007", "7", "nan", "NULL", "é", "e\u0301", "漢", "\U0001f600", "\uffff", '"', "A", "a", "\\"]


@pytest.mark.parametrize("ratings", [3000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_odd_ratings(ratings, tmp_path):
    """Generated rows, and 3,000 with odd and huge texts, duplicates, an item in a third of them,
    0.0 and -0.0."""
    path = generate(tmp_path, RatingSizes(ratings), 0)
    texts, lines = [*ODD, "x" * 5_000], []
    for i in range(3_000):
        user = texts[i % len(texts)] + str(i % 23)
        item = "hot" if i % 3 == 0 else texts[i * 7 % len(texts)][:9] + str(i * i % 991)
        user, item = (text.replace('"', '""') for text in (user, item))
        time = "-0.0" if i % 50 == 0 else f"{i * 37 % 101}.5" if i % 51 else "0.0"
        lines.append(f'"{user}","{item}",1,{time}')
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    flags = ["--input", path, "--min_ratings", 6, "--valid_negative", 3, "--validation"]
    for name, engine in (("duckdb", []), ("spark", ["--engine", "spark"])):
        output = ["--output", tmp_path / f"by_{name}"]
        assert main([*map(str, flags + output), *MACHINE, *engine]) == 0
    files = contents(tmp_path / "by_spark")
    assert files == contents(tmp_path / "by_duckdb")
    assert {"train/user.bin", "validation/item.bin", "encoder/vocabulary/user.parquet"} <= set(
        files
    )
