"""The benchmark of several ranks and one: parts, processes, page, and a small run."""

import argparse
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed_embeddings.planner.traffic import KINDS

from benchmarks import rank_scaling
from benchmarks.dlrm_training import step_parts
from benchmarks.dlrm_training import workload as dlrm_workload
from benchmarks.harness import ranks as ranks_module
from benchmarks.harness.ranks import Ranks
from benchmarks.harness.training import TrainingMeasurements

# Two "ranks" that a shell launches, and what they do.
TWO = ["sh", "-c", 'RANK=1 "$@" & RANK=0 "$@" & wait', "launch"]
RANK = [
    sys.executable,
    "-c",
    "import os, sys\n"
    "from benchmarks.harness.worker import serve\n"
    "rank = int(os.environ.get('RANK', 0))\n"
    "def add(a, b): return {'sum': a + b + rank, 'pid': os.getpid()}\n"
    "serve({'add': add}, sys.argv[-1], rank)\n",
]
SMALL_TABLES = ",".join(map(str, [50] * 26))


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("IteratorGetNext:IteratorGetNext", "batch from the iterator"),
        ("PyFunc:PyFunc", "batch from the iterator"),
        ("ranking_model/embedding/embedding.1.ids:HorovodAlltoall", "exchange: ids"),
        ("ranking_model/embedding/embedding.1.lengths:HorovodAlltoall", "exchange: ids"),
        ("ranking_model/embedding/embedding.1.vectors:HorovodAlltoall", "exchange: vectors"),
        ("a/embedding.1.uncombined.0.12:HorovodAlltoall", "exchange: vectors"),
        ("embedding.1.vectors.gradient:HorovodAlltoall", "exchange: gradients of vectors"),
        ("embedding.1.rows.gradient:HorovodAlltoall", "exchange: gradients of vectors"),
        (
            "gradients.dense.float32:HorovodGroupedAllreduce",
            "exchange: sum of the dense gradients",
        ),
        ("gradients.values.3:HorovodAllgather", "exchange: the rest"),
        ("ranking_model/embedding/GatherV2:GatherV2", "vectors: from and to the order of ranks"),
        ("GatherV2_1:GatherV2", "vectors: from and to the order of ranks"),
        ("GatherV2:GatherV2", "interaction: triangle, joining and splitting"),
        ("Unique:Unique", "rows: duplicates and order"),
        ("argsort/TopKV2:TopKV2", "rows: duplicates and order"),
        ("UnsortedSegmentSum_1:UnsortedSegmentSum", "rows: duplicates and order"),
        ("Bitcast:Bitcast", "casts"),
    ],
)
def test_parts_of_ranks(operation, part):
    assert step_parts.part_of(operation) == part


def test_time_of_waiting():
    shares = step_parts.share_out(
        [
            step_parts.Interval("exchange", 0, 10, waits=True),
            step_parts.Interval("product", 2, 5),
            step_parts.Interval("sum", 8, 14, waits=True),
        ]
    )
    assert shares == {"exchange": 2 + 3 + 1, "product": 3, "sum": 1 + 4}


def test_asynchronous_operation():
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    plane = space.planes.add()
    texts = ["name", "kernel_type", "step_id", "embedding.1.ids", "HorovodAlltoall"]
    for number, text in enumerate(texts):
        plane.stat_metadata[number].name = text
    names = ["ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"]
    names += ["a/Relu:Relu", "ExecutorState::Process"]
    for number, name in enumerate(names):
        plane.event_metadata[number].name = name
    line = plane.lines.add(timestamp_ns=1)

    def add_event(number, begin, duration, step=None):
        event = line.events.add(metadata_id=number, offset_ps=begin, duration_ps=duration)
        if step is not None:
            event.stats.add(metadata_id=0, ref_value=3)
            event.stats.add(metadata_id=1, ref_value=4)
            event.stats.add(metadata_id=2, int64_value=step)

    add_event(0, 10, 5, step=1)
    add_event(2, 20, 30)
    add_event(3, 20, 40)
    add_event(1, 70, 9, step=1)
    add_event(0, 200, 5, step=2)  # the trace ended before it was done
    measurements = step_parts.intervals_of(space.SerializeToString())
    assert sorted(measurements) == [
        ("dense layers: forward products, bias, ReLU", 1020, 1050, False),
        ("exchange: ids", 1010, 1070, True),
    ]


def test_order_of_parts():
    parts = [step_parts.WAITING, "exchange: vectors", step_parts.OTHER, "casts"]
    assert step_parts.in_order(parts) == [parts[3], parts[1], parts[2], parts[0]]


