"""The harness of the benchmarks: sides in turn, and refused results."""

from types import SimpleNamespace

import pytest

from benchmarks.harness import preparations, training
from benchmarks.harness.preparations import PreparationRun
from benchmarks.harness.report import Page
from benchmarks.harness.training import Case, Side

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


def test_verdicts():
    page = Page("Title", ["`command`"], [])
    page.judge("fast", 2, is_met=True)
    page.judge("known")
    assert page.is_met and "- fast; target 2: met\n- known; for information" in str(page)
    page.judge("slow", 2, is_met=False)
    assert not page.is_met and "- slow; target 2: MISSED" in str(page)


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
