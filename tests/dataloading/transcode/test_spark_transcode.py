"""`--engine spark` in one local session: the files, reports and messages of DuckDB."""

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from dataloading.engines import spark_session
from dataloading.engines.spark_session import SessionOptions
from dataloading.transcode import __main__ as transcode
from dataloading.transcode.spark import plan
from tests.preproc.contents import contents
from tests.spark_cluster import spark_cluster

pytestmark = pytest.mark.engines("pyspark")
ROOT = Path(__file__).parents[3]
QUICK = (
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=3",
)
QUICK_FLAGS = [word for setting in QUICK for word in ("--spark_conf", setting)]
QUICK_FLAGS += ["--memory_limit", "3GB"]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("spark")
    session = spark_session.start(
        SessionOptions("local[2]", QUICK, 2, 3 << 30), scratch, "transcode tests"
    )
    yield session
    spark_session.stop(session)


@pytest.fixture
def engines(session, monkeypatch, capsys):
    """Runs a command with both engines; returns the status, and the report or the message."""
    monkeypatch.setattr(spark_session, "start", lambda *_: session)
    monkeypatch.setattr(spark_session, "stop", lambda _: None)
    monkeypatch.setattr(plan, "PART_ROWS", 700)

    def run(folder, *flags):
        results = []
        for engine in ("duckdb", "spark"):
            output = folder / f"by_{engine}"
            shutil.rmtree(output, ignore_errors=True)
            words = [*map(str, flags), "--output", str(output), "--engine", engine]
            status = transcode.main([*words, "--chunk_size", "100"])
            printed = capsys.readouterr()
            errors = [line for line in printed.err.splitlines() if line.startswith("error: ")]
            report = printed.out.replace(str(output), "OUTPUT")
            results.append((status, report, "\n".join(errors).replace(str(output), "OUTPUT")))
            results.append(contents(output))
        assert results[0] == results[2]
        assert results[1].keys() == results[3].keys()
        for name, expected in results[1].items():
            assert results[3][name] == expected, name
        return results[0]

    return run


def shop(num_rows, seed=0, cities=40, prefix="u"):
    """Columns of a log of a shop; some values are missing, and `user` is skewed."""
    draw = np.random.default_rng(seed)
    users = draw.zipf(1.5, num_rows) % 500
    price = draw.gamma(2, 10, num_rows)
    price[draw.random(num_rows) < 0.1] = np.nan
    names = [f"Zürich {i}" if i % 3 else "" for i in range(cities)]
    return {
        "bought": draw.integers(0, 2, num_rows),
        "user": [f"{prefix}{user}" for user in users],
        "city": [names[i] for i in draw.integers(0, cities, num_rows)],
        "tags": [[f"a{a}", f"b{b}"] for a, b in draw.integers(0, 9, (num_rows, 2))],
        "price": price,
        "time": draw.permutation(num_rows),
        "number": draw.integers(0, 70000, num_rows),
    }


def write_csv(path, columns, header=True):
    def text(value):
        if isinstance(value, list):
            return ";".join(value)
        return "" if value != value else str(value)

    rows = [",".join(map(text, row)) for row in zip(*columns.values(), strict=True)]
    lines = [",".join(columns), *rows] if header else rows
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


SHOP_SPEC = {
    "feature_spec": {
        "bought": {},
        "price": {"dtype": "float32"},
        "time": {"dtype": "float64"},
        "user": {},
        "city": {},
        "tags": {"hotness": 2},
        "number": {},
    },
    "channel_spec": {
        "label": ["bought"],
        "numerical": ["price", "time"],
        "categorical": ["user", "city", "tags", "number"],
    },
}


