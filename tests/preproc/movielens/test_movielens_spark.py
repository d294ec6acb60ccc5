"""Ratings prepared with Spark: the files of DuckDB."""

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from preproc.engines import spark_preparation
from preproc.movielens.__main__ import main
from preproc.movielens.generate_ratings import RatingSizes, generate
from preproc.movielens.options import parse
from runtime.cli import USER_ERROR
from tests.preproc import shared_spark
from tests.preproc.criteo.test_spark_runs import QUICK_EXECUTORS, QUICK_JAVA
from tests.spark_cluster import spark_cluster

pytestmark = pytest.mark.engines("pyspark")
MACHINE = ["--memory_limit", "3GB", "--threads", "2"]
SPARK = ["--engine", "spark", "--spark_conf", QUICK_JAVA]
ODD = ["007", "7", "nan", "NULL", "é", "e\u0301", "漢", "\U0001f600", "\uffff", '"', "A", "a", "\\"]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\n")
    flags = ["--input", str(folder / "ratings.csv"), "--output", str(folder / "out")]
    with shared_spark.started(parse([*flags, *MACHINE, *SPARK]), folder) as session:
        yield session


def files_of(output):
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in output.rglob("*")
        if path.is_file()
    }


def both(folder, *flags):
    """Prepares a data set with DuckDB and Spark; returns the files, which must be equal."""
    files = []
    for name, engine in (("duckdb", []), ("spark", SPARK)):
        output = folder / f"by_{name}"
        assert main([*map(str, flags), "--output", str(output), *MACHINE, *engine]) == 0
        files.append(files_of(output))
    assert files[1] == files[0]
    return files[0]


@pytest.fixture
def odd_ratings(tmp_path):
    """10,000 rows: odd and huge texts, duplicates, an item in a third of the rows, 0.0 and -0.0."""
    texts = [*ODD, "x" * 50_000]
    lines = ["userId,movieId,rating,timestamp"]
    for i in range(10_000):
        user = texts[i % len(texts)] + str(i % 23)
        item = "hot" if i % 3 == 0 else texts[i * 7 % len(texts)][:9] + str(i * i % 991)
        user, item = (text.replace('"', '""') for text in (user, item))
        time = "-0.0" if i % 50 == 0 else f"{i * 37 % 101}.5" if i % 51 else "0.0"
        lines.append(f'"{user}","{item}",1,{time}')
    path = tmp_path / "odd.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.quick("broadcast")
@pytest.mark.parametrize("is_joined", [False, True], ids=["broadcast", "joined"])
def test_odd_ratings(session, odd_ratings, tmp_path, monkeypatch, is_joined):
    if is_joined:
        monkeypatch.setattr(spark_preparation, "_BROADCAST_VALUES", 0)
    flags = ["--input", odd_ratings, "--min_ratings", 12, "--valid_negative", 3]
    with shared_spark.used(session):
        files = both(tmp_path, *flags, "--validation")
    assert {"train/user.bin", "validation/item.bin", "vocabulary/user.csv"} <= set(files)


@pytest.mark.long
def test_integers(session, tmp_path, root):
    """A real log with integer users and items, or a generated one."""
    path = root.parent / "shared/data/movielens_latest_small/ratings.csv"
    if not path.exists():
        path = generate(tmp_path / "log", RatingSizes(4000, 60, 300), 0)
    with shared_spark.used(session):
        both(tmp_path, "--input", path)


def test_errors(session, tmp_path, capsys):
    """Bad rows have file and row; too few ratings the number of the most."""
    path = tmp_path / "ratings.csv"
    flags = ["--input", str(path), "--output", str(tmp_path / "out"), *MACHINE, *SPARK]
    for rows, message in (
        ("1,2,3,4\n1,,3,4\n", "ratings.csv, row 2 (the first one with values is row 1): movieId"),
        ("1,2,3,4\n1,3,3,4\n", "no user has --min_ratings 20 items or more; the most that one has"),
    ):
        path.write_text("userId,movieId,rating,timestamp\n" + rows)
        with shared_spark.used(session):
            assert main(flags) == USER_ERROR
        assert message in capsys.readouterr().err


def test_unread_flags(tmp_path, capsys):
    path = tmp_path / "ratings.csv"
    path.touch()
    flags = ["--input", str(path), "--output", str(tmp_path / "out"), "--master", "yarn"]
    assert main(flags) == USER_ERROR
    assert "--master is only read with --engine spark" in capsys.readouterr().err


@pytest.mark.long
def test_cluster(run_script, odd_ratings, tmp_path):
    """One master and two workers write DuckDB's files."""
    command = ["-m", "preproc.movielens", "--input", odd_ratings, "--min_ratings", "12"]
    with spark_cluster(tmp_path) as (url, _):
        for name, flags in (("duckdb", []), ("spark", ["--master", url, *QUICK_EXECUTORS])):
            output = ["--output", tmp_path / f"by_{name}", "--engine", name]
            done = run_script(*command, *output, "--valid_negative", "3", *flags, timeout=900)
            assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "by_spark") == files_of(tmp_path / "by_duckdb")
