"""horovodrun that ends with one sentence, and with the exit code of the first process that failed.

`make setup` puts it in place of Horovod's own .venv/bin/horovodrun, which ends with a traceback.
"""

import os
import re
import sys
from collections.abc import Callable

# What our recipes mean by their exit codes; a signal that ends a process is 128 + its number.
MEANINGS = {
    2: "an error that its message above explains",
    3: "the training diverged",
    4: "another process ended or did not answer",
    75: "stopped after a checkpoint; the same command with --resume auto resumes",
    130: "interrupted",
    137: "killed, possibly because memory was exhausted",
    143: "ended by SIGTERM",
}


def explain(error: RuntimeError) -> tuple[str, int] | None:
    """Returns (sentence, exit code) for horovodrun's error after a process failed, else None."""
    text = str(error)
    if (process := re.search(r"Process name: (\S+)\s+Exit code: (-?\d+)", text)) is None:
        return None
    code = int(process[2])
    code = 128 - code if code < 0 else code
    meaning = f" ({MEANINGS[code]})" if code in MEANINGS else ""
    return f"process {process[1]} was the first to fail, with exit code {code}{meaning}", code


def silence(check: Callable[..., object]) -> Callable[..., object]:
    """Returns `check`, whose processes import TensorFlow, without what they write to stderr."""

    def silent_check(*args: object) -> object:
        stderr = os.dup(2)
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        try:
            return check(*args)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)

    return silent_check


def main() -> int:
    """Runs horovodrun; returns its exit code."""
    from horovod.common import util
    from horovod.runner.launch import run_commandline

    util._check_extension_lambda = silence(util._check_extension_lambda)
    try:
        return run_commandline() or 0
    except RuntimeError as error:
        if (end := explain(error)) is None:
            raise
        print(f"horovodrun: {end[0]}", file=sys.stderr, flush=True)
        return end[1]


if __name__ == "__main__":
    sys.exit(main())
