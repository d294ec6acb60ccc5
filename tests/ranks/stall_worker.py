"""A training in which one rank is frozen for a while, and later reads rows for ever.

    horovodrun -np N python tests/ranks/stall_worker.py RANK LOG FLAGS

LOG: of rank 0. RANK's process is stopped until rank 0 has said there that it waits for a frozen
one, and reads for ever as soon as it has said there that the ranks go on. With "-" it is never
stopped. FLAGS are those of dlrm.py.
"""

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import dlrm
from dataloading.pipeline.row_dataset import RowDataset
from runtime.cluster.failure import client, monitor

FROZEN_AT, LOST_AT = 3, 6  # of the calls that read a batch
FROZEN, GOES_ON = "it is frozen", "the ranks go on"


def read_for_ever() -> None:
    time.sleep(600)


def freeze_until_it_is_said(log: str) -> None:
    """Stops this process; another one lets it go on, or ends with it."""
    me = os.getpid()
    missed = f"kill -0 {me} && ! grep -q {shlex.quote(FROZEN)} {shlex.quote(log)}"
    subprocess.Popen(["sh", "-c", f"while {missed}; do sleep 0.1; done; kill -CONT {me}"])
    os.kill(me, signal.SIGSTOP)


def disturb(log: str) -> None:
    """Makes this rank the one that the others wait for."""
    calls, read = itertools.count(1), RowDataset._read_part

    def disturbed(self, *args):
        call = next(calls)
        if log == "-":
            lost = call == LOST_AT
        else:
            if call == FROZEN_AT:
                freeze_until_it_is_said(log)
            lost = call >= LOST_AT and GOES_ON in Path(log).read_text().partition(FROZEN)[2]
            time.sleep(0.1)  # a few steps until it is said
        if lost:
            read_for_ever()
        return read(self, *args)

    RowDataset._read_part = disturbed


if __name__ == "__main__":
    rank, rank_0_log, *flags = sys.argv[1:]
    client.HERE_AFTER_S, monitor.LOOK_AGAIN_AFTER_S = 3.0, 0.2
    if rank == (os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]):
        disturb(rank_0_log)
    sys.exit(dlrm.main(["dlrm.py", *flags]))
