"""Prepares ratings, or any log of who touched what when, for NCF.

python -m preproc.movielens --input ml-20m/ratings.csv --output data/ml-20m
"""

import sys

from preproc.arguments import run_command
from preproc.movielens.options import parse
from preproc.movielens.prepare import prepare


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""
    return run_command("movielens", parse, prepare, "interrupted; nothing was made", argv)


if __name__ == "__main__":
    sys.exit(main())
