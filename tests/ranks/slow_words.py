"""`dlrm.py` whose rank 0 takes seconds to report why it stops: the other rank ends before it.

python -m tests.ranks.slow_words FLAGS
"""

import os
import sys
import time

import dlrm
from runtime.logs.run_logger import RunLogger

WORDS_AFTER_S = 2.0


def slow_down() -> None:
    """From now on the sentence on a signal comes so late."""
    record = RunLogger.record

    def slowly(self, text):
        if text.startswith("stopped by") and os.environ["HOROVOD_RANK"] == "0":
            time.sleep(WORDS_AFTER_S)
        record(self, text)

    RunLogger.record = slowly


if __name__ == "__main__":
    slow_down()
    sys.exit(dlrm.main(["dlrm.py", *sys.argv[1:]]))
