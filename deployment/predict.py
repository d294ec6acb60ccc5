"""Scores of the rows of a file by a deployed model, without a server.

    python -m deployment.predict --model repository --input rows.csv --output scores.csv

The model is one of `python -m deployment.deploy --backend local`, and the scores are those that the
server would answer. The file's columns are named after the model's features.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from dataloading.command_line import exit_status
from dataloading.spec_rules import listing
from deployment.predict_rows import RowFile
from deployment.served_folder import find_served
from deployment.serving.checks import BadRequest
from deployment.serving.scorer import Scorer
from runtime.predictions import check_writable, open_predictions


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 when all rows have their scores, 2 (130 for Ctrl-C) with a message
    otherwise."""
    flags = _parser().parse_args(argv)
    return exit_status(lambda: run(flags), "interrupted; nothing was written to --output")


def run(flags: argparse.Namespace) -> None:
    """Scores the rows as the flags say."""
    if flags.threads < 0:
        raise ValueError(f"--threads is {flags.threads}; allowed: 0 (one for each core) or more")
    if flags.output:
        check_writable(flags.output, "--output")  # before the work
    served = find_served(flags.model)
    scorer = Scorer(served.folder, flags.threads, served.dense_folder)
    most = scorer.interface.max_batch_size
    batch_size = most if flags.batch_size is None else flags.batch_size
    if not 1 <= batch_size <= most:
        raise ValueError(
            f"--batch_size is {batch_size}; allowed: 1 to {most}, the model's max_batch_size"
        )
    file = RowFile(flags.input, scorer.interface)
    started = time.perf_counter()
    num_rows = 0
    with _output(flags.output, file) as add:
        for scores in _scores(scorer, file, batch_size):
            add(scores)
            num_rows += len(scores)
    elapsed_s = time.perf_counter() - started
    said = f"{num_rows:,} rows scored in {elapsed_s:.1f} s by {served.folder}"
    if served.dense_folder is not None:
        said += f" and {served.dense_folder}"
    if file.ignored:
        said += f"; columns that no feature is named after were ignored: {listing(file.ignored)}"
    print(said, file=sys.stdout if flags.output else sys.stderr)


def _scores(scorer: Scorer, file: RowFile, batch_size: int) -> Iterator[np.ndarray]:
    """The scores float32 [rows] of some rows at a time."""
    for first_row, arrays in file.requests(batch_size):
        try:
            yield scorer.score(arrays)[:, 0]
        except BadRequest as error:  # the values themselves are checked: a score is NaN
            raise ValueError(f"{file.where(first_row)} and those behind it: {error}") from None


@contextlib.contextmanager
def _output(path: str | None, file: RowFile) -> Iterator[Callable[[np.ndarray], None]]:
    """What takes the scores of the next rows."""
    if path:
        with open_predictions(path, file.num_rows(), "--output") as writer:
            yield writer.add
        return
    first_row = 0

    def write(scores: np.ndarray) -> None:
        nonlocal first_row
        # The text of a float32 is the shortest that has all of its bits.
        lines = (f"{row},{score!s}\n" for row, score in enumerate(scores, first_row))
        sys.stdout.write("".join(lines))
        first_row += len(scores)

    sys.stdout.write("row,score\n")
    yield write


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.predict",
        description="Scores the rows of a file by a deployed model, without a server.",
        epilog="The columns of the file are named after the model's features, others are ignored. "
        "Numericals and single ids are one value a row; of several ids a Parquet file has lists, a "
        "CSV file ';' between them. Ids are those of training. Rows are counted from 0 in the "
        "output, in the order of the file.",
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
        metavar="FILE",
        help="rows: .csv with a header (may be .gz), or .parquet",
    )
    add(
        "--output",
        metavar="FILE",
        help="where scores go: .csv or .parquet (columns row and score), or .npy (float32 [rows]); "
        "it appears when all are there (default: stdout, as CSV)",
    )
    add(
        "--batch_size",
        type=int,
        metavar="N",
        help="rows at a time at most (default: the model's max_batch_size)",
    )
    add("--threads", type=int, default=0, metavar="N", help="default 0: one for each core")
    return parser


if __name__ == "__main__":
    sys.exit(main())
