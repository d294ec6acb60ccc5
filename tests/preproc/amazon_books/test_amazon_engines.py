"""NVTabular and Spark: numbers against a slow reference, whole data sets against DuckDB."""

import json
import random
import sys
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from preproc.amazon_books.generate_reviews import ReviewSizes, generate
from preproc.engines.open_engine import open_engine
from preproc.histories.engines import nvtabular_engine
from preproc.histories.engines.encoded_events import number_log
from preproc.histories.engines.nvtabular_engine import AmazonNVTabularEngine
from preproc.histories.logs.event_log import EventLog, FeatureTable
from preproc.histories.options import HistoryOptions
from preproc.histories.prepare import prepare
from preproc.sources.column_chunk import SourceChunk
from tests.preproc.amazon_books.amazon_reference import ordered
from tests.preproc.contents import contents
from tests.preproc.criteo.test_spark_runs import FEW_TASKS, QUICK_JAVA
from tests.spark_cluster import spark_cluster

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


@pytest.fixture
def engine(name, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    settings = options(tmp_path, name).engine_settings()
    with open_engine("spark" if name == "spark" else "duckdb", scratch, **settings) as engine:
        yield engine


def log(engine, folder, events, users=(), items=(), files=2):
    """Reads tuples, distributed over `files` files.

    events: (user, item, time); users, items: (raw value, its features).
    """

    def read(kind, rows, names):
        paths = []
        for i in range(files):
            columns = [typed(column) for column in zip(*rows, strict=True)]
            table = pa.table(columns, names=names)
            paths.append(str(folder / f"{kind}_{i}.parquet"))
            pq.write_table(table.take(list(range(i, len(rows), files))), paths[-1])
        return engine.read([SourceChunk("parquet", tuple(paths))]).select(*names)

    numbered = [(*event, row) for row, event in enumerate(events)]
    staged = read("events", numbered, ["user", "item", "time", "row"])
    features = {}
    for kind, rows, titles in (("user", users, "abc"), ("item", items, "xyz")):
        if rows:
            columns = {f"{kind}_{i}": titles[i] for i in range(len(rows[0]) - 1)}
            features[kind] = FeatureTable(read(kind, rows, [kind, *columns]), columns)
    return EventLog(staged, len(events), 0, {}, 0, features)


def typed(values):
    return pa.array(values, None if any(value is not None for value in values) else pa.string())


def expected(events, users, items, min_events):
    """Computes what `numbered` returns, in plain Python."""
    by_user = defaultdict(list)
    for row, (user, item, time) in enumerate(events):
        by_user[user].append((time, row, item))
    kept = {user: sorted(by_user[user]) for user in by_user if len(by_user[user]) >= min_events}
    kept_users = sorted(kept, key=ordered)
    kept_items = sorted({item for rows in kept.values() for *_, item in rows}, key=ordered)

    def features(names, rows):
        known = {name: values for name, *values in rows}
        result = []
        for i in range(len(rows[0]) - 1 if rows else 0):
            values = [known[name][i] if name in known else None for name in names]
            order = sorted(set(values), key=ordered)
            result.append([0, *(1 + order.index(value) for value in values)])
        return result

    ids = [1 + kept_items.index(item) for user in kept_users for *_, item in kept[user]]
    counts = [len(kept[user]) for user in kept_users]
    return ids, counts, features(kept_users, users), features(kept_items, items), len(kept_items)


def numbered(name, engine, folder, log, min_events):
    target = folder / "numbered"
    target.mkdir()
    result = number_log(options(folder, name, min_events=min_events), engine, log, target)
    names = {result.events.name, "user_values.parquet", "item_values.parquet"}
    assert {path.name for path in target.iterdir()} == names
    assert result.num_events.dtype == np.int64
    for ids in (*result.user_features, *result.item_features):
        assert ids.dtype == np.int32
    return (
        np.fromfile(result.events, np.int32).tolist(),
        result.num_events.tolist(),
        [ids.tolist() for ids in result.user_features],
        [ids.tolist() for ids in result.item_features],
        result.num_items,
    )


ODD = ["007", "7", "1e5", "nan", "NaN", "None", "NULL", "<NA>", "inf", " a", "a ", "é", "e\u0301"]
ODD += ["漢", "\U0001f600", "\uffff", '"', "A", "a", "=", "\\", "\x01"]
BIG = [-(1 << 62), -7, 0, 3, 20, 100, (1 << 62), (1 << 62) + 1]


def random_rows(values, feature_values, seed):
    """Returns 80 events of users and items, and features of most of them, also without events."""
    draw = random.Random(seed)
    users, items = values[: len(values) // 2], values
    events = [(draw.choice(users), draw.choice(items), draw.randrange(9)) for _ in range(80)]
    known = draw.sample(values, len(values) - 2)
    user_rows = [(user, draw.choice(feature_values)) for user in known]
    item_rows = [(item, draw.choice(feature_values), draw.choice(values)) for item in known]
    return events, user_rows, item_rows + item_rows[:3]  # some are there twice


@pytest.mark.quick("nvtabular-text-many")
@pytest.mark.filterwarnings("ignore:Row group memory size")  # larger than partitions may be here
@pytest.mark.parametrize("small_parts", [False, True], ids=["one partition", "many"])
@pytest.mark.parametrize(
    ("values", "feature_values"),
    [(ODD, [*ODD[:6], None]), (BIG, [None, 20, 3, 1 << 62, (1 << 62) + 1, -3, -20])],
    ids=["text", "integers"],
)
def test_numbers_against_reference(
    name, engine, tmp_path, monkeypatch, values, feature_values, small_parts
):
    events, users, items = random_rows(values, feature_values, 5)
    if small_parts:
        monkeypatch.setattr(nvtabular_engine, "_MAX_PARTITION_BYTES", 500)
    min_events = 1 + 80 // (len(values) // 2)  # about half of the users have this many
    result = numbered(
        name, engine, tmp_path, log(engine, tmp_path, events, users, items), min_events
    )
    assert result == expected(events, users, items, min_events)
    assert 1 < len(result[1]) < len(values) // 2


@pytest.mark.quick("duckdb", "nvtabular")
def test_numbers_by_hand(name, engine, tmp_path):
    """Equal times, 0.0 and -0.0, too; an item of removed users only; a feature without values."""
    events = [
        *(("v", "b", 0.0), ("v", "c", -1), ("v", "a", -0.0)),
        *(("u", "c", -5), ("u", "c", 7), ("u", "a", 0), ("w", "bb", 0)),
    ]
    items = [("a", "old", None), ("bb", "new", None), ("c", "", None)]
    items = [(name, category or None, nothing) for name, category, nothing in items]
    staged = log(engine, tmp_path, [(u, i, t / 2) for u, i, t in events], items=items)
    result = numbered(name, engine, tmp_path, staged, 3)
    # u: c, a, c; v: c, b, a, with a = 1, b = 2, c = 3. Only a has a category.
    assert result == ([3, 1, 3, 3, 2, 1], [3, 3], [], [[0, 2, 1, 1], [0, 1, 1, 1]], 3)


def test_too_few_events(name, engine, tmp_path):
    staged = log(engine, tmp_path, [("u", "a", 1), ("u", "b", 2), ("v", "a", 3)])
    with pytest.raises(ValueError, match="--min_events 3 .* 2: require at most that"):
        numbered(name, engine, tmp_path, staged, 3)


@pytest.mark.quick("duckdb-*", "nvtabular-*")
@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        ([("u", 3), ("u", 3), ("u", -1)], [], "user 'u' has two values of a: -1 and 3"),
        ([], [("a", "x", "1"), ("a", "x", None)], "item 'a' has two values of y: none and '1'"),
    ],
)
def test_two_values_of_a_feature(name, engine, tmp_path, users, items, message):
    """Users and items with events have one value per feature; those without are not checked."""
    events = [("u", "a", 1), ("u", "b", 2), ("w", "z", 1)]
    items = items + [("z", "1", "1"), ("z", "2", "2")][: len(items)]
    staged = log(engine, tmp_path, events, users, items)
    with pytest.raises(ValueError, match=message):
        numbered(name, engine, tmp_path, staged, 2)


