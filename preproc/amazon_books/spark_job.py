"""Entry for spark-submit --deploy-mode client: `python -m preproc.amazon_books --engine spark`.

It takes the same flags; all workers must see the output, or --temp_dir, under the same path.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # started by its path: import from the project, not from its folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

    from preproc.amazon_books.__main__ import main

    sys.exit(main(["--engine", "spark", *sys.argv[1:]]))