def shop_folder(folder, num_rows=2000, ending=""):
    """Train of two chunks, CSV files, one compressed, and Parquet files; and a test split.

    ending: of the numbers of train, as pandas writes integers of a column that misses some.
    """
    folder.mkdir()
    sources = {}
    for split, rows, seed in (("train", num_rows, 0), ("test", num_rows // 3, 1)):
        columns = shop(rows, seed)
        texts = {name: columns[name] for name in ("bought", "user", "city", "number")}
        if split == "train":
            texts["number"] = [f"{number}{ending}" for number in columns["number"]]
        cut = rows // 3
        write_csv(folder / f"{split}_0.csv", {n: v[:cut] for n, v in texts.items()})
        write_csv(folder / "rest", {n: v[cut:] for n, v in texts.items()})
        (folder / f"{split}_1.csv.gz").write_bytes(gzip.compress((folder / "rest").read_bytes()))
        others = {name: pa.array(columns[name]) for name in ("price", "time", "tags")}
        pq.write_table(pa.table(others), folder / f"{split}.parquet", row_group_size=450)
        csv = {"type": "csv", "header": True, "features": [*texts]}
        sources[split] = [
            {**csv, "files": [f"{split}_0.csv", f"{split}_1.csv.gz"]},
            {"type": "parquet", "features": [*others], "files": [f"{split}.parquet"]},
        ]
    spec = {**SHOP_SPEC, "source_spec": sources}
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return folder


def test_file(engines, tmp_path):
    write_csv(tmp_path / "shop.csv", shop(3000))
    flags = ("--label", "bought", "--split", "0.7,0.1,0.2", "--fill_missing", "mean")
    engines(tmp_path, "--input", tmp_path / "shop.csv", *flags, "--missing_indicator")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.long
def test_folder(engines, tmp_path):
    folder = shop_folder(tmp_path / "raw", ending=".0")
    flags = ("--categorify", "city,tags,number", "--hash_buckets", "user=50")
    flags += ("--standardize", "price", "--fill_missing", "mean", "--frequency_threshold", 3)
    status, report, _ = engines(tmp_path, "--input", folder, *flags)
    assert status == 0 and "standardized" in report


def test_plain_ids(engines, tmp_path):
    """Numbers alone: Spark counts no texts."""
    columns = shop(900)
    columns = {name: columns[name] for name in ("bought", "number", "time")}
    pq.write_table(pa.table({n: pa.array(v) for n, v in columns.items()}), tmp_path / "a.parquet")
    flags = ("--label", "bought", "--split_by_time", "time", "--hash_buckets", "number=9")
    engines(tmp_path, "--input", tmp_path / "a.parquet", *flags, "--categorical", "number")


ODD = [
    "é",
    "漢字",
    "😀",
    'a "quoted" word',
    "a,b",
    " padded\t",
    "\\",
    "-",
    "NaN",
    "null",
    "\ufeffx",
]


def odd_rows(path, num_rows, seed=3):
    """Quotes, delimiters, Unicode, a huge text, missing values; half of the values are one."""
    draw, lines = random.Random(seed), ["label,word,other,x"]
    for row in range(num_rows):
        word = "hot" if draw.random() < 0.5 else draw.choice(ODD) + str(draw.randrange(50))
        word = "" if draw.random() < 0.05 else word
        word = "long" * 10_000 if row % 997 == 5 else word
        quoted = '"' + word.replace('"', '""') + '"'
        number = draw.choice(["1e-7", "", "3", "-0.0", "123456.789", " 5 "])
        other = draw.choice(ODD).replace('"', "").replace(",", "")
        lines.append(f"{row % 2},{quoted},{other},{number}")
    path.write_bytes("\r\n".join(lines).encode())


def test_odd_rows(engines, tmp_path):
    odd_rows(tmp_path / "odd.csv", 10_000)
    flags = ("--label", "label", "--split", "0.8,0,0.2", "--fill_missing", "x=0")
    engines(tmp_path, "--input", tmp_path / "odd.csv", *flags)


def test_times(engines, tmp_path):
    columns = shop(1500)
    minutes = columns.pop("time")
    columns["day"] = [f"2024-05-{1 + m % 30:02} {m % 24:02}:00:00" for m in minutes]
    write_csv(tmp_path / "shop.csv", columns)
    flags = ("--label", "bought", "--split_by_time", "day", "--fill_missing", "0")
    engines(tmp_path, "--input", tmp_path / "shop.csv", *flags)
    text = (tmp_path / "shop.csv").read_text()
    (tmp_path / "bad.csv").write_text(text.replace("2024-05-07", "yesterday", 40))
    status, _, message = engines(tmp_path, "--input", tmp_path / "bad.csv", *flags)
    assert status == 2 and "yesterday" in message


def interactions(folder, broken=False):
    """Interactions, and candidate lists of 7 rows in a test split, which cross parts."""
    folder.mkdir()
    draw = random.Random(0)
    train = [f"user {draw.randrange(90)},item {draw.randrange(40)}" for _ in range(1000)]
    (folder / "train.csv").write_text("\n".join(train))
    test = []
    for number in range(130):
        labels = [1, *[0] * 6]
        draw.shuffle(labels)
        labels = [0] * 7 if broken and number == 101 else labels
        test += [f"user {number % 80},item {draw.randrange(45)},{label}" for label in labels]
    (folder / "test.csv").write_text("\n".join(test))
    spec = {
        "feature_spec": {"user": {}, "item": {}, "label": {}},
        "source_spec": {
            "train": [{"type": "csv", "features": ["user", "item"], "files": ["train.csv"]}],
            "test": [{"type": "csv", "features": ["user", "item", "label"], "files": ["test.csv"]}],
        },
        "channel_spec": {"user": ["user"], "item": ["item"], "label": ["label"]},
        "metadata": {"test_samples_per_series": 7},
    }
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    return folder


def test_interactions(engines, tmp_path):
    folder = interactions(tmp_path / "raw")
    status, *_ = engines(tmp_path, "--input", folder, "--categorify", "all")
    assert status == 0
    folder = interactions(tmp_path / "broken", broken=True)
    status, _, message = engines(tmp_path, "--input", folder, "--categorify", "all")
    assert status == 2 and "row 714" in message


def test_growth(engines, tmp_path):
    """More rows: encoded as known ones, and with vocabularies that grow and lose values."""
    flags = ("--label", "bought", "--fill_missing", "0", "--date")
    write_csv(tmp_path / "a.csv", shop(1200))
    engines(tmp_path, "--input", tmp_path / "a.csv", *flags, "2026-11-01")
    (tmp_path / "by_duckdb").rename(tmp_path / "known")
    write_csv(tmp_path / "b.csv", shop(1000, seed=9, prefix="new"))
    known = ("--input", tmp_path / "b.csv", "--vocabulary", tmp_path / "known")
    status, report, _ = engines(tmp_path, *known)
    assert status == 0 and "warning" in report
    status, report, _ = engines(
        tmp_path, *known, "--grow", "--date", "2026-11-05", "--evict_after", 3
    )
    assert status == 0 and "evicted" in report


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("price", 1234, "dear"),
        ("user", 1700, "a,b"),
        pytest.param("city", 801, '"open', marks=pytest.mark.long),
    ],
    ids=["number", "number of fields", "quotation mark"],
)
def test_bad_rows(engines, tmp_path, column, row, value):
    """The message of the first bad row, and no other, although a later part has one, too."""
    columns = shop(2000)
    columns["price"] = [1.5] * 2000
    for bad in (row, 1800):
        columns[column] = [*columns[column]]
        columns[column][bad - 1] = value
    write_csv(tmp_path / "train.csv", columns)
    chunk = {"type": "csv", "header": True, "features": [*columns], "files": ["train.csv"]}
    spec = {**SHOP_SPEC, "source_spec": {"train": [chunk]}}
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    flags = ("--input", tmp_path, "--categorify", "user,city,tags")
    status, _, message = engines(tmp_path, *flags)
    assert status == 2
    assert f"row {row} " in message


