"""Commands of the document of distributed-embeddings, on small tables."""

import re
import sys

import pytest

from tests.original_commands.commands import QUOTED_ROOT, ROOT

PACKAGE = ROOT / "distributed-embeddings"


@pytest.fixture
def package(commands, tmp_path):
    """The test's commands; the package is in the folder that stands for /workspace."""
    (tmp_path / "distributed-embeddings").symlink_to(PACKAGE)
    commands.variables["workspace"] = tmp_path
    return commands


def test_code(commands):
    """The second program is complete, in one line. The first one is a part of a program, which
    distributed-embeddings/tests/test_keras_versions.py completes."""
    start = r" (?=from |\w+ = |import distributed)"  # of a statement
    program = re.sub(start, "\n", commands.block(2))
    commands.shell(f"python - <<'END'\n{program}\nEND")


def test_build(commands, tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    installed = tmp_path / "installed"
    commands.variables |= {"workspace": tmp_path, "root": QUOTED_ROOT, "installed": installed}
    commands.run(5, 6, 7, 8, 9, PYTHON=sys.executable)
    assert (installed / "distributed_embeddings/__init__.py").is_file()
    append = "&& python -c 'import distributed_embeddings as d; print(d.__file__)'"
    output = commands.run(11, cwd=tmp_path, append=append, PYTHONPATH=str(installed))
    assert str(installed) in output


@pytest.mark.long
def test_tests(package):
    for number in (13, 14):
        assert re.search(r"\d+ passed", package.run(12, number))


def check_benchmark(output):
    """Asserts the lines that the document shows."""
    for line in (
        r"\d+ embedding tables created\.",
        r"Generated \d+ categorical inputs for \d+ embedding tables",
        r"Initial loss: \d\.\d{3}",
        r"Benchmark step \[0/100\]",
        r"Benchmark step \[50/100\]",
        r"loss: \d\.\d{3}",
        r"Iteration time: \d+\.\d{3} ms",
    ):
        assert re.search(line + "$", output, re.MULTILINE), f"{line}\n{output}"


@pytest.mark.long
def test_benchmark(package):
    """One process and several; the document repeats both with their output."""
    for number in (16, 17):
        check_benchmark(package.run(15, number))
        assert package.text(number) == package.text(number + 2)


@pytest.mark.long
def test_dlrm(package):
    assert "AUC" in package.run(20, 21)
