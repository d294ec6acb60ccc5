"""Scores of the rows of a file or a data set by a deployed model, without a server.

    python -m deployment.predict --model repository --input rows.csv --output scores.csv

The model is one of `python -m deployment.deploy --backend local`, and the scores are those that the
server would answer. The file's columns are named after the model's features.
"""

import argparse
import sys

from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm

READER_GONE = 141  # exit status where nobody reads stdout any more: 128 + SIGPIPE, as the shell's


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when all rows have their scores; otherwise 2, or 130 for Ctrl-C
    and SIGTERM, with a message, or `READER_GONE`."""
    flags = _parser().parse_args(argv)
    left = "nothing was written to --output" if flags.output else "the table on stdout is not whole"
    with interrupted_by_sigterm():
        return exit_status(lambda: _score(flags), f"interrupted; {left}")


def _score(flags: argparse.Namespace) -> int:
    # Not at the top: it takes a second, in which Ctrl-C is to end in a sentence, too.
    from deployment.predict.scores import score

    try:
        score(flags)
    except BrokenPipeError:  # `head` has seen enough
        return READER_GONE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.predict",
        description="Scores the rows of a file or a data set by a deployed model, without a "
        "server.",
        epilog="The columns of the file are named after the model's features, others are ignored. "
        "Numericals and single ids are one value a row; of several ids a Parquet file has lists, a "
        "CSV file ';' between them. Ids are those of training: whole numbers, in a CSV file "
        "without a decimal point (17, not 17.0), in a Parquet file of any type. Of texts, "
        "`python -m dataloading.transcode --vocabulary` makes a folder of such ids for --input. "
        "Rows are counted from 0 in the output, in the order of the file, and from 1 in messages.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="DIR",
        help="what `python -m deployment.deploy --backend local` wrote: a repository with one "
        "model, a model's folder (of which the highest version is taken), or a version folder",
    )
    add(
        "--input",
        required=True,
        metavar="PATH",
        help="rows: .csv with a header and commas (.csv.gz compressed), .parquet, or the folder of "
        "a data set in split binaries, encoded as the training's",
    )
    add(
        "--mapping",
        metavar="NAME",
        help="which rows of a data set's folder, e.g. test (default: the only ones)",
    )
    add(
        "--output",
        metavar="FILE",
        help="where scores go: .csv or .parquet (columns row and score), or .npy (float32 [rows]); "
        "it appears when all are there (default: stdout, as CSV, batch by batch: a bad row leaves "
        "the scores of the batches in front of it there, with exit status 2)",
    )
    add(
        "--batch_size",
        type=int,
        metavar="N",
        help="rows at a time at most (default: the model's max_batch_size)",
    )
    add(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="at most, and by default, one for each core",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