def test_remote_file(engines, tmp_path, session, capsys):
    """A path with a scheme is read through Spark's file systems; a file that is not there."""
    folder = shop_folder(tmp_path / "raw", 400)
    flags = ["--categorify", "city,tags,user", "--fill_missing", "0", "--spark_conf", QUICK[1]]
    flags += ["--engine", "spark", "--chunk_size", "100", "--input"]
    status = transcode.main([*flags, folder.as_uri(), "--output", str(tmp_path / "remote")])
    messages = capsys.readouterr().err
    assert status == 0, messages
    engines(tmp_path, "--input", folder, *flags[:4])
    assert contents(tmp_path / "remote") == contents(tmp_path / "by_spark")
    missing = [*flags, f"{folder.as_uri()}/none.csv", "--output", str(tmp_path / "none")]
    assert transcode.main(missing) == 2
    assert "none.csv: cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--master", "yarn"], "--master is only read with --engine spark"),
        (["--spark_conf", "spark.a=b"], "--spark_conf is only read with --engine spark"),
        (["--input", "hdfs://host/a"], "--input hdfs://host/a: expected a path of this machine"),
        (
            ["--engine", "spark", "--master", "local[2]", "--memory_limit", "1GB"],
            "--memory_limit 953 MiB is",
        ),
        (["--engine", "spark", "--output", "{folder}/a,b"], "for a separator; choose an --output"),
        (["--engine", "spark", "--output", "s3a://b/o"], "--output s3a://b/o: expected a path of"),
        (["--engine", "spark", "--vocabulary", "s3a://b/o"], "--vocabulary s3a://b/o: expected"),
    ],
)
def test_refusals(tmp_path, capsys, flags, message):
    flags = [flag.replace("{folder}", str(tmp_path)) for flag in flags]
    output = [] if "--output" in flags else ["--output", str(tmp_path / "out")]
    assert transcode.main([*flags, *output]) == 2
    assert message in capsys.readouterr().err


