"""Exit codes and messages of runs that end early; tests/ranks/test_kills.py has whole trainings."""

import os

import pytest
from distributed_embeddings.collectives import CollectiveError, World
from distributed_embeddings.collectives import world as world_module

import main
from recipes import execution
from recipes.registry import DLRM
from runtime.cluster import distributed, signals
from training.errors import Stopped, TrainingDiverged


def run(monkeypatch, end):
    """Returns the exit code of a run that ends with an error."""

    def execute(*args):
        raise end

    monkeypatch.setattr(execution, "check_paths", execute)
    return main.run(DLRM, "", ["dlrm.py", "--dataset_path", "x"])


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        (Stopped("stopped at 5"), 75, "dlrm: stopped at 5"),
        (distributed.RankLost("rank 1 ended"), 4, "dlrm: error: rank 1 ended"),
        (CollectiveError("bad flag"), 2, "dlrm: error: bad flag"),
        (TrainingDiverged("NaN"), 3, "dlrm: training diverged: NaN"),
        (KeyboardInterrupt(), 130, "dlrm: interrupted"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_ends_of_a_run(monkeypatch, capsys, rank, end, code, message):
    monkeypatch.setattr(world_module, "_world", World(rank, 3))
    monkeypatch.setattr(signals, "ignore_sigterm", lambda: None)
    assert run(monkeypatch, end) == code
    by_each_rank = isinstance(end, distributed.RankLost | KeyboardInterrupt)
    assert capsys.readouterr().err == (f"{message}\n" if rank == 0 or by_each_rank else "")


def test_defect(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, ZeroDivisionError())


def test_closed_stdout(monkeypatch, capsys):
    """A reader like `| head`: the rest of Python's buffers must not be an error again."""
    redirected = []
    monkeypatch.setattr(
        os, "dup2", lambda new, old: redirected.append((os.readlink(f"/proc/self/fd/{new}"), old))
    )
    assert run(monkeypatch, BrokenPipeError(32, "Broken pipe")) == 2
    assert redirected == [("/dev/null", 1)]
    assert "stdout was closed by its reader" in capsys.readouterr().err
