"""Fixtures of the tests of the documents' commands."""

import shutil

import pytest

from docs import original_commands
from tests.forked_python import install_shim
from tests.original_commands.commands import ROOT, STAND_INS, Commands


@pytest.fixture(scope="session")
def programs(tmp_path_factory, forked_python):
    """Folder with `python`, which starts fast, and stand-ins of programs that are absent."""
    folder = tmp_path_factory.mktemp("programs") / "bin"
    install_shim(folder, forked_python)
    texts = {name: text for name, text in STAND_INS.items() if shutil.which(name) is None}
    # The real one first starts an interpreter that imports TensorFlow, in each of many starts.
    launcher = f'#!/bin/sh\nexec python {ROOT}/tests/ranks/horovodrun.py --gloo "$@"\n'
    for name, text in {**texts, "horovodrun": launcher}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def commands(request, programs):
    """Commands that the table assigns to the test, which has to run all of them."""
    test = f"{request.path.relative_to(ROOT)}::{request.node.originalname}"
    rows = [row for row in original_commands.read_commands() if row.test == test]
    assert rows, f"no command is assigned to {test}"
    failures = request.session.testsfailed
    commands = Commands(rows[0].document, rows, programs, {})
    yield commands
    if request.session.testsfailed == failures and commands.used:
        assert commands.used == set(commands.rows)
