"""Start of TensorFlow: its variables, and the lines that it writes to stderr."""

import os
import platform
import subprocess
import sys

import pytest

TOOL = "from runtime.cli import exit_status; exit_status(lambda: __import__('tensorflow') and 0)"
IMPORT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by jobs of a shell
from runtime.tensorflow_start import prepare_tensorflow
prepare_tensorflow()
try:
    import tensorflow
    import json
finally:
    print("after", file=sys.stderr)
"""
LINES = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "first\n"
    "I0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on. You may see\n"
    "E0000 00:00:1.2 3 x.h:7] SetPriority unimplemented for this stream.\n"
    "last \N{EM DASH} no end of line"
)
VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
KEPT = "first\nlast \N{EM DASH} no end of line"


@pytest.fixture
def run_python(root, tmp_path):
    """`run_python(code, end, **variables)` runs `code` without a log level of TensorFlow.

    With `end`, TensorFlow is a module that writes `LINES` and runs that statement.
    """

    def run(code, end=None, **variables) -> tuple[int, str]:
        if end is not None:
            text = f"import os\nos.write(2, {LINES!r}.encode())\n{end}\n"
            (tmp_path / "tensorflow.py").write_text(text)
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"}
        del environment["TF_CPP_MIN_LOG_LEVEL"]
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, **variables},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            start_new_session=True,
        )
        return done.returncode, done.stderr

    return run


def test_start_of_a_tool(run_python):
    assert run_python(TOOL) == (0, "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN is left alone elsewhere")
@pytest.mark.parametrize(("variables", "value"), [({}, "1"), ({VARIABLE: "0"}, "0")])
def test_onednn(run_python, monkeypatch, variables, value):
    monkeypatch.delenv(VARIABLE, raising=False)
    end = f"os.write(2, os.environ[{VARIABLE!r}].encode() + bytes([10]))"
    assert run_python(IMPORT, end, **variables) == (0, f"{KEPT}{value}\nafter\n")


def test_log_levels(run_python):
    assert run_python(IMPORT, "pass") == (0, KEPT + "after\n")
    assert run_python(IMPORT, "pass", TF_CPP_MIN_LOG_LEVEL="1") == (0, KEPT + "after\n")
    assert run_python(IMPORT, "pass", TF_CPP_MIN_LOG_LEVEL="0") == (0, LINES + "after\n")


@pytest.mark.parametrize(
    ("end", "code"), [("os.abort()", -6), ("os.kill(os.getpid(), 9)", -9), ("os._exit(3)", 3)]
)
def test_crash(run_python, end, code):
    assert run_python(IMPORT, end) == (code, KEPT)


@pytest.mark.parametrize(
    ("end", "reason"),
    [("raise ImportError('no library')", "ImportError"), ("os.killpg(0, 2)", "KeyboardInterrupt")],
)
def test_interrupted_import(run_python, end, reason):
    """Ctrl-C interrupts all processes of the group."""
    _, errors = run_python(IMPORT, end)
    assert errors.startswith(KEPT + "after\nTraceback (most recent call last):\n")
    assert reason in errors.splitlines()[-1]
