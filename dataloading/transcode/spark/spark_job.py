"""Entry for spark-submit --deploy-mode client: `python -m dataloading.transcode --engine spark`.

It takes the same flags; all workers must see --input and --output under the same path.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[3])

    from dataloading.transcode.__main__ import main

    sys.exit(main(["--engine", "spark", *sys.argv[1:]]))
