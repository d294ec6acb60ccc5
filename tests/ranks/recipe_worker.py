"""Runs `dlrm.py` with several command lines, one after the other, on the ranks it is started on.

    horovodrun -np N python -m tests.ranks.recipe_worker COMMANDS.json

The file holds {name: arguments}; `{rank}` in an argument is each rank's own number. Each rank
writes {name: [exit code, what it said on stdout and stderr]} to $RANK_RESULTS/RANK.json, and exits
as the last command line does.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import dlrm


def run(arguments: list[str]) -> tuple[int, str]:
    """(exit code, all that was said) of `dlrm.py ARGUMENTS`."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = dlrm.main(["dlrm.py", *arguments])
    return code, said.getvalue()


if __name__ == "__main__":
    rank = os.environ.get("HOROVOD_RANK", "0")
    commands = json.loads(Path(sys.argv[1]).read_text())
    found = {
        name: run([argument.replace("{rank}", rank) for argument in arguments])
        for name, arguments in commands.items()
    }
    Path(os.environ["RANK_RESULTS"], f"{rank}.json").write_text(json.dumps(found))
    *_, (code, _) = found.values()
    sys.exit(code)
