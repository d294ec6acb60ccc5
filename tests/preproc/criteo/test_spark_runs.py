"""Whole preparations with Spark: kills, resuming on a cluster, scripts, the files of DuckDB.

One log is prepared in two halves, because a Spark of its own costs each run its start: a local
master is killed in the middle, and the script finishes on a standalone cluster of two workers.
"""

import contextlib
import glob
import gzip
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dataloading.engines import environment
from preproc.criteo.generate_logs import generate_day
from tests.preproc.criteo import criteo_reference as reference

pytestmark = pytest.mark.skipif(
    not environment.is_installed("pyspark"), reason="no Spark: run `make engines`"
)
QUICK_JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PREPROC = Path(__file__).parents[3] / "preproc"
GPUS = {"RAPIDS_JAR": __file__, "MASTER": "yarn"}
NUM_FILLED = 6  # categorical columns
FEW_TASKS = ["--spark_conf", "spark.sql.shuffle.partitions=3"]
QUICK = ["--spark_conf", QUICK_JAVA, *FEW_TASKS, "--memory_limit", "3GB", "--threads", "2"]
JAVA_OPTIONS = QUICK_JAVA.partition("=")[2]
QUICK_EXECUTORS = ["--spark_conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}", *FEW_TASKS]


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
    subprocess.run([sys.executable, "-m", "preproc.criteo", *flags], check=True, cwd=PREPROC.parent)
    return contents(output)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def flags_of(raw, output):
    flags = ["--input", raw, "--output", output, "--frequency_threshold", "2,5:9"]
    return [*map(str, flags), "--on_bad_line", "skip", "--bin_numericals"]


def script(name, *arguments, **variables):
    return subprocess.run(
        [PREPROC / name, *map(str, arguments)],
        env={**os.environ, "PYTHON": "", **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def killed(raw, output, is_time, **started):
    """Starts a preparation and kills it when is_time(line of its stderr); True if it came to it."""
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, output), "--engine", "spark"]
    run = subprocess.Popen(
        [*command, *QUICK],
        cwd=PREPROC.parent,
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
def test_resume_on_a_cluster(raw, expected, tmp_path):
    output = tmp_path / "an [odd] out"
    assert killed(raw, output, lambda line: "count cat_3" in line)
    assert not output.exists()
    done = script(
        "prepare_dataset.sh",
        *("CPU", "2,5:9", "--on_bad_line", "skip", "--bin_numericals", *QUICK_EXECUTORS),
        **cluster(raw, output, tmp_path),
    )
    # Under spark-submit all output of Python is on stdout.
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("finished before", done.stdout)) == 3 + 1 + 26
    assert "conversion_intermediate_dir is not needed" in done.stderr
    assert contents(output) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["an [odd] out", "local"]


