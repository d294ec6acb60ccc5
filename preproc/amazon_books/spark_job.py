"""Entry for spark-submit: `python -m preproc.amazon_books --engine spark` with the same flags.

spark-submit --master spark://HOST:7077 preproc/amazon_books/spark_job.py \\
    --amazon_dataset_path raw --output_path parquet

The driver must run where it was started (--deploy-mode client), and the output, or --temp_dir, must
be on a file system that all workers see under the same path.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

    from preproc.amazon_books.__main__ import main

    sys.exit(main(["--engine", "spark", *sys.argv[1:]]))