def test_settings_and_sides():
    sides = one, mpi = rank_scaling.sides_of(["mpi"], threads=4, ranks=2)
    assert (one.name, one.num_ranks, one.threads) == ("1 rank x 4 threads", 1, 4)
    assert mpi.name == "2 ranks x 2 threads, MPI (mpirun)"
    assert (mpi.launch[0], mpi.launch[-2:], mpi.threads) == ("mpirun", ("-np", "2"), 2)
    cases = rank_scaling.cases_of(arguments(precisions=["float32"], batch_sizes=[8, 64]), sides)
    assert [case.name for case in cases] == [
        "batch 8, float32",
        "batch 8, float32, vectors travel as bfloat16",
        "batch 64, float32",
        "batch 64, float32, vectors travel as bfloat16",
    ]
    (case,) = rank_scaling.cases_of(arguments(precisions=["bfloat16"], trace_steps=0), sides)
    assert case.options == {"flags": {"amp": True}, "batch_size": 1000}
    assert case.parts == () and case.warmup_steps == 3
    assert cases[0].parts[0].flags[-2:] == ("--inter_op_threads", "1")
    assert [rank_scaling.num_batches(size) for size in (64, 8192, 65536, 2**20)] == [16, 16, 4, 4]


def test_missing_launchers(monkeypatch):
    if why := rank_scaling.why_missing("gloo"):
        pytest.skip(why)
    monkeypatch.setattr(rank_scaling, "_HAS_MPI", "raise SystemExit(1)")
    monkeypatch.setattr(rank_scaling.shutil, "which", lambda name: "/usr/bin/mpirun")
    assert rank_scaling.why_missing("mpi") == "Horovod was built without MPI"
    monkeypatch.setattr(rank_scaling.shutil, "which", lambda name: None)
    assert rank_scaling.why_missing("mpi") == "mpirun is not installed"
    monkeypatch.setattr(rank_scaling, "_horovodrun", lambda: Path("/nowhere/horovodrun"))
    assert "Horovod is not installed" in rank_scaling.why_missing("gloo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "3"], "--ranks 2 cannot share --threads 3 evenly"),
        (["--launchers", "gloo,nccl"], "--launchers are gloo,mpi, got nccl"),
        (["--precisions", "float64"], "--precisions are float32,bfloat16, got float64"),
        (["--launchers", "mpi"], "no ranks to measure: mpirun is not installed"),
    ],
)
def test_invalid_arguments(options, message, monkeypatch, capsys):
    monkeypatch.setattr(rank_scaling, "why_missing", lambda name: "mpirun is not installed")
    with pytest.raises(SystemExit):
        rank_scaling.main(options)
    assert message in capsys.readouterr().err


