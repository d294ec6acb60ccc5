"""The embedding bag benchmark: its workload, its sides, the check of tables, and its page."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.embedding_bag import __main__ as embedding_bag
from benchmarks.embedding_bag import bandwidth, workload
from benchmarks.embedding_bag.bandwidth import Bandwidth
from benchmarks.harness import report, training

TINY = workload.BagSizes(dim=4, hotness=(3, 1), batch_size=20, num_rows=10, num_batches=2)
TORCH_PYTHON = Path(".venv-torch/bin/python")
NAMES = [
    f"{optimizer}, hotness mlperf, dim 16, batch 64" for optimizer in ("sgd", "rowwise_adagrad")
]


def test_hotness():
    assert embedding_bag.hotness_of("20") == (20,) * 26
    assert len(embedding_bag.hotness_of("mlperf")) == 26
    assert sum(embedding_bag.hotness_of("mlperf")) == 214


def test_ids():
    """Log-uniform: the id is at most the root of the rows in half of the draws."""
    sizes = workload.BagSizes(dim=4, hotness=(2, 2), batch_size=5000, num_rows=10_000)
    ids = workload.make_rows(sizes).ids
    assert ids.dtype == np.int32 and ids.shape == (4, 20_000)
    assert ids.min() == 1 and 9_900 < ids.max() < 10_000
    assert abs((ids < 100).mean() - 0.5) < 0.01


def test_ids_by_table():
    rows = workload.make_rows(TINY)
    first, second = workload.by_table(rows.ids, TINY)
    assert first.shape == (2, 20, 3) and second.shape == (2, 20, 1)
    assert np.array_equal(first[1, 4], rows.ids[1, 12:15])
    assert np.array_equal(second[1, :, 0], rows.ids[1, 60:])
    joined = workload.joined_ids(rows.ids, TINY)
    assert np.array_equal(joined[:, :60], rows.ids[:, :60])
    assert np.array_equal(joined[:, 60:], rows.ids[:, 60:] + 10)


def test_largest_difference_by_hand():
    table, other = np.array([[1.0, -4.0], [2.0, 0.5]]), np.array([[1.0, -4.0], [2.5, 0.5]])
    assert workload.largest_difference([table, table], [table, other]) == 0.25
    other[0, 0] = np.nan
    assert np.isnan(workload.largest_difference([table, table], [table, other]))


def expected_tables(optimizer: str, steps: int) -> list[np.ndarray]:
    """Tables of TINY after the steps, in float64, id by id."""
    tables = [workload.initial_table(TINY, t).astype(np.float64) for t in range(2)]
    sums = [np.zeros(TINY.num_rows) for _ in tables]
    upstream = workload.output_gradient(TINY).astype(np.float64)
    for step in range(steps):
        batch = workload.make_rows(TINY).ids[step % 2]
        for t, ids in enumerate(workload.by_table(batch, TINY)):
            gradient = np.zeros_like(tables[t])
            for sample, row in np.ndindex(ids.shape):
                gradient[ids[sample, row]] += upstream[sample, t]
            scale = np.ones(TINY.num_rows)
            if optimizer == "rowwise_adagrad":
                sums[t] += np.mean(gradient**2, axis=1)
                scale = 1 / (np.sqrt(sums[t]) + workload.EPSILON)
            tables[t] -= workload.LEARNING_RATE * scale[:, np.newaxis] * gradient
    return tables


@pytest.mark.parametrize("optimizer", workload.OPTIMIZERS)
def test_our_side(optimizer, tmp_path):
    from benchmarks.embedding_bag.ours import BagTraining

    training = BagTraining(workload.make_rows(TINY), TINY, optimizer)
    losses = [training.step() for _ in range(3)]
    outputs = [
        workload.initial_table(TINY, t)[ids].sum(axis=1)
        for t, ids in enumerate(workload.by_table(workload.make_rows(TINY).ids[0], TINY))
    ]
    products = np.stack(outputs, axis=1) * workload.output_gradient(TINY)
    assert losses[0] == pytest.approx(products[: workload.LOSS_SAMPLES].sum(), rel=1e-4)
    training.save_tables(str(tmp_path / "tables"))
    stored = np.fromfile(tmp_path / "tables", np.float32).reshape(2, 10, 4)
    assert workload.largest_difference(expected_tables(optimizer, 3), stored) < 1e-5
    assert len(training.forward_ms(2)) == 2
    assert training.facts()["base_mib"] > 0


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if not shutil.which("g++"):
        pytest.skip("no g++, which compiles the program that measures the memory")
    return bandwidth.compile_program(tmp_path_factory.mktemp("program"))


@pytest.mark.parametrize("dim", [16, 20])
def test_bandwidth(dim, program):
    ids = workload.joined_ids(workload.make_rows(TINY).ids, TINY)
    measured = bandwidth.measure(program, ids, 20, dim, threads=2, size_mib=1)
    for values in measured:
        assert len(values) == bandwidth.PASSES and all(0 < gbs < 10_000 for gbs in values)


def test_ids_out_of_range(program):
    with pytest.raises(RuntimeError, match=r"expected ids in \[0, 20\), got 20"):
        bandwidth.measure(program, np.array([3, 20]), 20, 16, threads=1, size_mib=1)


def test_missing_fbgemm(capsys):
    with pytest.raises(SystemExit):
        embedding_bag.parse(["--torch_python", sys.executable])
    assert "has no fbgemm_gpu: `make bench-embedding`" in capsys.readouterr().err


def arguments(monkeypatch, *words):
    monkeypatch.setattr(training, "has_package", lambda python, package: True)
    return embedding_bag.parse(["--torch_python", sys.executable, *words])


def test_cases(monkeypatch):
    args = arguments(monkeypatch)
    cases = embedding_bag.cases_of(embedding_bag.settings_of(args), args)
    assert len(cases) == 2 * 3 * 3 * 2
    sides = {len(case.sides) for case in cases if case.name.startswith("rowwise_adagrad")}
    assert sides == {2}, "PyTorch has no row-wise Adagrad"
    args = arguments(monkeypatch, "--plain", "--quick")
    case, _ = embedding_bag.cases_of(embedding_bag.settings_of(args), args)
    assert [side.name for side in case.sides] == [
        "ours",
        "ours, plain path",
        "fbgemm",
        "EmbeddingBag",
    ]
    command = report.command("embedding_bag", args)
    assert command.endswith("--floor_mib 8 --plain --quick`")


class SavedTables:
    """The process of a side, whose tables are fixed."""

    def __init__(self, tables):
        self.tables = tables

    def call(self, method, path):
        assert method == "save_tables"
        self.tables.astype(np.float32).tofile(path)


def test_different_tables(monkeypatch, tmp_path):
    args = arguments(monkeypatch, "--quick", "--optimizers", "rowwise_adagrad")
    measurements = embedding_bag.BagMeasurements(args, tmp_path)
    (case,) = measurements.cases.values()
    tables = np.random.default_rng(1).random((26, args.rows, 16))
    same, other = tables * (1 + 1e-5), tables.copy()
    other[25, 7] *= 1.01  # one row of the last table
    ours, peer = case.sides
    workers = {ours: SavedTables(tables), peer: SavedTables(same)}
    measurements.compare_results(case, tmp_path, workers)
    assert measurements.differences[peer.name, case.name] == pytest.approx(1e-5, rel=0.1)
    workers[peer] = SavedTables(other)
    with pytest.raises(RuntimeError, match=r"do not train the same tables.* up to 1\.0e-02"):
        measurements.compare_results(case, tmp_path, workers)


@pytest.mark.parametrize(("ms", "is_met"), [(10.0, True), (20.0, False)])
def test_page(ms, is_met, monkeypatch, tmp_path):
    words = ("--hotness", "mlperf", "--dims", "16", "--batch_sizes", "64")
    args = arguments(monkeypatch, *words)
    measurements = embedding_bag.BagMeasurements(args, tmp_path)
    assert list(measurements.cases) == NAMES
    for name, case in measurements.cases.items():
        for side in case.sides:
            is_ours = side.name == "ours"
            measurements.step_ms[side.name, name] = [ms if is_ours else 20.0] * 2
            measurements.cpu_ms[side.name, name] = [[(30.0, 2.0)]] * 2
            measurements.forward_ms[side.name, name] = [0.4] * 2
            measurements.faults[side.name, name] = [1.0] * 2
            memory = {"peak_kib": 2**20 * (1 if is_ours else 1.25), "base_mib": 512}
            measurements.described[side.name, name] = [{"version": "1.0", **memory}]
            measurements.differences[side.name, name] = 1e-6
        measurements.bandwidth[name] = Bandwidth([30.0], [4.0], [5.0])
    measurements.foreign_cpu = [0.0]
    page = embedding_bag.page_of(measurements, args)
    assert page.is_met is is_met
    verdict = "met" if is_met else "MISSED"
    text = f"{20 / ms:.2f} times the samples per second of fbgemm, or more ({NAMES[0]})"
    assert f"- {text}; target 1.5: {verdict}" in str(page)
    assert "- 0.80 of the peak memory of fbgemm, or less" in str(page)
    assert "- 0.67 of it without the memory before the tables" in str(page)
    assert f"| {ms:.1f} [{ms:.1f}, {ms:.1f}] | 32 | 1.00 | 0.50 | 1 |  |" in str(page)
    # 64 x 214 rows of 64 bytes in 0.4 ms.
    assert "| 0.4 [0.4, 0.4] | 2.2 [2.2, 2.2] | 55% | 44% |" in str(page)
    assert "- forward passes read 55% of the random-row bandwidth" in str(page)
    assert "| random rows of 16 | 4.0 [4.0, 4.0] |" in str(page)


def test_all_sides(tmp_path, root):
    """Libraries train the same tables, or there is no page."""
    python = root / TORCH_PYTHON
    if not training.has_package(python, "fbgemm_gpu"):
        pytest.skip("no .venv-torch with fbgemm: `make bench-embedding` makes it")
    page = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.embedding_bag", "--quick", "--output", str(page)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for side in ("ours", "fbgemm", "EmbeddingBag"):
        assert f"| {NAMES[0]} | {side} |" in page.read_text()
