"""Prepares ratings, or any log of who touched what when, for NCF.

python -m preproc.movielens --input ml-20m/ratings.csv --output data/ml-20m
"""

import sys

from preproc.movielens.arguments import parse
from preproc.movielens.prepare import prepare
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when the data set is there, 2 (130 for Ctrl-C) with a message
    otherwise."""

    def work() -> None:
        options = parse(argv)
        print(prepare(options))

    return exit_status(work, "interrupted; nothing was made")


if __name__ == "__main__":
    sys.exit(main())
