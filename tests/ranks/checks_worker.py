"""One rank: the checks of several workers, because starting the ranks costs more than most of them.

    horovodrun -np N python -m tests.ranks.checks_worker

Each rank writes {check: what it found, or a traceback} to $RANK_RESULTS/RANK.json.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.cluster import distributed
from tests.ranks import backward_worker, compiled_worker, world_worker


def outcome(check: Callable, *args: object) -> Any:
    """Returns the check's result, or the traceback of its exception.

    The traceback is printed at once: the other ranks may wait for this one until the time limit.
    """
    try:
        return check(*args)
    except Exception:
        text = traceback.format_exc()
        print(text, file=sys.stderr, flush=True)
        return text


def main() -> None:
    # First, for it connects, and TensorFlow must not have been initialised by then.
    results = {"collectives": outcome(world_worker.collectives)}
    world = distributed.current()
    results["backward"] = outcome(backward_worker.check, world)
    results["compiled"] = outcome(compiled_worker.check, world)
    (Path(os.environ["RANK_RESULTS"]) / f"{world.rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
