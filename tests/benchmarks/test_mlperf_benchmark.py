"""The benchmark of MLPerf's DLRM-DCNv2: its workload, its sides and its page."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.harness.training import has_package
from benchmarks.mlperf_training import __main__ as mlperf_training
from benchmarks.mlperf_training import workload

SIZES = workload.Sizes(table_rows=(10, 1000), hotness=(3, 1), batch_size=2000, num_batches=2)


def test_rows():
    rows = workload.make_rows(SIZES)
    assert rows.numerical.shape == (4000, 13) and rows.labels.shape == (4000, 1)
    first, second = workload.by_table(rows.ids, SIZES)
    assert first.shape == (4000, 3) and second.shape == (4000, 1)
    assert (first.min(), first.max(), second.min()) == (1, 9, 1) and 900 < second.max() < 1000
    assert rows.ids.dtype == np.int32
    # Half of the ids are below the root of the rows.
    assert abs((second < 1000**0.5).mean() - 0.5) < 0.04
    clicks, others = (rows.numerical[rows.labels[:, 0] == label, 0].mean() for label in (1, 0))
    assert clicks > others + 0.5


def test_sizes():
    """MLPerf's layers and hotness, and its tables up to a limit."""
    sizes = mlperf_training.sizes_of(
        SimpleNamespace(max_rows=400_000, batch_size=8, num_batches=1, quick=False)
    )
    assert (len(sizes.table_rows), max(sizes.table_rows), sum(sizes.hotness)) == (26, 400_000, 214)
    assert sum(rows == 400_000 for rows in sizes.table_rows) == 8
    assert (sizes.dim, sizes.num_cross_layers, sizes.cross_rank) == (128, 3, 512)


def test_missing_torchrec(capsys):
    with pytest.raises(SystemExit):
        mlperf_training.parse(["--torch_python", sys.executable])
    assert "has no torchrec: `make bench-mlperf` installs it" in capsys.readouterr().err


def test_all_sides(tmp_path, root):
    """Both sides train the same model, or there is no page."""
    python = root / ".venv-torch/bin/python"
    if not has_package(python, "torchrec"):
        pytest.skip("no .venv-torch with torchrec: `make bench-mlperf` makes it")
    page = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.mlperf_training", "--quick", "--output", str(page)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    for precision in ("float32", "bfloat16"):
        for side in ("ours (TensorFlow)", "TorchRec", "TorchRec, memory kept"):
            assert f"| {precision} | {side} |" in text
            for part in ("lookup", "forward", "forward and backward", "step", "update"):
                assert f"| {precision} | {side} | {part} |" in text