def state_of(pid: int) -> str:
    """Linux' letter for it: T is stopped; empty without one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it may also end between its being opened and read
        return ""
    return stat.rpartition(")")[2].split()[0]


def comes_to(pid: int, states: tuple[str, ...]) -> bool:
    """Returns whether a process comes into one of the states, however busy the machine is."""
    deadline = time.monotonic() + 60
    while state_of(pid) not in states and time.monotonic() < deadline:
        time.sleep(0.02)
    return state_of(pid) in states


def stops(pid: int) -> bool:
    return comes_to(pid, ("T",))


def ends(pid: int) -> bool:
    return comes_to(pid, ("", "Z"))


def test_ranks_in_order(root, monkeypatch):
    monkeypatch.chdir(root)
    side = Ranks("two", RANK, TWO, 2)
    answers = side.ask("add", a=1, b=2)
    assert [answer["sum"] for answer in answers] == [3, 4]
    assert all(stops(answer["pid"]) for answer in answers)
    assert side.ask("add", a=2, b=2)[1]["sum"] == 5
    side.close()
    assert all(ends(answer["pid"]) for answer in answers)


def test_death_of_a_rank(root, monkeypatch):
    monkeypatch.chdir(root)
    side = Ranks("two", RANK, TWO, 2)
    pids = [answer["pid"] for answer in side.ask("add", a=1, b=2)]
    with pytest.raises(RuntimeError, match=r"(?s)two died during 'multiply'.*KeyError"):
        side.ask("multiply")
    side.close()
    assert all(map(ends, pids))


@pytest.mark.quick("no rank comes")
@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (["sh", "-c", "echo cannot start; exit 3"], "0 of 2 ranks came: cannot start"),
        (["sh", "-c", "exec sleep 60"], "0 of 2 ranks came"),
        ([], "1 of 2 ranks came"),
    ],
    ids=["launcher ends", "no rank comes", "one comes"],
)
def test_absent_ranks(launch, message, root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setattr(ranks_module, "START_TIMEOUT_S", 3.0)
    with pytest.raises(RuntimeError, match=f"two: {message}"):
        Ranks("two", RANK, launch, 2)


def test_end_of_ranks_after_a_killed_driver(root):
    program = (
        "from tests.benchmarks.test_rank_scaling import *\n"
        "side = Ranks('two', RANK, TWO, 2)\n"
        "print(*(answer['pid'] for answer in side.ask('add', a=1, b=2)), flush=True)\n"
        "time.sleep(60)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(stops, pids))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    assert all(map(ends, pids))


def arguments(**changes):
    values = {
        "batch_sizes": (1000,),
        "rounds": 3,
        "warmup_rounds": 1,
        "steps": 3,
        "trace_steps": 5,
        "threads": 2,
        "ranks": 2,
        "launchers": ("gloo",),
        "precisions": ("float32", "bfloat16"),
        "table_rows": dlrm_workload.TABLE_ROWS,
    }
    return argparse.Namespace(**values | changes)


def made_up(ms_of_ranks):
    """One rank took 90, 100 and 110 ms per step; two took `ms_of_ranks`, in each setting."""
    sides = one, two = rank_scaling.sides_of(["gloo"], threads=2, ranks=2)
    measurements = TrainingMeasurements(rank_scaling.cases_of(arguments(), sides))
    sent = dict(zip(KINDS, (1e6, 2e6, 3e6, 0.0, 4e6), strict=True))
    for case in measurements.cases:
        measurements.step_ms[one.name, case] = [90.0, 100.0, 110.0]
        measurements.step_ms[two.name, case] = ms_of_ranks
        measurements.cpu_ms[one.name, case] = [[(150.0, 5.0)]] * 3
        measurements.cpu_ms[two.name, case] = [[(80.0, 7.0), (90.0, 9.0)]] * 3
        for side in sides:
            measurements.faults[side.name, case] = [1.0] * 3
            described = {"version": "2.0", "peak_kib": 2**21, "sent": sent}
            measurements.described[side.name, case] = [described] * side.num_ranks
        measurements.first_losses[case] = [0.7]
    case = "batch 1,000, float32"
    measurements.parts[one.name, case] = [{"casts": 1.0, "between operations": 99.0}]
    measurements.parts[two.name, case] = [
        {"casts": 0.5, "exchange: ids": 30.0, "between operations": 60.0},
        {"casts": 0.4, "exchange: ids": 50.0, "between operations": 40.0},
    ]
    measurements.foreign_cpu = [0.1]
    return measurements


def rendered(measurements, missing=()):
    if why := rank_scaling.why_missing("gloo"):
        pytest.skip(why)
    return rank_scaling.page_of(measurements, arguments(), dict(missing))


def test_page_of_made_up_measurements():
    # Ratios within a round: 0.9, 0.8, 1.1.
    page = rendered(made_up([100.0, 125.0, 100.0]), {"mpi": "mpirun is not installed"})
    assert page.is_met
    case, one, two = "batch 1,000, float32", "1 rank x 2 threads", "2 ranks x 1 thread, Gloo"
    two += " (horovodrun)"
    low = "batch 1,000, bfloat16"
    for line in (
        "- not measured, mpi: mpirun is not installed",
        f"| {case} | {one} | 100 [95, 105] | 10000 [9545, 10556] | 1 |  |",
        f"| {case} | {two} | 100 [100, 112] | 10000 [9000, 10000] | 1 | 0.900 [0.850, 1.000] |",
        f"| {case} | {two} | 0 | 80 | 7 | 186 | 2.00 |",
        f"| {case} | {two} | 1 | 90 | 9 |  | 2.00 |",
        f"| {low} | 1 | 1.0 | 2.0 | 3.0 | 0.0 | 4.0 | 10.0 |",
        f"| part | {one}: rank 0 | {two}: rank 0 | {two}: rank 1 |",
        "| exchange: ids | 0.0 | 30.0 | 50.0 |",
        "| sum | 100.0 | 90.5 | 90.4 |",
        f"- {case}, {two}: 0.900 of one rank's samples per second; target 0.85: met",
        f"- {low}, {two}: 0.900 of one rank's samples per second; for information",
    ):
        assert line in str(page).splitlines(), str(page)
    assert f"At {low}" not in str(page)  # it was not traced


def test_missed_target():
    page = rendered(made_up([100.0, 120.0, 140.0]))
    assert not page.is_met
    assert "0.833 of one rank's samples per second; target 0.85: MISSED" in str(page)


@pytest.mark.long
def test_small_run(root, run_script, tmp_path):
    if why := rank_scaling.why_missing("gloo"):
        pytest.skip(why)
    options = ["--batch_sizes", "64", "--rounds", "1", "--warmup_rounds", "0", "--steps", "1"]
    options += ["--trace_steps", "1", "--launchers", "gloo", "--precisions", "bfloat16"]
    options += ["--table_rows", SMALL_TABLES, "--output", tmp_path / "page.md"]
    done = run_script("-m", "benchmarks.rank_scaling", *options, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "page.md").read_text()
    assert page in done.stdout
    assert f"--table_rows {SMALL_TABLES}" in page
    assert re.search(r"2 ranks x 1 thread, Gloo .*samples per second; for information\n", page)
    (row,) = re.findall(r"^\| exchange: sum of the dense gradients (.*) \|$", page, re.MULTILINE)
    one, *ranks = [float(value) for value in row.strip("| ").split(" | ")]
    assert one == 0.0
    assert len(ranks) == 2
    assert sum(ranks) > 0.0
