"""A training in which one rank stops forever, in a read or as a whole.

    horovodrun -np N python tests/ranks/stall_worker.py RANK read|freeze FLAGS

FLAGS are those of dlrm.py.
"""

import itertools
import os
import signal
import sys
import time

import dlrm
from dataloading.pipeline.sample_dataset import SampleDataset
from runtime.cluster.failure import client

STALLED_AT = 6  # of the calls that read a batch


def read_forever() -> None:
    time.sleep(600)


def stall(how: str) -> None:
    """Makes this rank the one that the others wait for."""
    calls, read = itertools.count(1), SampleDataset._read_part

    def disturbed(self, *args):
        if next(calls) == STALLED_AT:
            if how == "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            read_forever()
        return read(self, *args)

    SampleDataset._read_part = disturbed


if __name__ == "__main__":
    rank, how, *flags = sys.argv[1:]
    client.SAMPLE_WAIT_S = 3.0
    if rank == (os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]):
        stall(how)
    sys.exit(dlrm.main(["dlrm.py", *flags]))
