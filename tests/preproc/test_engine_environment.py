"""Commands that start again in the environment of Spark and NVTabular."""

import os
import sys

import pytest

from preproc.criteo.__main__ import main as criteo
from preproc.criteo.generate_logs import generate_day
from preproc.engines import environment
from runtime.cli import USER_ERROR


class Replaced(Exception):
    """In place of the process that os.execve would start."""


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An environment with the package `some_engine`, and another that is in both."""
    folder = tmp_path / ".venv-engines/lib/python3.11/site-packages"
    for name in ("some_engine", "json"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path / ".venv-engines")
    packages = {"here": "json", "there": "some_engine", "nowhere": "no_such_engine"}
    monkeypatch.setattr(environment, "_PACKAGES", packages)
    monkeypatch.delenv("PREPROC_ENGINES_ENTERED", raising=False)

    def execve(path, argv, variables):
        raise Replaced(path, argv, variables["PREPROC_ENGINES_ENTERED"])

    monkeypatch.setattr(os, "execve", execve)
    return tmp_path / ".venv-engines/bin/python"


def test_command(fresh, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["__main__.py", "--input", "a b"])
    with pytest.raises(Replaced) as replaced:
        environment.enter("there", "preproc.some")
    command = [str(fresh), "-m", "preproc.some", "--input", "a b"]
    assert replaced.value.args == (str(fresh), command, "1")


@pytest.mark.parametrize("engine", ["duckdb", "here", "nowhere"])
def test_same_process(fresh, engine):
    """DuckDB, an engine of this environment, and one that no environment has."""
    environment.enter(engine, "preproc.some")


def test_no_loop(fresh, monkeypatch, tmp_path):
    """The environment itself, and a machine without it, start no other process."""
    with monkeypatch.context() as patch:
        patch.setenv("PREPROC_ENGINES_ENTERED", "1")
        environment.enter("there", "preproc.some")
    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path / "none")
    environment.enter("there", "preproc.some")
    assert not environment.is_installed("json")


def test_missing_engine(tmp_path, capsys, monkeypatch):
    """The command names `make engines` where neither environment has the engine."""
    generate_day(tmp_path / "day_0", 10, [1])
    flags = [f"--input={tmp_path / 'day_0'}", "--holdout_fraction=0.2", "--engine=spark"]
    flags += [f"--output={tmp_path / 'out'}", "--memory_limit=2GB"]
    # as after `enter`, which would find the environment of this clone
    monkeypatch.setenv("PREPROC_ENGINES_ENTERED", "1")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert criteo(flags) == USER_ERROR
    error = capsys.readouterr().err
    assert error.startswith("error: --engine spark") and "`make engines`" in error
    assert len(error.splitlines()) == 1
