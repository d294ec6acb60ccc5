"""Compute capability 7.0, which nvcc 13 no longer knows: compiled by CUDA 12's NVRTC from PyPI."""

import subprocess
import sys

import pytest

PACKAGES = ("nvidia-cuda-nvrtc-cu12==12.2.140", "nvidia-cuda-runtime-cu12==12.2.140")


@pytest.mark.long
def test_compilation_for_volta(tmp_path, run_script):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, "--no-deps", "--target", tmp_path, *PACKAGES], check=True)
    done = run_script("-m", "tests.gpu.compile_for_volta", "--packages", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 with errors or warnings" in done.stdout
    assert "ForwardKernel<half, true" in done.stdout
    assert "ReduceKernel<PieceSource<half>, Optimizer<half, kSgd>, 4>" in done.stdout
    assert " spills 0," in done.stdout
