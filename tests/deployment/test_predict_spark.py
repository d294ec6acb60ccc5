"""Scores on Spark: those of `--mode predict`, every row once, also where executors are killed."""

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
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dataloading.engines import environment
from deployment.deploy import __main__ as deploy
from deployment.predict.__main__ import main
from deployment.predict.folder_input import FolderInput
from deployment.serving import interface as interfaces
from deployment.triton.model_folders import find_model
from tests.deployment.serving.made_models import write_clicks
from tests.spark_cluster import spark_cluster

ROOT = Path(__file__).parents[2]
# Java compiles for seconds what a short run does once.
QUICK = ["--spark_conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
KEYS = ["--predictions_keep", "a.b,user"]


def has_engine() -> bool:
    check = [environment.python(), "-c", "import pyspark, onnxruntime"]
    return environment.python().exists() and not subprocess.run(check, stderr=-1).returncode


needs_spark = pytest.mark.skipif(
    not has_engine(), reason="no Spark with onnxruntime: run `make engines`"
)


def command(model, source, output, *flags) -> list[str]:
    engine = [environment.python(), "-m", "deployment.predict", "--engine", "spark", *KEYS]
    return [*map(str, (*engine, "--model", model, "--input", source, "--output", output)), *flags]


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)


def scores_by_key(folder, num_rows) -> np.ndarray:
    """Scores by user; every user is there once, next to its own text."""
    table = pq.read_table(folder).sort_by("user")
    assert table.column_names == ["a.b", "user", "score"]
    assert table["user"].to_pylist() == list(range(num_rows))
    assert table["a.b"].to_pylist() == [f"u{i}" for i in range(num_rows)]
    return table["score"].to_numpy()


def keyed(columns, num_rows) -> pa.Table:
    return pa.table(columns | {"user": range(num_rows), "a.b": [f"u{i}" for i in range(num_rows)]})


def random_clicks(num_rows) -> pa.Table:
    generator = np.random.default_rng(0)
    words = [generator.integers(0, 6, i % 4).tolist() for i in range(num_rows)]
    columns = {
        "city": generator.integers(0, 4, num_rows),
        "price": generator.random(num_rows),
        "age": generator.random(num_rows),
        "tags": generator.integers(0, 5, (num_rows, 2)).tolist(),
        "words": words,
    }
    return keyed(columns, num_rows)


@needs_spark
def test_scores_of_mode_predict(trained_dlrm, tmp_path):
    repository = tmp_path / "repository"
    flags = ["--checkpoint_dir", trained_dlrm.checkpoint, "--dataset_path", trained_dlrm.data]
    assert not deploy.main([*map(str, flags), "--model_repository", str(repository)])
    interface = interfaces.read(find_model(repository).folder)
    (batch,) = FolderInput(trained_dlrm.data, "test", interface).requests(1000)
    columns, num_rows = {}, len(next(iter(batch.arrays.values())))
    for feature in interface.features:
        values = batch.arrays[feature.input][:, feature.start : feature.start + feature.count]
        columns[feature.name] = values.tolist() if feature.count > 1 else values[:, 0]
    pq.write_table(keyed(columns, num_rows), tmp_path / "rows.parquet", row_group_size=100)
    result = run(repository, tmp_path / "rows.parquet", tmp_path / "out.parquet", *QUICK)
    assert result.returncode == 0, result.stderr
    assert f"{num_rows} rows scored" in result.stdout
    actual = scores_by_key(tmp_path / "out.parquet", num_rows)
    np.testing.assert_allclose(actual, trained_dlrm.scores(tmp_path), rtol=0, atol=1e-6)


