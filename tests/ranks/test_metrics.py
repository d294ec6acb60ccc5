"""Metrics over real processes (metrics_worker.py)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import metrics_worker

TIMEOUT_S = 120  # a worker takes some 10 s where it has a core of its own


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_agree_with_one_accumulator(root, size):
    horovodrun = Path(sys.executable).parent / "horovodrun"
    if not horovodrun.exists():
        pytest.skip("Horovod is not installed")
    launcher = subprocess.Popen(
        [horovodrun, "--gloo", "-np", str(size), sys.executable, "-m", metrics_worker.__name__],
        cwd=root,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "HOROVOD_CYCLE_TIME": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = launcher.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGTERM)  # horovodrun ends its workers
        output, _ = launcher.communicate()
        pytest.fail(f"the ranks hang:\n{output}")
    for rank in range(size):
        assert f"rank {rank} of {size}: metrics agree" in output, output
    assert launcher.returncode == 0
