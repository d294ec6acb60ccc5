"""`--engine spark`: the rows, ids, vocabularies, messages and statistics of DuckDB."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from preproc.encoding.encoder import Encoder
from preproc.fitting import continuous
from preproc.transcode import __main__ as transcode
from tests.spark_cluster import spark_cluster

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")
pytestmark = pytest.mark.engines("pyspark")
SPARK = ("--engine=spark", "--master=local[2]")
MILLION = pytest.param(1_000_000, marks=pytest.mark.long)


def orders(path, rows=3000, scale=1):
    draw = random.Random(0)
    lines = ['"city","tags",sizes,price,age,user_id,code,"day",bought']
    for i in range(rows):
        city = draw.choice(["Bern", '"Zug, ZG"', "", " Oslo ", "NA", '"a ""b"""', "Ärö"])
        tags = ";".join(draw.sample("abcde", draw.randint(1, 4)))
        sizes = "|".join(draw.sample(["small", "medium", "large"], draw.randint(1, 3)))
        amounts = [f"{scale * draw.lognormvariate(3, 2):.4f}" for _ in range(2)]
        price = draw.choice([*amounts, "", "NULL", "1e2"])
        age, user, code = draw.randint(18, 90), f"{draw.randint(1, 300)}.0", f"0{i % 7}"
        day = f"2026-11-{1 + i % 28:02d} 10:00:00"
        numbers = f"{price},{age},{user},{code}"
        lines.append(f"{city},{tags},{sizes},{numbers},{day},{int(draw.random() < 0.4)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(path, output, *flags):
    return transcode.main([f"--input={path}", f"--output={output}", *flags])


def equal_report(path, folder, capsys, *flags):
    """Prepares rows in folder/duckdb and folder/spark; returns the report, which is the same."""
    reports = []
    for name, engine in (("duckdb", ()), ("spark", SPARK)):
        assert run(path, folder / name, *flags, *engine) == 0
        reports.append(capsys.readouterr().out.replace(name, ""))
    assert reports[0] == reports[1]
    for file in (folder / "duckdb").glob("*/*.bin"):
        other = folder / "spark" / file.relative_to(folder / "duckdb")
        assert file.read_bytes() == other.read_bytes(), file
    return reports[0]


@pytest.mark.parametrize("rows", [3000, MILLION])
def test_equal_data_sets(one_spark, rows, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(continuous, "SAMPLE_ROWS", min(rows // 3, continuous.SAMPLE_ROWS))
    path = orders(tmp_path / "orders.csv", rows)
    flags = ("--label=bought", "--split_by_time=day", "--transform=age=quantile")
    flags += ("--missing_indicator", "--hash_buckets=code=5", "--frequency_threshold=3")
    assert "numbers, most different" in equal_report(path, tmp_path, capsys, *flags)
    checks = [(tmp_path / name / "checks.json").read_text() for name in ("duckdb", "spark")]
    assert checks[0] == checks[1]
    assert "of 3 different values" in checks[0], "those of sizes, in all combinations"
    encoders = [Encoder.load(tmp_path / name / "encoder") for name in ("duckdb", "spark")]
    assert encoders[0].digest == encoders[1].digest
    assert encoders[0].profile == encoders[1].profile
    assert encoders[0]["price"].transformation == "log", "chosen by its shape"
    assert "price_missing" in [n for feature in encoders[0].features for n in feature.features]


def test_equal_new_rows(one_spark, tmp_path, capsys):
    """Prices of another unit, which the report names."""
    path = orders(tmp_path / "orders.csv", rows=300)
    known = tmp_path / "known"
    assert run(path, known, "--label=bought", "--frequency_threshold=2") == 0
    capsys.readouterr()
    path = orders(tmp_path / "later.csv", rows=200, scale=1e4)
    report = equal_report(path, tmp_path, capsys, f"--vocabulary={known}")
    assert "warning: 'price'" in report


@pytest.mark.quick("[?]-*")
@pytest.mark.parametrize(
    ("odd", "label", "words"),
    [("?", 1, "row 99 ("), ("1", "", "'bought': expected 0 or 1"), ("1", 2, "'2' is first in ")],
)
def test_equal_refusals(one_spark, odd, label, words, tmp_path, capsys):
    """Texts among numbers, formats and labels; blank lines are left out."""
    rows = [f"{i}.5,{i}E{i % 3},{i % 2}" for i in range(98)]
    lines = ["price,block,bought", *rows, " \t", f"{odd},1E5,{label}", "  "]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    flags = ["--label=bought", "--split=0.8,0.1,0.1"]
    assert words in _equal_error(tmp_path, capsys, *flags)


@pytest.mark.long
def test_equal_refusal_of_missing_users(one_spark, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("user,item\nu1,i1\n\nNULL,i1\n")
    error = _equal_error(tmp_path, capsys, "--user=user", "--item=item")
    assert "row 2 (" in error and "'user' is missing ('NULL' is a spelling" in error


def _equal_error(folder, capsys, *flags):
    """Returns the error of both engines on rows.csv."""
    errors = []
    for engine in ((), SPARK):
        files = [f"--input={folder / 'rows.csv'}", f"--output={folder / 'out'}"]
        assert transcode.main([*files, *flags, *engine]) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    return errors[0]


@pytest.mark.long
def test_killed_worker(tmp_path, root):
    """A cluster loses one of two workers in the middle: the files of a run by DuckDB."""
    path = orders(tmp_path / "orders.csv", rows=60_000)
    flags = ["--split_by_time=day", "--frequency_threshold=3"]
    assert run(path, tmp_path / "duckdb", "--label=bought", *flags) == 0
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as (master, pids):
        words = [f"--input={path}", "--label=bought", f"--output={tmp_path / 'spark'}", *flags]
        words += ["--engine=spark", f"--master={master}"]
        words += ["--spark_conf=spark.sql.files.maxPartitionBytes=200000"]
        command = [sys.executable, "-m", "preproc.transcode", *words]
        job = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE)
        while job.poll() is None and len(list(tmp_path.glob(".spark.*/**/new-*"))) < 5:
            time.sleep(0.05)
        assert job.poll() is None, "it ended before a worker was killed"
        os.kill(pids[-1], signal.SIGKILL)
        _, errors = job.communicate()
    assert job.returncode == 0, errors.decode()
    digests = {Encoder.load(tmp_path / name / "encoder").digest for name in ("duckdb", "spark")}
    assert len(digests) == 1
    for file in (tmp_path / "duckdb").glob("*/*.bin"):
        other = tmp_path / "spark" / file.relative_to(tmp_path / "duckdb")
        assert file.read_bytes() == other.read_bytes(), file
