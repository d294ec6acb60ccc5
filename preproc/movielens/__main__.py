"""Prepares ratings of MovieLens for NCF: `preproc.interactions` with the columns of their files.

python -m preproc.movielens --input ml-20m/ratings.csv --output data/ml-20m
"""

import sys

from preproc.interactions import __main__ as interactions

_COLUMNS = {"user_column": "userId", "item_column": "movieId", "time_column": "timestamp"}


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""
    return interactions.main(argv, "movielens", _COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
