"""Whole preparations with Spark: kills, resuming on a cluster, the files of DuckDB."""

import contextlib
import glob
import gzip
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preproc.criteo.generate_logs import generate_day
from preproc.engines import environment
from tests.preproc.criteo import criteo_reference as reference

pytestmark = pytest.mark.skipif(
    not environment.is_installed("pyspark"), reason="no Spark: run `make engines`"
)
QUICK_JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ROOT = Path(__file__).parents[3]
NUM_FILLED = 6  # categorical columns
FEW_TASKS = ["--spark_conf", "spark.sql.shuffle.partitions=3"]
QUICK = ["--spark_conf", QUICK_JAVA, *FEW_TASKS, "--memory_limit", "3GB", "--threads", "2"]
ON_A_CLUSTER = [
    *("--master", "local-cluster[2,1,1024]"),
    *("--spark_conf", "spark.executor.memory=1g", *FEW_TASKS, "--spark_conf", QUICK_JAVA),
    *("--spark_conf", QUICK_JAVA.replace("driver", "executor")),
]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Plain, gzip, and one with returns, a byte order mark, odd text and a bad line."""
    folder = tmp_path_factory.mktemp("raw")
    for day, num_rows in enumerate((900, 700, 800)):
        generate_day(folder / f"day_{day}", num_rows, [8, day])
    days = [emptied((folder / f"day_{day}").read_bytes()) for day in range(3)]
    (folder / "day_0").write_bytes(b"\n".join(days[0]))
    (folder / "day_1").unlink()
    (folder / "day_1.gz").write_bytes(gzip.compress(b"\n".join([*days[1], b""])))
    odd = ("é", "漢", " x")
    odd = [reference.line(1, {3: 5}, {i: text for i in range(NUM_FILLED)}) for text in odd]
    days[2][100:100] = [b"bad", *(line.encode() for line in odd * 3)]
    (folder / "day_2").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(days[2]) + b"\r\n\r\n")
    return folder


def emptied(data):
    """Returns the lines of a log without values in the last columns, to save time in Spark."""
    missing = [b""] * (26 - NUM_FILLED)
    lines = data.split(b"\n")[:-1]
    return [b"\t".join(line.split(b"\t")[: 14 + NUM_FILLED] + missing) for line in lines]


@pytest.fixture(scope="module")
def expected(raw, tmp_path_factory):
    """Files of the data set that DuckDB prepares."""
    output = tmp_path_factory.mktemp("duckdb") / "out"
    flags = ["--input", raw, "--output", output, "--frequency_threshold", "2,5:9"]
    flags += ["--on_bad_line", "skip", "--bin_numericals"]
    subprocess.run([sys.executable, "-m", "preproc.criteo", *flags], check=True, cwd=ROOT)
    return reference.files_of(output)


def flags_of(raw, output):
    flags = ["--input", raw, "--output", output, "--frequency_threshold", "2,5:9"]
    return [*map(str, flags), "--on_bad_line", "skip", "--bin_numericals"]


def killed(raw, output, is_time, **started):
    """Starts a preparation and kills it when is_time(line of its stderr); True if it came to it."""
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, output), "--engine", "spark"]
    run = subprocess.Popen(
        [*command, *QUICK],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **started,
    )
    try:
        for line in run.stderr:
            if is_time(line):
                children = [int(pid) for pid in children_of(run.pid)]
                assert children, "no JVM"
                run.kill()
                wait_until_gone(children)
                return True
    finally:
        run.kill()
        run.wait()
    return False


def children_of(pid):
    result = []
    for file in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):  # threads of Java come and go
            result += Path(file).read_text().split()
    return result + [below for child in result for below in children_of(child)]


def wait_until_gone(pids):
    deadline = time.monotonic() + 60
    while alive := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and running(pid)]:
        assert time.monotonic() < deadline, f"still there after the driver was killed: {alive}"
        time.sleep(0.1)


def running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.long
@pytest.mark.parametrize("is_killed", [True, False])
def test_run_on_a_cluster(raw, expected, tmp_path, is_killed):
    """Two executors in processes of their own, from the start or after a killed local run."""
    output = tmp_path / "an [odd] out"
    if is_killed:
        assert killed(raw, output, lambda line: "count cat_3" in line)
        assert not output.exists()
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, output), "--engine", "spark"]
    done = subprocess.run(
        [*command, *ON_A_CLUSTER], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    num_finished = (3 + 1 + 26) * is_killed
    assert len(re.findall("finished before", done.stderr)) == num_finished
    assert reference.files_of(output) == expected
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


@pytest.mark.long
def test_kills_at_random_moments(raw, expected, tmp_path):
    """Twenty times: after a random number of further stages and a random part of a second.

    A data set that is whole before the twentieth is compared, and the next one begun.
    """
    output, moments = tmp_path / "out_0", random.Random(0)
    kills = finished = 0
    while kills < 20:
        remaining = moments.randrange(1, 6)

        def is_time(line):
            nonlocal remaining
            if re.match(r"\[\d+/\d+\]", line) and "finished before" not in line:
                remaining -= 1
            if remaining:
                return False
            time.sleep(moments.random())
            return True

        was_killed = killed(raw, output, is_time)
        kills += was_killed
        if was_killed and not output.exists():
            (state,) = tmp_path.glob(f".{output.name}.*/state.json")
            assert state.read_text().count('"key"') >= finished
            finished = state.read_text().count('"key"')
        else:
            assert reference.files_of(output) == expected
            output, finished = tmp_path / f"out_{kills}", 0
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, output), "--engine", "spark"]
    done = subprocess.run([*command, *QUICK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(re.findall("finished before", done.stderr)) == finished
    assert reference.files_of(output) == expected


@pytest.mark.long
def test_interrupt(raw, tmp_path):
    """Ctrl-C prints one sentence and ends the JVM."""
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, tmp_path / "out")]
    flags = ["--engine", "spark", *QUICK]
    run = subprocess.Popen([*command, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    for line in run.stderr:
        if "count cat_1" in line:
            children = [int(pid) for pid in children_of(run.pid)]
            run.send_signal(signal.SIGINT)
            break
    rest = run.stderr.read()
    assert run.wait(60) == 130
    assert "interrupted; run it again" in rest and "Traceback" not in rest
    wait_until_gone(children)
