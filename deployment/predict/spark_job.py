"""Entry for spark-submit: `python -m deployment.predict --engine spark` with the same flags.

    spark-submit --master yarn deployment/predict/spark_job.py --model repository \\
        --input hdfs:///rows.parquet --output hdfs:///scores.parquet --predictions_keep user_id

The driver must run where it was started (--deploy-mode client).
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

    from deployment.predict.__main__ import main

    sys.exit(main(["--engine", "spark", *sys.argv[1:]]))
