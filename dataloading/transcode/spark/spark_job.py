"""Entry for spark-submit: `python -m dataloading.transcode --engine spark` with the same flags.

spark-submit --master yarn dataloading/transcode/spark/spark_job.py --input raw --output data

The driver must run where it was started (--deploy-mode client), and --input and --output must be on
a file system that all workers see under the same path: tasks write the files in place.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[3])

    from dataloading.transcode.__main__ import main

    sys.exit(main(["--engine", "spark", *sys.argv[1:]]))
