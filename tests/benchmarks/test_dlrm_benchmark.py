"""The DLRM benchmark's arithmetic, its protocol, and what it reads from a trace."""

import sys

import numpy as np
import pytest

from benchmarks.dlrm_training import __main__ as dlrm_training
from benchmarks.dlrm_training import step_parts
from benchmarks.dlrm_training import workload as dlrm_workload
from benchmarks.harness import workload_files
from benchmarks.harness.worker import Worker

ECHO = [
    sys.executable,
    "-c",
    "from benchmarks.harness.worker import serve\n"
    "def add(a, b): print('noise'); return {'sum': a + b}\n"
    "serve({'add': add})",
]


def test_sizes_of_the_issue():
    assert len(dlrm_workload.TABLE_ROWS) == 26
    assert sum(dlrm_workload.TABLE_ROWS) == 400_000
    assert dlrm_workload.INTERACTION_WIDTH == 479
    products = dlrm_workload.products()
    assert len(products) == 3 * 8 + 3
    assert sum(product.gflop for product in products) == pytest.approx(120.9, abs=0.05)


@pytest.mark.parametrize("product", dlrm_workload.products(), ids=str)
def test_operands_fit_each_other(product):
    a, b, transpose_a, transpose_b = dlrm_workload.operands(product)
    rows, inner = a[-2:][::-1] if transpose_a else a[-2:]
    inner_b, columns = b[-2:][::-1] if transpose_b else b[-2:]
    assert inner == inner_b
    batch = dlrm_workload.BATCH_SIZE if product.batched else 1
    assert 2 * batch * rows * inner * columns / 1e9 == product.gflop


def test_rows_and_weights_survive_the_disk(tmp_path):
    rows = dlrm_workload.Rows(np.ones((2, 13), "f4"), np.ones((2, 26), "i8"), np.ones((2, 1), "f4"))
    workload_files.save_rows(tmp_path / "rows.npz", rows)
    stored = workload_files.load_rows(tmp_path / "rows.npz", dlrm_workload.Rows)
    assert np.array_equal(stored.ids, rows.ids)
    layer = (np.ones((2, 3)), np.ones(3))
    dlrm_workload.save_weights(tmp_path / "w.npz", np.ones((4, 2)), [layer], [layer, layer])
    weights = dlrm_workload.load_weights(tmp_path / "w.npz")
    assert sorted(weights) == [
        *("bottom_0_bias", "bottom_0_kernel", "table"),
        *("top_0_bias", "top_0_kernel", "top_1_bias", "top_1_kernel"),
    ]


def test_concurrent_operations_share_their_time():
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


def test_worker_answers_and_ends(root, monkeypatch):
    monkeypatch.chdir(root)
    worker = Worker("echo", ECHO, {})
    answer = worker.ask("add", a=1, b=2)
    assert answer["sum"] == 3
    assert answer["cpu_s"] >= 0
    worker.close()


def test_a_dead_worker_says_why(root, monkeypatch):
    monkeypatch.chdir(root)
    worker = Worker("echo", ECHO, {})
    with pytest.raises(RuntimeError, match=r"(?s)echo died during 'multiply'.*KeyError"):
        worker.ask("multiply")
    worker.close()


def test_sides_that_train_different_things_are_refused():
    class Side:
        def __init__(self, losses):
            self.losses = losses

        def ask(self, action, **arguments):
            return {"losses": self.losses}

    same = {dlrm_training.OURS: Side([0.7, 0.6]), "PyTorch": Side([0.7, 0.6001])}
    assert dlrm_training.check_same_training(same, "float32") == [0.7, 0.6]
    other = {dlrm_training.OURS: Side([0.7, 0.6]), "PyTorch": Side([0.7, 0.61])}
    with pytest.raises(RuntimeError, match="do not train the same model.*PyTorch"):
        dlrm_training.check_same_training(other, "float32")
