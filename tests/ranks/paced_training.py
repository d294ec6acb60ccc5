"""`dlrm.py`, slow as long as a file is there: what is to meet a training on its way comes in time.

PACED_BY=FILE python -m tests.ranks.paced_training FLAGS
"""

import os
import sys
import time
from pathlib import Path

import dlrm
from dataloading.pipeline.sample_dataset import SampleDataset

BATCH_S = 0.2


def slow_down(file: Path) -> None:
    """Every batch that this process reads takes so long from now on."""
    read = SampleDataset._read_part

    def slowly(self, *args):
        if file.exists():
            time.sleep(BATCH_S)
        return read(self, *args)

    SampleDataset._read_part = slowly


if __name__ == "__main__":
    slow_down(Path(os.environ["PACED_BY"]))
    sys.exit(dlrm.main(["dlrm.py", *sys.argv[1:]]))