def cluster(raw, output, folder):
    """Variables of a standalone cluster of two workers with an executor each."""
    return {
        "download_dir": str(raw),
        "final_output_dir": str(output),
        "spark_output_path": str(folder / "local"),
        "conversion_intermediate_dir": "unused",
        "TOTAL_CORES": "2",
        "EXECUTOR_CORES": "1",
        "NUM_WORKERS": "2",
        "TOTAL_MEMORY": "4",
        "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }


@pytest.mark.long
def test_whole_run_on_a_cluster(raw, expected, tmp_path):
    flags = ["--on_bad_line", "skip", "--bin_numericals"]
    variables = cluster(raw, tmp_path / "out", tmp_path)
    done = script("prepare_dataset.sh", "CPU", "2,5:9", *flags, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished before" not in done.stdout
    assert contents(tmp_path / "out") == expected


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
            state = output.with_name(f"{output.name}.partial") / "state.json"
            assert state.read_text().count('"key"') >= finished
            finished = state.read_text().count('"key"')
        else:
            assert contents(output) == expected
            output, finished = tmp_path / f"out_{kills}", 0
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, output)]
    done = subprocess.run(
        [*command, "--engine", "spark", *QUICK],
        cwd=PREPROC.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(re.findall("finished before", done.stderr)) == finished
    assert contents(output) == expected


@pytest.mark.long
def test_interrupt(raw, tmp_path):
    """Ctrl-C prints one sentence and ends the JVM."""
    command = [sys.executable, "-m", "preproc.criteo", *flags_of(raw, tmp_path / "out")]
    run = subprocess.Popen(
        [*command, "--engine", "spark", *QUICK],
        cwd=PREPROC.parent,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in run.stderr:
        if "count cat_1" in line:
            children = [int(pid) for pid in children_of(run.pid)]
            run.send_signal(signal.SIGINT)
            break
    rest = run.stderr.read()
    assert run.wait(60) == 130
    assert "interrupted; run it again to resume" in rest
    assert "Traceback" not in rest
    wait_until_gone(children)


# Scripts


def test_local_run(raw, expected, tmp_path):
    variables = cluster(raw, tmp_path / "out", tmp_path)
    flags = ["--on_bad_line", "skip", "--bin_numericals"]
    done = script("prepare_dataset.sh", "local", "2,5:9", *flags, **variables)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == expected


@pytest.fixture
def stand_in(tmp_path):
    """Stand-in for spark-submit that prints its arguments, one per line."""
    path = tmp_path / "submit"
    path.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho "local dirs: $SPARK_LOCAL_DIRS"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def prepared(expected, tmp_path):
    """A complete data set of the thresholds 2 and, of cat_5, 9, as far as the script looks."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "feature_spec.yaml").write_bytes(expected["feature_spec.yaml"])
    return {"final_output_dir": str(tmp_path / "out"), "spark_output_path": str(tmp_path / "local")}


@pytest.mark.parametrize(
    ("threshold", "flags", "status", "message"),
    [
        ("2,5:9", [], 0, ""),
        ("2,5:9", ["--days", "0-1"], 0, "settings were not compared with --days 0-1; --overwrite"),
        ("3,5:9", [], 2, "threshold is not 3,5:9; to prepare it again, add --overwrite, move"),
        ("2", [], 2, "error: its frequency threshold is not 2; "),
        ("2,5:9,6:9", [], 2, "error: its frequency threshold is not 2,5:9,6:9; "),
        ("2,26:9", [], 2, "error: --frequency_threshold '2,26:9' names column 26"),
    ],
)
def test_existing_data_set(prepared, threshold, flags, status, message):
    done = script("prepare_dataset.sh", "local", threshold, *flags, **prepared)
    assert (done.returncode, bool(done.stderr)) == (status, bool(message))
    assert message in done.stderr
    if "names" not in message:
        there = "complete already: {'frequency_threshold': 2, 'column_thresholds': {'cat_5': 9}"
        assert there in done.stdout


def test_overwritten_data_set(prepared, stand_in):
    variables = {"SPARK_SUBMIT": stand_in, "MASTER": "yarn", "TOTAL_MEMORY": "8"}
    flags = ["--days", "0", "--overwrite"]
    done = script("prepare_dataset.sh", "CPU", "3", *flags, **variables, **prepared)
    assert done.returncode == 0, done.stderr
    assert "--frequency_threshold\n3\n--days\n0\n--overwrite\n" in done.stdout


def test_unreadable_feature_spec(prepared, tmp_path):
    (tmp_path / "out" / "feature_spec.yaml").write_text("")
    done = script("prepare_dataset.sh", "local", "2", **prepared)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search("^error: .*feature_spec.yaml: is empty", done.stderr)


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_to_the_script(tmp_path, sent, status):
    """A signal ends the script, spark-submit and its child processes."""
    submit = tmp_path / "submit"
    submit.write_text("#!/bin/sh\nsleep 300 &\necho $$ $!\nwait\n")
    submit.chmod(0o755)
    variables = {"SPARK_SUBMIT": str(submit), "MASTER": "yarn", "TOTAL_MEMORY": "8"}
    run = subprocess.Popen(
        [PREPROC / "run_spark_cpu.sh", "in", "out", "15"],
        env={**os.environ, "PYTHON": "", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell or `nohup` around these tests may ignore the signal, which the script inherits.
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),
    )
    started = [int(pid) for pid in run.stdout.readline().split()]
    assert all(map(running, started))
    run.send_signal(sent)
    assert (run.wait(60), run.stderr.read()) == (status, "interrupted; run it again to resume\n")
    wait_until_gone(started)


def test_status_of_spark_submit(tmp_path):
    submit = tmp_path / "submit"
    submit.write_text("#!/bin/sh\nexit 7\n")
    submit.chmod(0o755)
    variables = {"SPARK_SUBMIT": str(submit), "MASTER": "yarn", "TOTAL_MEMORY": "8"}
    assert script("run_spark_cpu.sh", "in", "out", "15", **variables).returncode == 7


@pytest.mark.parametrize("limit", ["max", str(4 << 30)])
def test_memory_of_a_container(limit):
    """TOTAL_MEMORY is 80 % of the machine's memory, or of the container's limit if that is less."""
    code = 'check_counts() { :; }; cat() { echo $LIMIT; }; . "$0"; echo $TOTAL_MEMORY'
    command = ["bash", "-euc", code, str(PREPROC / "cpu_config.sh")]
    environment = {"PATH": os.environ["PATH"], "LIMIT": limit}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    least = machine if limit == "max" else min(machine, int(limit))
    assert int(done.stdout) == int(least * 0.8 / (1 << 30))


def test_command_line(stand_in, tmp_path):
    done = script(
        "run_spark_cpu.sh",
        *("in", "out", "15,5:30", "--days", "0-2"),
        SPARK_SUBMIT=stand_in,
        MASTER="yarn",
        TOTAL_CORES="40",
        TOTAL_MEMORY="100",
        SPARK_LOCAL_DIRS="here",
        INPUT_PATH="not this",
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:4] == ["--master", "yarn", "--driver-memory", "4096m"]
    # 8 executors share 96 GB, three quarters of it as heap.
    assert {"spark.executor.cores=5", "spark.cores.max=40"} < set(words)
    assert "spark.executor.memory=9216m" in words
    assert "spark.executor.memoryOverhead=3072m" in words
    assert "spark.executor.instances=8" in words
    assert "spark.sql.shuffle.partitions=120" in words
    job = str(PREPROC / "criteo" / "spark_job.py")
    flags = ["--input", "in", "--output", "out", "--frequency_threshold", "15,5:30"]
    assert words[words.index(job) :] == [job, *flags, "--days", "0-2", "local dirs: here"]


def test_command_line_from_variables(stand_in, tmp_path):
    variables = {"INPUT_PATH": "i", "OUTPUT_PATH": "o", "MASTER": "local[2]"}
    done = script("run_spark_cpu.sh", SPARK_SUBMIT=stand_in, TOTAL_MEMORY="8", **variables)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    at = words.index("--input")
    expected = ["--input", "i", "--output", "o", "--frequency_threshold", "15"]
    assert words[at : at + 6] == expected
    assert "memoryOverhead" not in done.stdout  # the worker leaves it


def test_default_folders(stand_in):
    """Without arguments the folders are those of NVIDIA's recipe."""
    done = script("run_spark_cpu.sh", SPARK_SUBMIT=stand_in, MASTER="yarn", TOTAL_MEMORY="8")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    folders = ("/data/criteo_orig", "/data/preprocessed")
    if Path("/data/dlrm/criteo").is_dir():
        folders = ("/data/dlrm/criteo", "/data/dlrm/binary_dataset")
    at = words.index("--input")
    expected = ["--input", folders[0], "--output", folders[1], "--frequency_threshold", "15"]
    assert words[at : at + 6] == expected


@pytest.mark.parametrize(
    ("variables", "flag", "value"),
    [
        ({"FREQUENCY_LIMIT": "15,14:30"}, "--frequency_limit", "15,14:30"),
        ({"FREQUENCY_LIMIT": "8", "USE_FREQUENCY_LIMIT": "1"}, "--frequency_limit", "8"),
        ({"FREQUENCY_LIMIT": "8", "USE_FREQUENCY_LIMIT": "0"}, "--frequency_threshold", "0"),
        ({"USE_FREQUENCY_LIMIT": "1"}, "--frequency_threshold", "15"),
        ({"USE_FREQUENCY_LIMIT": "8"}, "--frequency_threshold", "8"),
        ({"FREQUENCY_LIMIT": "8", "FREQUENCY_THRESHOLD": "3"}, "--frequency_threshold", "3"),
    ],
)
def test_frequency_limit_from_variables(stand_in, variables, flag, value):
    spark = {"SPARK_SUBMIT": stand_in, "MASTER": "yarn", "TOTAL_MEMORY": "8"}
    done = script("run_spark_cpu.sh", "i", "o", **spark, **variables)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[words.index("--output") + 2 :][:2] == [flag, value]


def test_executors_from_variables(stand_in):
    """NVIDIA's script: 8 executors of 10 cores share what the driver leaves."""
    spark = {"SPARK_SUBMIT": stand_in, "MASTER": "yarn", "TOTAL_CORES": "80", "TOTAL_MEMORY": "800"}
    done = script("run_spark_cpu.sh", "i", "o", "15", NUM_EXECUTORS="8", **spark)
    words = done.stdout.splitlines()
    assert {"spark.executor.cores=10", "spark.executor.instances=8"} < set(words)
    sizes = {"NUM_EXECUTOR_CORES": "4", "EXECUTOR_MEMORY": "96", "DRIVER_MEMORY": "32"}
    done = script("run_spark_cpu.sh", "i", "o", "15", **sizes, **spark)
    words = done.stdout.splitlines()
    assert words[words.index("--driver-memory") + 1] == "32768m"
    assert {"spark.executor.cores=4", "spark.executor.memory=98304m"} < set(words)
    done = script("run_spark_cpu.sh", "i", "o", "15", EXECUTOR_MEMORY="96G", **spark)
    assert done.returncode == 2 and "EXECUTOR_MEMORY is '96G'; it must be a whole" in done.stderr


def test_name_of_the_machine(stand_in, tmp_path):
    """The fourth argument of NVIDIA's run_spark_gpu.sh names the profile."""
    variables = {**GPUS, "SPARK_SUBMIT": stand_in, "NUM_EXECUTORS": "8", "NUM_EXECUTOR_CORES": "4"}
    done = script("run_spark_gpu.sh", "i", "o", "15", "DGX2", "--days", "0", **variables)
    assert done.returncode == 0, done.stderr
    assert "--frequency_threshold\n15\n--days\n0\n" in done.stdout
    words = done.stdout.splitlines()
    assert {"spark.executor.instances=8", "spark.executor.cores=4"} < set(words)


def test_script_of_the_root(root, stand_in, tmp_path):
    """`./prepare_dataset.sh CPU 15` without `cd preproc`, as in the documents of 2023."""
    done = script(
        root / "prepare_dataset.sh",
        *("CPU", "15"),
        SPARK_SUBMIT=stand_in,
        MASTER="yarn",
        TOTAL_MEMORY="8",
        download_dir="raw",
        final_output_dir=str(tmp_path / "out"),
        spark_output_path=str(tmp_path / "local"),
    )
    assert done.returncode == 0, done.stderr
    assert "--input\nraw\n" in done.stdout and "--frequency_threshold\n15\n" in done.stdout
    assert f"local dirs: {tmp_path / 'local'}" in done.stdout


def test_command_line_on_gpus(stand_in, tmp_path):
    jar = tmp_path / "rapids.jar"
    jar.touch()
    done = script(
        "prepare_dataset.sh",
        *("DGX2", "3"),
        SPARK_SUBMIT=stand_in,
        RAPIDS_JAR=str(jar),
        MASTER="k8s://https://somewhere",
        download_dir="raw",
        final_output_dir=str(tmp_path / "out"),
        spark_output_path=str(tmp_path / "local"),
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[words.index("--jars") + 1] == str(jar)
    assert "spark.plugins=com.nvidia.spark.SQLPlugin" in words
    assert "spark.task.resource.gpu.amount=0.2" in words
    assert "spark.executor.memory=25344m" in words
    assert "spark.executor.memoryOverhead=25344m" in words
    assert "spark.executor.instances=16" in words
    assert f"local dirs: {tmp_path / 'local'}" in words


@pytest.mark.parametrize(
    ("command", "variables", "message"),
    [
        ("prepare_dataset.sh CPU", {}, "usage: prepare_dataset.sh <CPU|DGX2|local>"),
        ("prepare_dataset.sh GPU 15", {}, "the platform is 'GPU'; it must be CPU, DGX2 or local"),
        ("prepare_dataset.sh CPU 1,2", {}, "the frequency threshold is '1,2'; write one number"),
        ("run_spark_cpu.sh i o 1", {"NUM_WORKERS": "999"}, "too few for 999 workers"),
        ("run_spark_cpu.sh i o 1", {"TOTAL_MEMORY": "1"}, "TOTAL_MEMORY is 1 GB, which leaves"),
        (
            "run_spark_cpu.sh i o 1",
            {"PYTHON": "/bin/false"},
            "PySpark is not installed for /bin/false; install it with `make engines`",
        ),
        ("run_spark_gpu.sh i o 1", {}, "RAPIDS_JAR is '', no file"),
        ("run_spark.sh DGX2 i o 1", {}, "RAPIDS_JAR is '', no file"),
        ("run_spark.sh GPU i o", {}, "usage: run_spark.sh <CPU|DGX2> INPUT OUTPUT"),
        (
            "run_spark_gpu.sh i o 1",
            {"RAPIDS_JAR": __file__},
            "GPU_DISCOVERY_SCRIPT is '', no script; set it .* or name a MASTER",
        ),
        *(
            ("run_spark_cpu.sh i o 1", {name: value}, f"{name} is '{value}'; it must be a whole")
            for name, value in (
                ("NUM_WORKERS", "0"),
                ("TOTAL_CORES", "0"),
                ("TOTAL_CORES", "abc"),
                ("EXECUTOR_CORES", "0"),
                ("TOTAL_MEMORY", "1.5"),
                ("TOTAL_MEMORY", "8G"),
            )
        ),
        (
            "run_spark_gpu.sh i o 1",
            {**GPUS, "TOTAL_GPUS": "x"},
            "TOTAL_GPUS is 'x'; .* like TOTAL_",
        ),
        (
            "run_spark_gpu.sh i o 1",
            {**GPUS, "TOTAL_CORES": "8"},
            "TOTAL_CORES is 8, too few for an executor on each of 16 GPUs; raise TOTAL_CORES or",
        ),
        (
            "run_spark_gpu.sh i o 1",
            {**GPUS, "NUM_WORKERS": "17"},
            "NUM_WORKERS is 17, more than the 16 GPUs; lower NUM_WORKERS or raise TOTAL_GPUS",
        ),
        (
            "prepare_dataset.sh CPU 1",
            {"spark_output_path": "a,b", "final_output_dir": "out"},
            "spark_output_path is 'a,b', where Spark would read several folders",
        ),
    ],
)
def test_refusals(command, variables, message):
    done = script(*command.split(), **variables)
    assert done.returncode == 2
    assert re.search(message, done.stderr), done.stderr


def test_cluster_start_failure(tmp_path):
    (tmp_path / "bin").mkdir()
    spark_class = tmp_path / "bin" / "spark-class"
    spark_class.write_text("#!/bin/sh\necho broken\nexit 1\n")
    spark_class.chmod(0o755)
    done = script("run_spark_cpu.sh", "i", "o", "1", SPARK_HOME=str(tmp_path), TOTAL_MEMORY="8")
    assert done.returncode == 2
    assert "broken\nerror: a daemon of Spark did not start; its log is above" in done.stderr
