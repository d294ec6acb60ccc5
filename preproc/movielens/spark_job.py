"""Entry for spark-submit: `python -m preproc.movielens --engine spark` with the same flags.

spark-submit --master spark://HOST:7077 preproc/movielens/spark_job.py \\
    --input ratings.csv --output data

The driver must run where it was started (--deploy-mode client), and the output, or --temp_dir, must
be on a file system that all workers see under the same path.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

    from preproc.movielens.__main__ import main

    sys.exit(main(["--engine", "spark", *sys.argv[1:]]))
