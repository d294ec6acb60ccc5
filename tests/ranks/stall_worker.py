"""A training in which one rank is frozen for a while, and later reads rows for ever.

    horovodrun -np N python tests/ranks/stall_worker.py RANK FROZEN_S FLAGS

FROZEN_S: seconds for which RANK's process is stopped; 0: never. FLAGS are those of dlrm.py.
"""

import itertools
import os
import signal
import subprocess
import sys
import time

import dlrm
from dataloading.row_dataset import RowDataset
from runtime import roll_call, roll_call_desk

FROZEN_AT, LOST_AT = 3, 6  # of the calls that read a batch


def read_for_ever() -> None:
    time.sleep(600)


def disturb(frozen_s: float) -> None:
    """Makes this rank the one that the others wait for."""
    calls, read = itertools.count(1), RowDataset._read_part

    def disturbed(self, *args):
        call = next(calls)
        if call == FROZEN_AT and frozen_s:
            subprocess.Popen(["sh", "-c", f"sleep {frozen_s}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        if call == LOST_AT:
            read_for_ever()
        return read(self, *args)

    RowDataset._read_part = disturbed


if __name__ == "__main__":
    rank, frozen_s, *flags = sys.argv[1:]
    roll_call.ANSWER_AFTER_S, roll_call.HERE_AFTER_S = 1.0, 2.0
    roll_call_desk.LOOK_AGAIN_AFTER_S = 0.2
    if rank == (os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]):
        disturb(float(frozen_s))
    sys.exit(dlrm.main(["dlrm.py", *flags]))
