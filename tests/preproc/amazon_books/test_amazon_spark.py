"""The Spark engine: its numbers against a slow reference, whole data sets against DuckDB."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from preproc.amazon_books.engines.interface import StagedLog
from preproc.amazon_books.engines.spark_engine import AmazonSparkEngine
from preproc.amazon_books.generate_reviews import ReviewSizes, generate
from preproc.amazon_books.options import AmazonOptions
from preproc.amazon_books.prepare import prepare
from preproc.engines import spark_preparation
from tests.preproc import shared_spark
from tests.preproc.amazon_books.test_amazon_nvtabular import (
    BIG,
    ODD,
    SCHEMA,
    expected,
    log,
    numbered,
    random_rows,
)
from tests.preproc.criteo.test_spark_runs import QUICK_EXECUTORS, QUICK_JAVA
from tests.spark_cluster import spark_cluster

pytestmark = pytest.mark.engines("pyspark")
MACHINE = {"memory_limit_bytes": 3 << 30, "threads": 2}
SPARK = {"engine": "spark", "spark_conf": (QUICK_JAVA,)}


def options(folder, **changes):
    changes = {"amazon_dataset_path": folder, "output_path": folder / "out"} | changes
    return AmazonOptions(**MACHINE, **(SPARK | changes))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    with shared_spark.started(options(folder), folder) as session:
        yield session


@pytest.fixture
def engine(session, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with shared_spark.used(session), AmazonSparkEngine(options(tmp_path), scratch) as engine:
        yield engine


@pytest.mark.quick("integers, broadcast")
@pytest.mark.parametrize(
    ("values", "feature_values", "is_joined"),
    [
        (ODD, [*ODD[:6], None], True),
        (BIG, [None, 20, 3, 1 << 62, (1 << 62) + 1, -3, -20], False),
    ],
    ids=["text, joined", "integers, broadcast"],
)
def test_numbers_against_reference(
    engine, tmp_path, monkeypatch, values, feature_values, is_joined
):
    if is_joined:
        monkeypatch.setattr(spark_preparation, "_BROADCAST_VALUES", 0)
    events, users, items = random_rows(values, feature_values, 5)
    min_events = 1 + 80 // (len(values) // 2)  # about half of the users have this many
    staged = log(tmp_path, events, users, items, files=5)
    result = numbered(engine, tmp_path, staged, min_events)
    assert result == expected(events, users, items, min_events)
    assert 1 < len(result[1]) < len(values) // 2


def test_equal_times(engine, tmp_path):
    """Times 0.0 and -0.0 are equal; an item of removed users only."""
    events = [("v", "b", 0.0), ("v", "c", -1.0), ("v", "a", -0.0), ("w", "bb", 0.0)]
    staged = log(tmp_path, events, files=1)
    assert numbered(engine, tmp_path, staged, 3) == ([3, 1, 2], [3], [], [], 3)


@pytest.mark.parametrize(
    ("rows", "most"), [([("u", "a", 1), ("u", "b", 2), ("v", "a", 3)], 2), ([], 0)]
)
def test_too_few_events(engine, tmp_path, rows, most):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table(columns, schema=SCHEMA), path)
    staged = StagedLog((path,), (), (), (), ())
    with pytest.raises(ValueError, match=f"--min_events 3 events or more; .* one has is {most}"):
        engine.number(staged, 3, tmp_path)


def test_two_values_of_a_feature(engine, tmp_path):
    events = [("u", "a", 1), ("u", "b", 2), ("w", "z", 1)]
    staged = log(tmp_path, events, [("u", 3), ("u", 3), ("u", -1)], files=1)
    with pytest.raises(ValueError, match="user 'u' has two values of a: -1 and 3"):
        engine.number(staged, 2, tmp_path)


def files_of(output):
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in output.rglob("*")
        if path.is_file()
    }


def both(folder, **changes):
    """Prepares a data set with DuckDB and Spark; returns the files, which must be equal."""
    files = []
    for engine in ({}, SPARK):
        output = folder / f"by_{engine.get('engine')}"
        prepare(AmazonOptions(output_path=output, **MACHINE, **engine, **changes))
        files.append(files_of(output))
    assert files[1] == files[0]
    return files[0]


def test_odd_reviews(session, tmp_path):
    """10,000 rows: odd and huge texts, an item in a third of the rows, a bad line."""
    texts = [*ODD, "x" * 100_000, "漢" * 5_000]
    lines = []
    for i in range(10_000):
        item = "hot" if i % 3 == 0 else texts[i * 7 % len(texts)] + str(i % 40)
        user = texts[i % 5 if i % 2 else i % len(texts)] + str(i % 11)
        review = {"reviewerID": user, "asin": item[-60_000:], "unixReviewTime": i * 37 % 101}
        lines.append(json.dumps(review, ensure_ascii=i % 2 == 0))
    lines[5_000] = '{"reviewerID": "u", "asin": "", "unixReviewTime": 7}'
    (tmp_path / "reviews.json").write_text("\n".join(lines) + "\n", "utf-8")
    flags = {"reviews": (tmp_path / "reviews.json",), "no_metadata": True, "max_history": 10}
    with shared_spark.used(session):
        with pytest.raises(ValueError, match=r"reviews.json, line 5001: asin is ''"):
            prepare(AmazonOptions(tmp_path / "out", **MACHINE, **SPARK, **flags))
        files = both(tmp_path, on_bad_line="skip", **flags)
    assert json.loads(files["metadata.json"])["bad_lines"] == 1


def test_grocery(session, tmp_path, root):
    """A real log: integers, an item table."""
    folder = root.parent / "shared/data/amazon_grocery"
    if not folder.exists():
        pytest.skip(f"the grocery log is not there: {folder}")
    with shared_spark.used(session):
        both(
            tmp_path,
            input_format="csv",
            interactions=(folder / "train.csv",),
            items=folder / "item_meta.csv",
            item_features=("i_category",),
            delimiter="\t",
            min_events=40,
        )


@pytest.mark.long
def test_cluster(run_script, tmp_path):
    """One master and two workers write DuckDB's files."""
    generate(tmp_path / "raw", ReviewSizes(5000, 800, 300, 12), 3, literal=False, compress=True)
    command = ["-m", "preproc.amazon_books", "--amazon_dataset_path", tmp_path / "raw"]
    with spark_cluster(tmp_path) as (url, _):
        for name, flags in (("duckdb", []), ("spark", ["--master", url, *QUICK_EXECUTORS])):
            output = ["--output_path", tmp_path / f"by_{name}", "--engine", name]
            done = run_script(*command, *output, *flags, timeout=900)
            assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "by_spark") == files_of(tmp_path / "by_duckdb")
