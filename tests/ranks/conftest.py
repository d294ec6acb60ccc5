"""Starts several processes and collects what each of them found."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from tests.forked_python import install_shim
from tests.ranks import horovodrun, recipe_worker

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "distributed-embeddings"


class RanksRun(NamedTuple):
    """Exit code, output and results of several processes.

    Attributes:
      returncode: the launcher's exit code.
      output: all that they and the launcher wrote.
      results: what rank 0, 1, ... wrote as JSON; None where one wrote nothing.
    """

    returncode: int
    output: str
    results: list[Any]


@pytest.fixture(scope="session")
def quick_python(forked_python, tmp_path_factory) -> str:
    """A `python` of ranks that has imported TensorFlow; a signal would end its client alone."""
    folder = tmp_path_factory.mktemp("python") / "bin"
    install_shim(folder, forked_python)
    return str(folder / "python")


@pytest.fixture(scope="session")
def run_ranks(request, tmp_path_factory):
    """Runs a script or module on several ranks, one thread each.

    `run_ranks(num_ranks, "tests/ranks/x_worker.py", *args)` or `run_ranks(num_ranks, "module")`,
    with launcher "gloo" or "mpi" (skipped if it is missing), variables `env`, and `timeout` in
    seconds, after which nothing is left running. Starting takes seconds: do many checks in one run.
    A worker writes its result to the file `$RANK_RESULTS/<rank>.json`. With check, an exit code
    other than 0 fails the test and shows the output. `python` starts the ranks.
    """

    def run(
        num_ranks: int,
        program: str,
        *args: object,
        launcher: str = "gloo",
        env: dict[str, str] | None = None,
        timeout: float = 400,
        check: bool = True,
        python: str = sys.executable,
    ) -> RanksRun:
        results = tmp_path_factory.mktemp("ranks")
        if launcher == "mpi":
            request.getfixturevalue("mpi")
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        else:
            command = gloo_command()
        command += ["-np", str(num_ranks), python]
        command += [program] if program.endswith(".py") else ["-m", program]
        returncode, output = run_limited(
            [*command, *map(str, args)],
            {
                **os.environ,
                # The package of this checkout, not the one that is installed.
                "PYTHONPATH": f"{ROOT}:{PACKAGE}:{PACKAGE}/tests",
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "TF_NUM_INTRAOP_THREADS": "1",
                "TF_NUM_INTEROP_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "HOROVOD_CYCLE_TIME": "1",  # steps of some milliseconds
                "RANK_RESULTS": str(results),
                **(env or {}),
            },
            timeout,
        )
        if check and returncode:
            pytest.fail(f"{launcher}, {num_ranks} ranks: exit code {returncode}\n{output}")
        files = [results / f"{rank}.json" for rank in range(num_ranks)]
        contents = [json.loads(file.read_text()) if file.exists() else None for file in files]
        return RanksRun(returncode, output, contents)

    return run


class RecipesRun(NamedTuple):
    """Exit codes and outputs of several command lines of recipes.

    Attributes:
      codes, outputs: exit codes and outputs by name of the command line, rank by rank.
      output: of the launcher.
    """

    codes: dict[str, list[int]]
    outputs: dict[str, list[str]]
    output: str


@pytest.fixture(scope="session")
def run_recipes(run_ranks, quick_python, tmp_path_factory):
    """Runs command lines one after the other on ranks that are started once; one rank is here.

    `run_recipes(num_ranks, {name: (program, *flags)})`, e.g. with program "dlrm.py". With check, an
    exit code other than 0 fails the test and shows the output.
    """

    def run(
        num_ranks: int, commands: dict[str, Sequence[object]], *, check: bool = True
    ) -> RecipesRun:
        words = {name: list(map(str, command)) for name, command in commands.items()}
        results, output = [], ""
        if num_ranks == 1:
            results.append(recipe_worker.run_all(words, "0"))
        else:
            file = tmp_path_factory.mktemp("commands") / "commands.json"
            file.write_text(json.dumps(words))
            worker = recipe_worker.__name__
            done = run_ranks(num_ranks, worker, file, check=False, python=quick_python)
            results, output = done.results, done.output
            assert None not in results, output
        codes, outputs = (
            {name: [result[name][part] for result in results] for name in words}
            for part in range(2)
        )
        if check:
            failed = {name: outputs[name] for name in words if any(codes[name])}
            assert failed == {}
        return RecipesRun(codes, outputs, output)

    return run


def gloo_command() -> list[str]:
    """Returns the command of `horovodrun --gloo`, without its arguments."""
    return [sys.executable, horovodrun.__file__, "--gloo"]


def run_limited(command: list[str], env: dict[str, str], timeout: float) -> tuple[int, str]:
    """Exit code and output of a command, of which no process is left after the time-out."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        # horovodrun's processes have sessions of their own, so that killing a group is not enough.
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        output, _ = process.communicate()
        pytest.fail(f"not done within {timeout} s: {' '.join(command)}\n{output}")
    return process.returncode, output
