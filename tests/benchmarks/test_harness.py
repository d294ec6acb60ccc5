"""The harness of the benchmarks: sides in turn, refused results, pages, memory of commands."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.harness import preparations, training
from benchmarks.harness.preparations import PreparationRun
from benchmarks.harness.report import Page, command
from benchmarks.harness.training import Case, CaseResult, Side, Worker
from benchmarks.harness.worker import load, save, timed_steps
from benchmarks.sequence_training.workload import SequenceRows, SequenceSizes

OURS, PEER = Side("ours", "ours"), Side("peer", "peer", is_torch=True)
KEPT, LOW = (
    PEER._replace(name="kept", keeps_memory=True),
    OURS._replace(name="low precision", is_compared=False),
)
CASE = Case("sim", (OURS, PEER, KEPT, LOW), 64, {"a": 1}, 1e-3, 1.5, compared_options={"a": 0})
ARGS = SimpleNamespace(
    rounds=2, steps=2, warmup_steps=5, threads=1, other=None, quick=False, output=None
)
LOSSES = {"ours": 3.0, "peer": 3.0001, "kept": 3.0, "low precision": 3.1}


@pytest.fixture
def stand_ins(monkeypatch):
    """Sides without processes; the requests of each in order."""
    requests = []

    class StandIn:
        def __init__(self, side, folder, args):
            self.name = side.name

        def ask(self, **request):
            requests.append((self.name, request))
            ms = 10.0 if self.name == "ours" else 20.0
            turn = {"ms": [ms] * 2, "losses": [LOSSES[self.name]], "cpu_s": 0.0, "faults": 1.0}
            return {"version": "1.0"} if "start" in request else {**turn, "peak_mib": 1024.0}

        def close(self):
            requests.append((self.name, "close"))

    monkeypatch.setattr(training, "Worker", StandIn)
    return requests


def test_measured_case(stand_ins, tmp_path):
    """Losses are compared, sides warm up, the order of the turns alternates."""
    result = training.measure(CASE, tmp_path, ARGS)
    assert result.first_losses == [3.0]
    assert result.slower(PEER).tolist() == [2.0, 2.0]
    ours = [request for name, request in stand_ins if name == "ours"]
    assert ours == [
        *({"start": {"a": 0}}, {"steps": 3}, {"start": {"a": 1}}, {"steps": 5}),
        *({"steps": 2}, {"steps": 2}, "close"),
    ]
    turns = [name for name, request in stand_ins if request == {"steps": 2}]
    assert turns == [*(side.name for side in CASE.sides[::-1]), *(s.name for s in CASE.sides)]


def test_different_models(stand_ins, tmp_path, monkeypatch):
    monkeypatch.setitem(LOSSES, "peer", 3.1)
    with pytest.raises(RuntimeError, match=r"(?s)of sim: .*peer \[3\.1\]"):
        training.measure(CASE, tmp_path, ARGS)
    assert stand_ins[-1][1] == "close"


@pytest.mark.parametrize(("target", "status"), [(1.5, 0), (2.5, 1)])
def test_page_and_status(stand_ins, capsys, target, status):
    case = CASE._replace(target=target)
    rows = lambda folder, case: None  # noqa: E731
    assert training.run("name", "Title", [case], rows, ["a fact"], ARGS) == status
    page = capsys.readouterr().out
    assert "| sim | peer | 20.0 [20.0, 20.0] | 3200 [3200, 3200] | 1.00 | 1 | 2.00" in page
    assert f"sim: 2.00 times the samples per second of peer; target {target}" in page


def test_other_checkout(stand_ins, tmp_path):
    """A toolkit in another checkout is the only peer."""
    args = SimpleNamespace(**{**vars(ARGS), "other": tmp_path})
    LOSSES[str(tmp_path)] = 3.0
    (result,) = training.measure_all([CASE], lambda folder, case: None, args)
    assert [side.root for side in result.case.sides] == [training.ROOT, tmp_path]
    assert isinstance(result, CaseResult) and result.case.target is None


def test_dead_worker(tmp_path):
    worker = Worker(OURS._replace(module="harness.no_such_module"), tmp_path, ARGS)
    with pytest.raises(RuntimeError, match="ours died during .*No module named"):
        worker.ask(start={})
    worker.close()


def test_missing_torch(capsys):
    with pytest.raises(SystemExit):
        training.parse(training.parser_of("Trains."), ["--torch_python", "/nowhere"], "bench")
    assert "--torch_python /nowhere has no torch: `make bench`" in capsys.readouterr().err


def test_timed_steps():
    losses = iter([3.0, 2.0])
    answer = timed_steps(lambda: next(losses), 2)
    assert answer["losses"] == [3.0, 2.0] and len(answer["ms"]) == 2
    assert answer["peak_mib"] > 1


def test_rows_on_disk(tmp_path):
    sizes = SequenceSizes(batch_size=3, stage_two_mlp_dims=(8, 4))
    rows = SequenceRows(*(np.full([3, 2], i) for i in range(8)))
    save(tmp_path, rows, sizes)
    stored, stored_sizes = load(tmp_path, SequenceRows, SequenceSizes)
    assert stored_sizes == sizes
    assert all((a == b).all() for a, b in zip(stored, rows, strict=True))


def test_verdicts():
    page = Page("Title", ["`command`"], [])
    page.judge("fast", 2, is_met=True)
    page.judge("known")
    assert page.is_met and "- fast; target 2: met\n- known; for information" in str(page)
    page.judge("slow", 2, is_met=False)
    assert not page.is_met and "- slow; target 2: MISSED" in str(page)


def test_command_line():
    args = SimpleNamespace(rows=3, quick=True, other=None, work=Path("x"), dims=(1, 2))
    assert command("loader", args) == "`python -m benchmarks.loader --rows 3 --quick --dims 1,2`"


ALLOCATE = "import time; held = b'x' * (200 << 20); time.sleep(1.2)"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ALLOCATE!r}])"


@pytest.fixture
def run_text(monkeypatch, tmp_path):
    """Runs Python text as a module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run_module(text):
        (tmp_path / "written_module.py").write_text(text)
        return preparations.run("written_module")

    return run_module


@pytest.mark.parametrize("script", [ALLOCATE, IN_A_CHILD], ids=["itself", "a child"])
def test_memory_of_a_command(script, run_text):
    result = run_text(script)
    assert result.elapsed_s > 1.2
    assert 200 < result.peak_mib < 300


def test_failing_command(run_text):
    with pytest.raises(RuntimeError, match="failed with 3:\nwhy not"):
        run_text("import sys; print('why not'); sys.exit(3)")


def test_engines_in_turn():
    order = []

    def side(name, digest="same"):
        return lambda: order.append(name) or PreparationRun(2.0, 1.0, 100.0, digest)

    runs = preparations.compare({"a": side("a"), "b": side("b")}, 2)
    assert order == ["a", "b", "b", "a"]
    assert "| a | 2.0 [2.0, 2.0] | 500 | 1.0 [1.0, 1.0] | 100 |" in preparations.table(
        runs, "rows", 1000
    )
    with pytest.raises(RuntimeError, match="different files"):
        preparations.compare({"a": side("a"), "b": side("b", "other")}, 1)


def test_checksum(tmp_path):
    """Files count by name and content; Parquet files without the version of Arrow."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"rows parquet-cpp-arrow version 25.0.1")
    digest = preparations.checksum(tmp_path)
    path.write_bytes(b"rows parquet-cpp-arrow version 26.0.1")
    assert preparations.checksum(tmp_path) == digest
    path.rename(tmp_path / "b.parquet")
    assert preparations.checksum(tmp_path) != digest
