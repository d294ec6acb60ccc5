"""Prepares MovieLens ratings for NCF, with the flags and the test negatives of NVIDIA's script.

python convert.py --path ml-20m/ratings.csv --output data/cache/ml-20m

It is `python -m preproc.movielens --nvidia_negatives`, which has more flags.
"""

import argparse
import sys
from collections.abc import Sequence

from preproc.movielens.__main__ import main as prepare


def main(argv: Sequence[str] | None = None) -> int:
    """Prepares the data set; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="convert.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--path", default="/data/ml-20m/ratings.csv", help="ratings (default %(default)s)")
    default = "/data/cache/ml-20m"
    add("--output", default=default, help="folder of the data set (default %(default)s)")
    add("--valid_negative", type=int, default=100, help="negatives per test item (default 100)")
    add("--seed", "-s", type=int, default=1, help="of the negatives (default 1)")
    flags = parser.parse_args(argv)
    command = ["--input", flags.path, "--output", flags.output, "--overwrite", "--nvidia_negatives"]
    command += ["--valid_negative", str(flags.valid_negative), "--seed", str(flags.seed)]
    return prepare(command)


if __name__ == "__main__":
    sys.exit(main())
