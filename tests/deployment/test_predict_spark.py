"""Scores in part files: those of this process, every row once, also where executors are killed."""

import contextlib
import csv
import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deployment.predict.__main__ import main
from deployment.predict.options import PredictOptions
from deployment.predict.spark_scores import score_parts
from deployment.triton.model_folders import find_model
from preproc.engines import environment
from preproc.engines.open_engine import DUCKDB, open_engine
from tests.deployment.serving.made_models import write_clicks
from tests.spark_cluster import spark_cluster

ROOT = Path(__file__).parents[2]
# Java compiles for seconds what a short run does once.
QUICK = ["--spark_conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
HEADER = "name,city,price,words,tags,age,user"


def has_engine() -> bool:
    check = [environment.python(), "-c", "import pyspark, onnxruntime"]
    return environment.python().exists() and not subprocess.run(check, stderr=-1).returncode


needs_spark = pytest.mark.skipif(
    not has_engine(), reason="no Spark with onnxruntime: run `make engines`"
)


def command(model, source, output, *flags) -> list[str]:
    paths = ("--model", model, "--input", source, "--output", output)
    engine = (environment.python(), "-m", "deployment.predict", "--engine", "spark")
    return [*map(str, (*engine, *paths)), *flags]


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)


def local_scores(model, source, folder) -> np.ndarray:
    output = folder / "local.npy"
    flags = ["--model", str(model), "--input", str(source), "--output", str(output)]
    assert main(flags) == 0
    return np.load(output)


def random_clicks(num_rows) -> pa.Table:
    generator = np.random.default_rng(0)
    columns = {
        "city": generator.integers(0, 4, num_rows),
        "price": generator.random(num_rows),
        "age": generator.random(num_rows),
        "tags": generator.integers(0, 5, (num_rows, 2)).tolist(),
        "words": [generator.integers(0, 6, i % 4).tolist() for i in range(num_rows)],
        "user": range(num_rows),
        "name": [f"u{i}" for i in range(num_rows)],
    }
    return pa.table(columns)


def parts(folder, num_files, num_rows) -> Path:
    """Writes rows as a folder of Parquet files."""
    folder.mkdir()
    table = random_clicks(num_rows)
    bounds = np.linspace(0, num_rows, num_files + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        pq.write_table(table.slice(start, stop - start), folder / f"{number}.parquet")
    return folder


def check_parts(folder, num_rows, expected):
    """The rows of the parts, in the order of their names, are all rows in order."""
    table = pq.read_table(sorted(folder.glob("part-*.parquet")))
    assert table.column_names == ["row", "user", "name", "score"]
    assert table["row"].to_pylist() == table["user"].to_pylist() == list(range(num_rows))
    assert table["name"].to_pylist() == [f"u{i}" for i in range(num_rows)]
    assert np.array_equal(table["score"].to_numpy(), expected)


def score(tmp_path, model, source, **flags):
    """Runs the tasks in this process."""
    options = PredictOptions(str(model), str(source), **{"output": "scores.parquet", **flags})
    folder, scratch = tmp_path / "out", tmp_path / "scratch"
    folder.mkdir()
    with open_engine(DUCKDB, scratch, memory_limit_bytes=1 << 28) as engine:
        result = score_parts(options, engine, find_model(model), folder)
    return result, folder


def test_parts_of_any_engine(tmp_path):
    model, source = write_clicks(tmp_path / "model"), parts(tmp_path / "rows", 3, 50)
    (num_rows, remarks, _), folder = score(tmp_path, model, source, keep=("user", "name"))
    assert num_rows == 50 and remarks == []
    assert len(list(folder.iterdir())) == 3
    check_parts(folder, 50, local_scores(model, source, tmp_path))


def test_parts_of_csv(tmp_path):
    model, source = write_clicks(tmp_path / "model"), tmp_path / "rows.csv"
    names = [" lead", "trail ", "x,y", "", "\u00e9"]
    lines = [f'"{name}",0,1.5,5,1;1,2,{i}' for i, name in enumerate(names)]
    source.write_text("\n".join([HEADER, *lines]) + "\n")
    _, folder = score(tmp_path, model, source, output="x.csv", keep=("name",))
    with open(folder / "part-00000000.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == names
    assert [row["row"] for row in rows] == list("01234")
    scores = np.array([row["score"] for row in rows], np.float32)
    assert np.array_equal(scores, local_scores(model, source, tmp_path))


def test_truncated_lists_of_parts(tmp_path):
    model, source = write_clicks(tmp_path / "model"), tmp_path / "rows"
    source.mkdir()
    lines = ["0,1.5,5,1;1;2,2,1", "0,1.5,5,1,2,1", "0,1.5,0;1;2;3,1;2,2,1"]
    for number in range(2):
        text = "\n".join(["city,price,words,tags,age,label", *lines])
        (source / f"{number}.csv").write_text(text + "\n")
    (_, remarks, _), _ = score(tmp_path, model, source)
    assert remarks == ["truncated lists: tags 2, words 2", "ignored columns: label"]


@pytest.mark.long
@needs_spark
def test_bad_rows_on_spark(tmp_path):
    """A value, and a line of CSV that lacks a field; nothing is left."""
    model, source = write_clicks(tmp_path / "model"), tmp_path / "rows.csv"
    for line, problem in (
        ("u1,9,0,,4;0,-3,1", "row 2 (rows are counted from 1, a header is not), column 'city'"),
        ("u1,3,0,,4;0,-3", "line 3: expected 7 fields"),
    ):
        source.write_text(f"{HEADER}\nu0,0,1.5,5,1;1,2,0\n{line}\n")
        result = run(model, source, tmp_path / "out.csv", *QUICK)
        assert result.returncode == 2
        assert f"{source}, {problem}" in result.stderr
        assert sorted(os.listdir(tmp_path)) == ["model", "rows.csv"]


def executors(pids) -> list[int]:
    """Ids of the executors of a cluster, by those of its daemons."""
    running = []
    for pid in pids:
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    running.append(child.pid)
    return running


@needs_spark
@pytest.mark.long
def test_killed_executors(tmp_path):
    """No row is lost or repeated when five executors of two workers are killed in turn."""
    num_kills, num_rows = 5, 20_000
    (tmp_path / "cluster").mkdir()
    model = write_clicks(tmp_path / "model")
    source = parts(tmp_path / "rows", 10 + 2 * num_kills, num_rows)
    output, kills, done = tmp_path / "out.parquet", 0, 0
    settings = (
        "spark.executor.memory=512m",
        "spark.task.maxFailures=1000",  # a lost executor is a failure of its task
        "spark.sql.files.openCostInBytes=134217728",  # a task for each file
    )
    with spark_cluster(tmp_path / "cluster") as (master, pids):
        flags = [*QUICK, "--keep", "user,name", "--master", master]
        flags += [f"--spark_conf={each}" for each in settings]
        job = subprocess.Popen(command(model, source, output, *flags), cwd=ROOT, stderr=-1)
        while kills < num_kills and job.poll() is None:
            written = len(list(tmp_path.glob(".out.parquet.*/data/new-*")))
            running = executors(pids)
            if running and written > done:
                os.kill(running[kills % len(running)], signal.SIGKILL)
                kills, done = kills + 1, written
            time.sleep(0.2)
        _, errors = job.communicate()
    assert job.returncode == 0, errors.decode()
    assert kills == num_kills
    assert not list(output.glob("new-*"))
    check_parts(output, num_rows, local_scores(model, source, tmp_path))
