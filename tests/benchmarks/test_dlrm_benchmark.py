"""The DLRM benchmark, the harness of training benchmarks, and reading a trace."""

import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.dlrm_training import __main__ as dlrm_training
from benchmarks.dlrm_training import step_parts, workload
from benchmarks.harness import training, workload_files
from benchmarks.harness.ranks import Ranks
from benchmarks.harness.training import Case
from benchmarks.harness.worker import timed_in_turn, timed_steps

ECHO = [
    sys.executable,
    "-c",
    "import sys\n"
    "from benchmarks.harness.worker import serve\n"
    "def add(a, b): print('noise'); return {'sum': a + b}\n"
    "serve({'add': add}, sys.argv[-1])",
]


def test_sizes_of_the_issue():
    assert len(workload.TABLE_ROWS) == 26
    assert sum(workload.TABLE_ROWS) == 400_000
    assert workload.INTERACTION_WIDTH == 479
    products = workload.products()
    assert len(products) == 3 * 8 + 3
    assert sum(product.gflop for product in products) == pytest.approx(120.9, abs=0.05)


@pytest.mark.parametrize("product", workload.products(), ids=str)
def test_shapes_of_operands(product):
    a, b = product.a, product.b
    rows, inner = a[-2:][::-1] if product.transpose_a else a[-2:]
    inner_b, columns = b[-2:][::-1] if product.transpose_b else b[-2:]
    assert inner == inner_b
    assert a[:-2] == b[:-2]
    batch = workload.BATCH_SIZE if len(a) == 3 else 1
    assert 2 * batch * rows * inner * columns / 1e9 == product.gflop


def test_rows_on_disk(tmp_path):
    shapes = ((2, 13), "f4"), ((2, 26), "i8"), ((2, 1), "f4")
    rows = workload.DLRMRows(*(np.ones(shape, dtype) for shape, dtype in shapes))
    workload_files.save_rows(tmp_path / "rows.npz", rows)
    stored = workload_files.load_rows(tmp_path / "rows.npz", workload.DLRMRows)
    assert np.array_equal(stored.ids, rows.ids)


def test_time_of_concurrent_operations():
    shares = step_parts.share_out(
        [
            step_parts.Interval("a", 0, 10),
            step_parts.Interval("b", 5, 15),
            step_parts.Interval("a", 20, 21),
        ]
    )
    assert shares == {"a": 5 + 2.5 + 1, "b": 2.5 + 5}


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("model/dense_0/Relu:_MklNativeFusedMatMul", "dense layers: forward products, bias, ReLU"),
        ("MatMul_3:_MklMatMul", "dense layers: backward products, bias gradients"),
        ("dot/MatMul:_MklBatchMatMulV2", "interaction: matrix products"),
        ("dot/DotBasedInteract:DotBasedInteract", "interaction: fused op"),
        ("gradients/Grad:DotBasedInteractGrad", "interaction: fused op"),
        ("embedding/Gather:ResourceGather", "table rows: gather"),
        ("GatherV2:GatherV2", "interaction: triangle, joining and splitting"),
        ("ResourceScatterSub:ResourceScatterSub", "table rows: update"),
        ("IteratorGetNextOp::DoCompute", "batch from the iterator"),
        ("Log1p:Log1p", "loss and the rest"),
    ],
)
def test_parts(operation, part):
    assert step_parts.part_of(operation) == part


def test_parts_of_a_traced_step(tmp_path):
    import tensorflow as tf

    x = tf.ones([256, 256])
    multiply = tf.function(lambda: tf.linalg.matmul(x, tf.sqrt(x)))
    parts = dict(step_parts.parts_ms(lambda: multiply().numpy(), 3, str(tmp_path)))
    assert parts["dense layers: backward products, bias gradients"] > 0
    assert sum(parts.values()) > 0


def test_worker(root, monkeypatch):
    monkeypatch.chdir(root)
    worker = Ranks("echo", ECHO)
    (answer,) = worker.ask("add", a=1, b=2)
    assert answer["sum"] == 3
    assert answer["cpu_s"] >= 0
    worker.close()


def test_error_of_a_dead_worker(root, monkeypatch):
    monkeypatch.chdir(root)
    worker = Ranks("echo", ECHO)
    with pytest.raises(RuntimeError, match=r"(?s)echo died during 'multiply'.*KeyError"):
        worker.ask("multiply")
    worker.close()


def test_missing_torch(capsys):
    with pytest.raises(SystemExit):
        training.parse(training.parser_of("Trains."), ["--torch_python", "/nowhere"], "bench")
    assert "--torch_python /nowhere does not exist: `make bench`" in capsys.readouterr().err


def test_parts_in_turn():
    seen = []
    calls = {name: lambda name=name: seen.append(name) for name in ("a", "b")}
    times = timed_in_turn(calls, 2)
    assert seen == ["a", "b"] * 3
    assert {name: len(ms) for name, ms in times.items()} == {"a": 2, "b": 2}