def command(raw, output, *flags):
    words = [sys.executable, "-m", "dataloading.transcode", "--input", raw, "--output", output]
    words += ["--label", "bought", "--split", "0.8,0.1,0.1", "--fill_missing", "mean", *flags]
    return [str(word) for word in words]


def run(*arguments):
    done = subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    """More rows than a part has, and their data set by DuckDB."""
    folder = tmp_path_factory.mktemp("large")
    write_csv(folder / "shop.csv", shop(2 * plan.PART_ROWS + 9))
    run(folder / "shop.csv", folder / "expected")
    return folder / "shop.csv", contents(folder / "expected")


@pytest.mark.long
def test_cluster(large_file, tmp_path):
    raw, expected = large_file
    executors = ["--spark_conf", f"spark.executor.extraJavaOptions={QUICK[0].partition('=')[2]}"]
    with spark_cluster(tmp_path) as (url, _):
        run(raw, tmp_path / "out", "--engine", "spark", "--master", url, *QUICK_FLAGS, *executors)
    assert contents(tmp_path / "out") == expected


@pytest.mark.long
@pytest.mark.parametrize("stage", ["reading rows", "computing statistics", "encoding rows"])
def test_kill_and_resume(large_file, tmp_path, stage):
    raw, expected = large_file
    flags = ("--engine", "spark", "--master", "local[2]", *QUICK_FLAGS)
    killed = subprocess.Popen(
        command(raw, tmp_path / "out", *flags),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in killed.stderr:
        if stage in line:
            os.kill(killed.pid, signal.SIGKILL)
            break
    killed.wait()
    killed.stderr.close()
    assert not (tmp_path / "out").exists()
    done = run(raw, tmp_path / "out", *flags)
    assert "spark: resuming" in done.stderr
    assert contents(tmp_path / "out") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