def test_whole_data_set(name, tmp_path):
    """DuckDB's files, of generated and of odd and huge texts; a bad line is named or left out."""
    raw = tmp_path / "raw"
    generate(raw, ReviewSizes(5000, 800, 300, 12), 3, literal=True, compress=False)
    texts = [*ODD, "x" * 50_000, "漢" * 5_000]
    lines = []
    for i in range(1_000):
        item = "hot" if i % 3 == 0 else texts[i * 7 % len(texts)] + str(i % 40)
        review = {"reviewerID": texts[i % len(texts)], "asin": item, "unixReviewTime": i * 37 % 101}
        lines.append(json.dumps(review, ensure_ascii=i % 2 == 0))
    with open(raw / "reviews_Books.json", "a", encoding="utf-8") as file:
        file.write("\n".join([*lines, '{"reviewerID": "u", "asin": "", "unixReviewTime": 7}\n']))
    settings = {"validation_event": True, "seed": 11, "max_history": 30, "missing_values": ("",)}
    with pytest.raises(ValueError, match=r"reviews_Books.json, row 6001 .*: no asin"):
        prepare(options(raw, name, **settings, output_path=tmp_path / "out"))
    with pytest.raises(ValueError, match=r"row 5004 .*: no reviewerID \('nan' is a spelling"):
        prepare(options(raw, name, output_path=tmp_path / "out"))
    for engine in {"duckdb", name}:
        output = {"output_path": tmp_path / f"by_{engine}", "on_bad_line": "skip"}
        prepare(options(raw, engine, **settings, **output))
    files = contents(tmp_path / f"by_{name}")
    assert files == contents(tmp_path / "by_duckdb")
    assert {f"{split}/rows.bin" for split in ("train", "test", "validation")} < set(files)
    assert yaml.safe_load(files["feature_spec.yaml"])["metadata"]["bad_lines"] == 1


@needs_spark
@pytest.mark.long
def test_cluster(run_script, tmp_path):
    """One master and two workers write DuckDB's files."""
    generate(tmp_path / "raw", ReviewSizes(5000, 800, 300, 12), 3, literal=False, compress=True)
    command = ["-m", "preproc.amazon_books", "--amazon_dataset_path", tmp_path / "raw"]
    java = QUICK_JAVA.replace("driver", "executor")
    with spark_cluster(tmp_path) as (url, _):
        on_it = ["--master", url, "--spark_conf", java, *FEW_TASKS]
        for name, flags in (("duckdb", []), ("spark", on_it)):
            output = ["--output_path", tmp_path / f"by_{name}", "--engine", name]
            done = run_script(*command, *output, *flags, timeout=900)
            assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "by_spark") == contents(tmp_path / "by_duckdb")


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