def test_losses_outside_the_measured_time():
    """`read_loss` is called after each step."""
    calls = []
    answer = timed_steps(lambda: calls.append("step"), 2, lambda: calls.append("loss") or 0.5)
    assert calls == ["step", "loss"] * 2
    assert answer["losses"] == [0.5, 0.5] and len(answer["ms"]) == 2


class StandIn:
    """The process of a side with fixed first losses."""

    def __init__(self, name, losses):
        self.name, self.losses, self.actions = name, losses, []

    def ask(self, action, **arguments):
        self.actions.append((action, arguments))
        answers = {"describe": {"version": "1.0"}, "call": {"result": {"step": [2.0]}}}
        steps = {"losses": self.losses, "ms": [2.0], "faults": 1.0, "cpu_s": 0.0}
        return [answers.get(action, {**steps, "user_ms": 1.0, "system_ms": 0.5})]

    def close(self):
        self.actions.append(("close", {}))


class StandInSide(NamedTuple):
    name: str
    losses: tuple[float, ...]
    is_compared: bool = True

    def start(self, folder, args):
        STARTED.append(StandIn(self.name, list(self.losses)))
        return STARTED[-1]


STARTED: list[StandIn] = []
ARGS = SimpleNamespace(steps=2, threads=1)
OURS, PEER, LOW = (
    StandInSide("ours", (3.0, 2.9, 2.8)),
    StandInSide("peer", (3.0, 2.9, 2.8001)),
    StandInSide("low precision", (3.1, 2.9, 2.7), is_compared=False),
)


def test_measured_case(tmp_path):
    """Losses are compared, sides warm up, turns alternate."""
    STARTED.clear()
    case = Case("sim", (OURS, PEER, LOW), 64, {"a": 1}, 1e-3, 2, {"a": 0}, 5, parts=(OURS,))
    measurements = training.TrainingMeasurements([case])
    measurements.measure(case, tmp_path, ARGS)
    assert measurements.first_losses == {"sim": [3.0, 2.9, 2.8]}
    assert measurements.step_ms == {(side.name, "sim"): [2.0, 2.0] for side in case.sides}
    assert measurements.parts == {("ours", "sim"): [{"step": [2.0]}]}
    assert measurements.cpu_ms["peer", "sim"] == [[(1.0, 0.5)]] * 2
    assert measurements.version("peer") == "1.0"
    assert STARTED[0].actions == [
        ("start", {"a": 0}),
        ("steps", {"count": 3}),
        ("start", {"a": 1}),
        ("steps", {"count": 5}),
        *[("steps", {"count": 2})] * 2,
        ("describe", {}),  # before the parts, whose memory is not that of the steps
        ("call", {"method": "parts_ms", "count": 3}),
        ("close", {}),
    ]
    assert training.in_turn([1, 2], 0) == [2, 1] and training.in_turn([1, 2], 1) == [1, 2]


def test_different_models(tmp_path):
    other = PEER._replace(losses=(3.0, 2.9, 2.7))
    case = Case("sim", (OURS, other), 64, {}, 1e-3, 1)
    with pytest.raises(RuntimeError, match=r"do not train the same model.* of sim.* peer .*2\.7\]"):
        training.TrainingMeasurements([case]).measure(case, tmp_path, ARGS)


@pytest.mark.parametrize(("peer_ms", "met"), [(200.0, True), (120.0, False)])
def test_page(peer_ms, met, monkeypatch):
    monkeypatch.setattr(dlrm_training.machine, "has_fast_bfloat16", lambda: True)
    cases = dlrm_training.cases_of(2, 1)
    measurements = training.TrainingMeasurements(cases)
    for case in cases:
        for side, ms in zip(case.sides, (100.0, peer_ms, peer_ms), strict=True):
            key = side.name, case.name
            measurements.step_ms[key] = [ms, ms]
            measurements.faults[key] = [1.0, 1.0]
            measurements.described[key] = [{"version": "1.0"}]
        product_ms = [[3.0] * len(workload.products())] * 2
        measurements.product_ms[measurements.ours, case.name] = product_ms
        parts = {"casts": 1.0, "between operations": 2.0}
        measurements.parts[dlrm_training.TRACED.name, case.name] = [parts]
        measurements.first_losses[case.name] = [0.7]
    measurements.foreign_cpu = [0.0]
    args = SimpleNamespace(rounds=2, warmup_rounds=1, steps=1, threads=2)
    page = dlrm_training.page_of(measurements, args)
    assert page.is_met is met
    ratio = f"- float32: {peer_ms / 100:.2f} times the samples per second of PyTorch; target"
    assert ratio in str(page)
    floor = "- float32: 81% of the floor's speed (75% counting only the products that our step"
    assert f"{floor} computes); target 0.9: MISSED" in str(page)
    assert "| sum | 3.0 | 3.0 |" in str(page)
    command = "--rounds 2 --warmup_rounds 1 --steps 1 --threads 2`"
    assert f"`python -m benchmarks.dlrm_training {command}" in str(page)
