"""NVTabular and Spark: whole data sets against those of DuckDB."""

import json
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from preproc.amazon_books.generate_reviews import ReviewSizes, generate
from preproc.histories.engines import nvtabular_engine
from preproc.histories.engines.nvtabular_engine import AmazonNVTabularEngine
from preproc.histories.options import HistoryOptions
from preproc.histories.prepare import prepare
from tests.preproc.contents import contents

needs_nvtabular = pytest.mark.engines("nvtabular")
needs_spark = pytest.mark.engines("pyspark")
ENGINES = [
    "duckdb",
    pytest.param("nvtabular", marks=needs_nvtabular),
    pytest.param("spark", marks=needs_spark),
]
MIB = 1 << 20


def options(folder, engine="nvtabular", **changed):
    changed = {"memory_limit_bytes": 1024 * MIB, "threads": 2} | changed
    if engine == "spark":
        changed |= {"memory_limit_bytes": 3072 * MIB}
    paths = {"input_format": "amazon", "amazon_dataset_path": folder, "output_path": folder / "out"}
    return HistoryOptions(engine=engine, **(paths | changed))


@pytest.fixture(params=ENGINES)
def name(request):
    """Name of an engine, whose Spark is that of all tests."""
    if request.param == "spark":
        request.getfixturevalue("one_spark")
    return request.param


ODD = ["007", "7", "1e5", "nan", "NaN", "None", "NULL", "<NA>", "inf", " a", "a ", "é", "e\u0301"]
ODD += ["漢", "\U0001f600", "\uffff", '"', "A", "a", "=", "\\", "\x01"]
BIG = [-(1 << 62), -7, 0, 3, 20, 100, (1 << 62), (1 << 62) + 1]


@pytest.mark.filterwarnings("ignore:Row group memory size")  # larger than partitions may be here
@pytest.mark.parametrize("name", ENGINES[1:], indirect=True)
def test_integer_tables(name, tmp_path, monkeypatch):
    """DuckDB's files of large integers, equal times and features with gaps, in many partitions."""
    monkeypatch.setattr(nvtabular_engine, "_MAX_PARTITION_BYTES", 500)
    draw = random.Random(5)
    rows = {"user_id": BIG[:4], "item_id": BIG, "time": range(9)}
    log = {column: [draw.choice(values) for _ in range(80)] for column, values in rows.items()}
    ages = {"user_id": BIG[1:4], "age": [None, 20, 1 << 62]}
    kinds = {"item_id": BIG[2:], "kind": [draw.choice([None, 3, -20]) for _ in BIG[2:]]}
    for file, table in (("log", log), ("users", ages), ("items", kinds)):
        pq.write_table(pa.table(table), tmp_path / f"{file}.parquet")
    tables = {"input_format": "tables", "amazon_dataset_path": None, "min_events": 20}
    tables |= {"interactions": (tmp_path / "log.parquet",)}
    tables |= {f"{kind}s": tmp_path / f"{kind}s.parquet" for kind in ("user", "item")}
    tables |= {"user_features": ("age",), "item_features": ("kind",)}
    for engine in ("duckdb", name):
        prepare(options(tmp_path, engine, **tables, output_path=tmp_path / f"by_{engine}"))
    assert contents(tmp_path / f"by_{name}") == contents(tmp_path / "by_duckdb")


@pytest.mark.parametrize(
    "sizes",
    [
        ReviewSizes(3000, 400, 200, 12),
        pytest.param(ReviewSizes(1_000_000, 60_000), marks=pytest.mark.long),
    ],
    ids=["3000", "million"],
)
def test_whole_data_set(name, sizes, tmp_path):
    """DuckDB's files, of generated and of odd and huge texts; a bad line is named or left out."""
    raw = tmp_path / "raw"
    generate(raw, sizes, 3, literal=True, compress=False)
    texts = [*ODD, "x" * 50_000, "漢" * 5_000]
    lines = []
    for i in range(1_000):
        item = "hot" if i % 3 == 0 else texts[i * 7 % len(texts)] + str(i % 40)
        review = {"reviewerID": texts[i % len(texts)], "asin": item, "unixReviewTime": i * 37 % 101}
        lines.append(json.dumps(review, ensure_ascii=i % 2 == 0))
    with open(raw / "reviews_Books.json", "a", encoding="utf-8") as file:
        file.write("\n".join([*lines, '{"reviewerID": "u", "asin": "", "unixReviewTime": 7}\n']))
    settings = {"validation_event": True, "seed": 11, "max_history": 30, "missing_values": ("",)}
    bad = f"row {sizes.reviews + 1001} .*: no asin"
    with pytest.raises(ValueError, match=f"reviews_Books.json, {bad}"):
        prepare(options(raw, name, **settings, output_path=tmp_path / "out"))
    nan = rf"row {sizes.reviews + 4} .*: no reviewerID \('nan' is a spelling"
    with pytest.raises(ValueError, match=nan):
        prepare(options(raw, name, output_path=tmp_path / "out"))
    for engine in {"duckdb", name}:
        output = {"output_path": tmp_path / f"by_{engine}", "on_bad_line": "skip"}
        prepare(options(raw, engine, **settings, **output))
    files = contents(tmp_path / f"by_{name}")
    assert files == contents(tmp_path / "by_duckdb")
    assert {f"{split}/rows.bin" for split in ("train", "test", "validation")} < set(files)
    assert yaml.safe_load(files["feature_spec.yaml"])["metadata"]["bad_lines"] == 1


@needs_nvtabular
def test_restored_threads(tmp_path):
    before = pa.cpu_count()
    with AmazonNVTabularEngine(options(tmp_path, threads=before + 3), tmp_path):
        assert pa.cpu_count() == before + 3
    assert pa.cpu_count() == before


def test_too_small_limit(tmp_path):
    with pytest.raises(ValueError, match="needs a --memory_limit of 768 MiB or more, got 767"):
        AmazonNVTabularEngine(options(tmp_path, memory_limit_bytes=767 * MIB), tmp_path)


def test_missing_nvtabular(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtabular", None)
    with pytest.raises(ValueError, match="cannot be imported here .*nvtabular.*; run `make engi"):
        AmazonNVTabularEngine(options(tmp_path), tmp_path)
