"""Process of a search that trains: one trial after the other, without Optuna."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from config.command_line import parse
from recipes.execution import execute
from recipes.registry import definition_of
from runtime.files.disk import no_follow
from runtime.tensorflow_start import prepare_tensorflow
from training.errors import TrainingDiverged

# Kinds of messages from a worker, each with a value. The answer to EVALUATION is whether the trial
# continues.
EVALUATION, DONE, STOPPED, DIVERGED, FAILED = "evaluation", "done", "stopped", "diverged", "failed"
OUTPUT = "output.txt"  # file in the folder of a trial


class _TrialStopped(Exception):
    """The search ends a trial after an evaluation."""


def work(connection: Connection, recipe: str) -> None:
    """Trains with each list of flags that the connection receives, until it is closed.

    Ends at once when the process of the search does.
    """
    end_with_parent()
    prepare_tensorflow()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            arguments, run_dir = connection.recv()
            connection.send(_train(connection, recipe, arguments, Path(run_dir)))


def _train(
    connection: Connection, recipe: str, arguments: Sequence[str], run_dir: Path
) -> tuple[str, Any]:
    """Trains one model; returns the last message, whose value is a text or None."""

    def report(value: float) -> None:
        connection.send((EVALUATION, value))
        if not connection.recv():
            raise _TrialStopped

    definition = definition_of(recipe)
    run_dir.mkdir(parents=True, exist_ok=True)
    with (
        open(run_dir / OUTPUT, "a", opener=no_follow) as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        try:
            argv = [definition.name, *arguments, f"--run_dir={run_dir}"]
            config = parse(argv, definition)
            execute(config, catches_signals=False, on_evaluation=report)
        except _TrialStopped:
            return STOPPED, None
        except TrainingDiverged as error:
            return DIVERGED, str(error)
        except (ValueError, OSError) as error:
            return FAILED, str(error)
    return DONE, None


def end_with_parent() -> None:
    """Ends this process, started by `multiprocessing`, at once when its parent ends.

    A worker of a parent that was killed would otherwise wait for work forever. Does nothing in a
    process that `multiprocessing` did not start.
    """
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
