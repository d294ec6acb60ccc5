"""Prepares ratings, or any log of who touched what when, for NCF.

python -m preproc.movielens --input ml-20m/ratings.csv --output data/ml-20m
"""

import sys

from preproc.movielens.arguments import parse
from preproc.movielens.prepare import prepare
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; see `runtime.cli.exit_status`."""
    return exit_status(lambda: print(prepare(parse(argv))), "interrupted; nothing was made")


if __name__ == "__main__":
    sys.exit(main())
