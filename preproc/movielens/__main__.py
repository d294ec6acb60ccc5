"""Prepares ratings, or any log of who touched what when, for NCF.

python -m preproc.movielens --input ml-20m/ratings.csv --output data/ml-20m
"""

import sys

from dataloading.engines import environment
from preproc.movielens.options import parse
from preproc.movielens.prepare import prepare
from runtime.cli import exit_status


def main(argv: list[str] | None = None) -> int:
    """Runs a command, by default that of this process; see `runtime.cli.exit_status`."""

    def work() -> None:
        options = parse(argv)
        if argv is None:
            environment.enter(options.engine, "preproc.movielens")
        print(prepare(options))

    return exit_status(work, "interrupted; nothing was made")


if __name__ == "__main__":
    sys.exit(main())
