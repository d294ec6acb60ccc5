"""Two trainings on the same ranks, then rank 1 is killed in the middle of a line.

    horovodrun -np 2 python tests/ranks/log_worker.py FOLDER FLAGS

The first has a log that rank 1 cannot write (FOLDER/bad-1/logs, where bad-1 is a file), the second
has FOLDER/good. Rank 0 writes {"codes": of both, "message": of the end} to $RANK_RESULTS/0.json.
"""

import json
import os
import signal
import sys
from pathlib import Path

import dlrm
from runtime.cluster import distributed
from runtime.logs import plots
from tests import no_pictures


def main(folder: str, *flags: str) -> None:
    rank = os.environ["HOROVOD_RANK"]
    codes = [
        dlrm.main(["dlrm.py", *flags, "--rank_logs", f"{folder}/{logs}"])
        for logs in (f"bad-{rank}/logs", "good")
    ]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the launcher, as soon as rank 1 has ended
    distributed.current().barrier("both_ignore")
    print(f"rank {rank} still speaks", end="", flush=True)
    if rank == "1":
        os.write(2, b"the last word of rank 1")
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        distributed.current().barrier()
    except Exception as error:
        result = {"codes": codes, "message": distributed.failure_message(error)}
        Path(os.environ["RANK_RESULTS"], "0.json").write_text(json.dumps(result))


if __name__ == "__main__":
    plots.draw = no_pictures.touch
    main(*sys.argv[1:])
