"""Fixtures of the package's tests, which run without the toolkit."""

import os
import subprocess
import sys

import pytest
from distributed_embeddings.ops import kernels


@pytest.fixture
def run_script():
    """Runs `python ARGS...`; returns the completed process."""

    def run(*args, cwd=None, env=None) -> subprocess.CompletedProcess:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})}
        return subprocess.run(
            [sys.executable, *map(str, args)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture(params=["compiled", "plain"])
def operations(request):
    """The compiled operations, and TensorFlow's own in their place."""
    if request.param == "plain":
        with kernels.disabled():
            yield
        return
    reason = kernels.reason_for_fallback()
    if reason is not None:
        pytest.skip(reason)
    yield
