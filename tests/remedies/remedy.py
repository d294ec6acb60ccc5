"""A message with a remedy, and the check that the remedy works.

A case prepares a bad input in an empty folder, runs a command that fails with a message, applies
the remedy that the message names, and runs the command, or that of the remedy, which succeeds.
"""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dcnv2
import dlrm
import ncf
import sim
from dataloading.describe import main as describe
from deployment.deploy.__main__ import main as deploy
from deployment.predict.__main__ import main as predict
from preproc.amazon_books.__main__ import main as amazon_books
from preproc.amazon_books.parquet_to_tfrecord import main as parquet_to_tfrecord
from preproc.criteo.__main__ import main as criteo
from preproc.histories.__main__ import main as histories
from preproc.movielens.__main__ import main as movielens
from preproc.transcode.__main__ import main as transcode

RECIPES = {"dlrm": dlrm.main, "dcnv2": dcnv2.main, "ncf": ncf.main, "sim": sim.main}
_TOOLS = {
    "transcode": transcode,
    "movielens": movielens,
    "amazon_books": amazon_books,
    "histories": histories,
    "parquet_to_tfrecord": parquet_to_tfrecord,
    "criteo": criteo,
    "predict": predict,
    "deploy": deploy,
    "describe": describe,
}
TABLE = ("transcode", "--label=click", "--output=data")
ROWS = "city,price,click\n" + "".join(
    f"{'abc'[i % 3]},{0.37 * i + 0.5:.2f},{i % 2}\n" for i in range(60)
)

LOG = "person,thing,when\n" + "".join(
    f"u{user},i{item},{time}\n"
    for user in range(12)
    for time, item in enumerate(np.random.default_rng(user).permutation(30)[:21])
)

Command = tuple[str, ...]
Step = Callable[[Path], Command | None]  # in a folder; None: the command stays


@dataclass(frozen=True)
class Remedy:
    """A message with a remedy.

    The message of `command` on what `prepare` makes has the words `seen` of the cause, and the
    words `remedy`. `apply` applies the remedy; it returns another command, or None.
    """

    cause: str
    prepare: Callable[[Path], object]
    command: Command
    seen: str
    remedy: str
    apply: Step


def run(command: Sequence[str]) -> tuple[int, str]:
    """Runs a command in this process; returns its exit status and what it printed as errors."""
    name, *arguments = command
    with (
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        if name in RECIPES:
            status = RECIPES[name]([f"{name}.py", *arguments])
        else:
            status = _TOOLS[name](arguments)
    return status, errors.getvalue()


def check(case: Remedy, folder: Path, monkeypatch) -> None:
    """Asserts the message of a case, and that its remedy works."""
    monkeypatch.chdir(folder)
    case.prepare(folder)
    status, errors = run(case.command)
    message = errors.strip().splitlines()[-1]
    assert status == 2, errors
    assert "error: " in message and case.seen in message and case.remedy in message, message
    command = case.apply(folder) or case.command
    status, errors = run(command)
    assert status == 0, errors


def renamed(old: str, new: str, *command: str) -> Step:
    """Returns the step that renames a file, after which a command reads the new name."""

    def apply(folder: Path) -> Command:
        (folder / old).rename(folder / new)
        return command or (*TABLE, f"--input={new}")

    return apply


def written(name: str, content: str | bytes, *command: str) -> Step:
    """Returns the step that writes a file; command: None for that of the case."""

    def apply(folder: Path) -> Command | None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return command or None

    return apply


def then(*command: str) -> Step:
    """Returns the step without a change, after which another command runs."""
    return lambda folder: command
