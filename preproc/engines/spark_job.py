"""Entry for spark-submit --deploy-mode client: a command with `--engine spark` and the same flags.

spark-submit --master yarn preproc/engines/spark_job.py preproc.criteo --input /shared/criteo

All workers must see the folders of a preparation under the same path.
"""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    module, *flags = sys.argv[1:]
    sys.exit(importlib.import_module(f"{module}.__main__").main(["--engine", "spark", *flags]))
