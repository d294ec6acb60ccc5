"""Runs recipes with several command lines, one after the other, on the ranks it is started on.

    horovodrun -np N python -m tests.ranks.recipe_worker COMMANDS.json

The file holds {name: [program, arguments]}; `{rank}` in an argument is each rank's own number. Each
rank writes {name: [exit code, output on stdout and stderr]} to $RANK_RESULTS/RANK.json, and
exits as the last command line does.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import time
from pathlib import Path

from runtime.logs import plots
from tests import no_pictures


def run(program: str, *arguments: str) -> tuple[int, str]:
    """Returns (exit code, output) of `PROGRAM ARGUMENTS`, e.g. of `dlrm.py`."""
    recipe = importlib.import_module(program.removesuffix(".py"))
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = recipe.main([program, *arguments])
    return code, output.getvalue()


def run_all(commands: dict[str, list[str]], rank: str) -> dict[str, tuple[int, str]]:
    """Returns the results of `run`, by the commands' names."""
    return {
        name: run(*(word.replace("{rank}", rank) for word in command))
        for name, command in commands.items()
    }


if __name__ == "__main__":
    plots.draw = no_pictures.touch
    own_rank = os.environ["HOROVOD_RANK"]
    outcomes = run_all(json.loads(Path(sys.argv[1]).read_text()), own_rank)
    results = Path(os.environ["RANK_RESULTS"])
    (results / f"{own_rank}.part").write_text(json.dumps(outcomes))
    (results / f"{own_rank}.part").rename(results / f"{own_rank}.json")
    # The launcher ends all others as soon as one ends with an error.
    deadline = time.monotonic() + 60
    written = [results / f"{rank}.json" for rank in range(int(os.environ["HOROVOD_SIZE"]))]
    while not all(file.exists() for file in written) and time.monotonic() < deadline:
        time.sleep(0.02)
    *_, (last_code, _) = outcomes.values()
    sys.exit(last_code)