@pytest.mark.long
@needs_spark
def test_csv(tmp_path):
    """Text of a CSV file, with empty lists; the output is CSV, too."""
    model = write_clicks(tmp_path / "model")
    lines = ["a.b,city,price,words,tags,age,user", "u0,0,1.5,5,1;1,2,0", "u1,3,0,,4;0,-3,1"]
    source = tmp_path / "rows.csv"
    source.write_text("\n".join(lines) + "\n")
    assert main(["--model", str(model), "--input", str(source), f"--output={tmp_path}/a.npy"]) == 0
    result = run(model, source, tmp_path / "out.csv", *QUICK)
    assert result.returncode == 0, result.stderr
    (part,) = (tmp_path / "out.csv").glob("part-*.csv")
    table = pa_csv.read_csv(part).sort_by("user")
    assert table["a.b"].to_pylist() == ["u0", "u1"]
    expected = np.load(tmp_path / "a.npy")
    np.testing.assert_allclose(table["score"].to_numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.long
@needs_spark
def test_bad_value(tmp_path):
    """The row is named by its keys, and there is no output."""
    model = write_clicks(tmp_path / "model")
    table = random_clicks(5).set_column(0, "city", pa.array([0, 1, 9, 1, 1]))
    pq.write_table(table, tmp_path / "rows.parquet")
    result = run(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", *QUICK)
    assert result.returncode == 2
    assert "the row with a.b 'u2', user 2: column 'city': found 9; " in result.stderr
    assert not (tmp_path / "out.parquet/_SUCCESS").exists()


@pytest.mark.long
@needs_spark
def test_refused_input_and_output(tmp_path):
    """An output that exists, and a line of CSV that lacks a field; nothing is removed or left."""
    model, data = write_clicks(tmp_path / "model"), tmp_path / "data.parquet"
    data.mkdir()
    pq.write_table(random_clicks(5), data / "rows[1].parquet")
    result = run(model, data / "rows[1].parquet", data, *QUICK)
    assert result.returncode == 2
    assert f"--output {data}" in result.stderr
    assert pq.read_table(data / "rows[1].parquet").num_rows == 5
    header = "a.b,city,price,words,tags,age,user\n"
    (tmp_path / "rows.csv").write_text(header + "u0,0,1.5,5,1;1,2,0\nu1,3,0,,4;0,-3\n")
    result = run(model, tmp_path / "rows.csv", tmp_path / "out.csv", *QUICK)
    assert result.returncode == 2
    assert "u1,3,0" in result.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.long
@needs_spark
def test_output_of_keys_in_csv(tmp_path):
    """Keys are written as they are, and rows are counted, not lines."""
    model = write_clicks(tmp_path / "model")
    keys = [" lead", "trail ", 'a"b', "a\nb", "c\\", "x,y", "", "\u00e9"]
    table = random_clicks(len(keys))
    table = table.set_column(table.column_names.index("a.b"), "a.b", pa.array(keys))
    pq.write_table(table, tmp_path / "rows[1].parquet")
    pq.write_table(random_clicks(1), tmp_path / "rows1.parquet")
    result = run(model, tmp_path / "rows[1].parquet", tmp_path / "out.csv", *QUICK)
    assert result.returncode == 0, result.stderr
    assert f"{len(keys)} rows scored" in result.stdout
    rows = []
    for part in (tmp_path / "out.csv").glob("part-*.csv"):
        with open(part, newline="", encoding="utf-8") as file:
            rows += csv.DictReader(file)
    assert [row["a.b"] for row in sorted(rows, key=lambda row: int(row["user"]))] == keys


@pytest.mark.long
@needs_spark
def test_ignored_columns(tmp_path):
    """Types that Spark lacks, and names that differ in case alone."""
    model, table = write_clicks(tmp_path / "model"), random_clicks(5)
    table = table.append_column("at", pa.array(range(5), pa.timestamp("ns")))
    table = table.append_column("City", pa.array(["x"] * 5))
    pq.write_table(table, tmp_path / "rows.parquet")
    result = run(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", *QUICK)
    assert result.returncode == 0, result.stderr
    scores_by_key(tmp_path / "out.parquet", 5)


def executors(pids) -> list[int]:
    """Ids of the executors of a cluster, by those of its daemons."""
    running = []
    for pid in pids:
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    running.append(child.pid)
    return running


def kill_executors(tmp_path, num_kills, num_rows):
    """Scores rows on a cluster of two workers, whose executors are killed in turn."""
    model, source = write_clicks(tmp_path / "model"), tmp_path / "rows.parquet"
    table, num_files = random_clicks(num_rows), 10 + 2 * num_kills
    source.mkdir()
    bounds = np.linspace(0, num_rows, num_files + 1).astype(int)
    for start, stop in itertools.pairwise(bounds):
        pq.write_table(table.slice(start, stop - start), source / f"{start}.parquet")
    output, kills = tmp_path / "out.parquet", 0
    settings = (
        "spark.executor.memory=512m",
        "spark.task.maxFailures=1000",  # a lost executor is a failure of its task
        "spark.sql.files.openCostInBytes=134217728",  # a task for each file
    )
    with spark_cluster(tmp_path / "cluster") as (master, pids):
        flags = [*QUICK, "--master", master, *(f"--spark_conf={each}" for each in settings)]
        job = subprocess.Popen(command(model, source, output, *flags), cwd=ROOT, stderr=-1)
        while kills < num_kills and job.poll() is None:
            committed = len(list(output.glob("_temporary/0/task_*")))
            running = executors(pids)
            if running and committed > kills:
                os.kill(running[kills % len(running)], signal.SIGKILL)
                kills += 1
            time.sleep(0.2)
        _, errors = job.communicate()
    assert job.returncode == 0, errors.decode()
    assert kills == num_kills
    return scores_by_key(output, num_rows), model, table


def check_kills(tmp_path, num_kills, num_rows):
    (tmp_path / "cluster").mkdir()
    scores, model, table = kill_executors(tmp_path, num_kills, num_rows)
    pq.write_table(table, tmp_path / "whole.parquet")
    local = ["--model", str(model), "--input", f"{tmp_path}/whole.parquet"]
    assert main([*local, "--output", f"{tmp_path}/local.npy"]) == 0
    np.testing.assert_allclose(scores, np.load(tmp_path / "local.npy"), rtol=0, atol=1e-6)


@pytest.mark.long
@needs_spark
def test_killed_executor(tmp_path):
    """No row is lost or repeated."""
    check_kills(tmp_path, num_kills=1, num_rows=2_000)


@needs_spark
@pytest.mark.long
def test_killed_executors(tmp_path):
    """Twenty kills within one run."""
    check_kills(tmp_path, num_kills=20, num_rows=20_000)


# The flag that the message names first, and the command line.
INVALID = """
--engine: --engine=spark
--engine: --engine=spark --output=x.parquet
--predictions_keep: --engine=spark --output=x.parquet --predictions_keep=score
--predictions_keep: --predictions_keep=a
--master: --master=local
--mapping: --engine=spark --output=x.csv --predictions_keep=a --mapping=test
--threads: --engine=spark --output=x.csv --predictions_keep=a --master=local[2] --threads=2
--memory_limit: --engine=spark --output=x.csv --predictions_keep=a --master=yarn --memory_limit=2GB
"""


@pytest.mark.parametrize("case", INVALID.split("\n")[1:-1])
def test_flags(tmp_path, capsys, case):
    name, _, flags = case.partition(": ")
    command = ["--model", "m", "--input", str(tmp_path / "a.parquet")]
    assert main([*command, *flags.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {name}")
