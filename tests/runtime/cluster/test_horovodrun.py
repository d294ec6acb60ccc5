"""Our horovodrun: one sentence and an exit code in place of a traceback."""

import os
import sys
import types

import pytest

from runtime.cluster import horovodrun

FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job "
    "to be terminated. The first process to do so was:\nProcess name: {}\nExit code: {}\n"
)


def check(name, is_built):
    os.write(2, f"oneDNN in {name}\n".encode())
    return is_built


def run(monkeypatch, end):
    """Returns the exit code when Horovod's own program ends as `end` does."""
    common = types.SimpleNamespace(util=types.SimpleNamespace(_check_extension_lambda=check))
    launch = types.SimpleNamespace(run_commandline=lambda: end(common.util))
    monkeypatch.setitem(sys.modules, "horovod.common", common)
    monkeypatch.setitem(sys.modules, "horovod.runner.launch", launch)
    return horovodrun.main()


def raising(error):
    def end(_):
        raise error

    return end


@pytest.mark.parametrize(
    ("code", "exit_code", "meaning"),
    [(75, 75, "--resume auto"), (2, 2, "its message above"), (-9, 137, "killed"), (1, 1, "")],
)
def test_failed_process(monkeypatch, capsys, code, exit_code, meaning):
    error = RuntimeError(FAILED.format("3", code))
    assert run(monkeypatch, raising(error)) == exit_code
    start = f"horovodrun: process 3 was the first to fail, with exit code {exit_code}"
    printed = capsys.readouterr().err
    assert printed.startswith(start) and printed.count("\n") == 1
    assert meaning in printed and (meaning or printed == f"{start}\n")


def test_other_outcomes(monkeypatch, capfd):
    """The checks of the build are silent; what follows is not."""

    def end(util):
        assert util._check_extension_lambda("tensorflow", True)
        os.write(2, b"later\n")

    assert run(monkeypatch, end) == 0
    assert capfd.readouterr().err == "later\n"
    with pytest.raises(RuntimeError, match="no route"):
        run(monkeypatch, raising(RuntimeError("no route to host")))
    assert capfd.readouterr().err == ""
