"""The work of `python -m deployment.predict`: scores of all rows, in order, to stdout or a file."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from dataloading.spec.rules import listing
from deployment.predict.folder import RowFolder
from deployment.predict.rows import RowFile
from deployment.serving.checks import BadRequest
from deployment.serving.interface import Interface
from deployment.serving.scorer import RequestScorer
from deployment.triton.model_folders import find_model
from runtime.cluster.signals import raise_if_interrupted
from runtime.files.predictions import check_writable, open_predictions


def score(flags: argparse.Namespace) -> None:
    """Scores the rows as the flags say.

    Raises:
      ValueError: a flag, the model or a row is wrong, or where the scores go takes no more.
      BrokenPipeError: nobody reads stdout any more.
    """
    if flags.threads < 0:
        raise ValueError(f"--threads is {flags.threads}; allowed: 0 (one for each core) or more")
    if flags.output:
        check_writable(flags.output, "--output")  # before the work
    served = find_model(flags.model)
    scorer = RequestScorer(served.folder, flags.threads, served.dense_folder)
    most = scorer.interface.max_batch_size
    batch_size = most if flags.batch_size is None else flags.batch_size
    if not 1 <= batch_size <= most:
        raise ValueError(
            f"--batch_size is {batch_size}; allowed: 1 to {most}, the model's max_batch_size"
        )
    rows = _opened(flags.input, flags.mapping, scorer.interface)
    if flags.output:
        _check_apart(flags.output, rows.paths)
    started = time.perf_counter()
    num_rows = 0
    with _output(flags.output, rows) as add:
        for scores in _scores(scorer, rows, batch_size):
            add(scores)
            num_rows += len(scores)
        if flags.output:
            raise_if_interrupted()
    elapsed_s = time.perf_counter() - started
    said = f"{num_rows:,} rows scored in {elapsed_s:.1f} s by {served.folder}"
    if served.dense_folder is not None:
        said += f" and {served.dense_folder}"
    if rows.ignored:
        said += f"; columns that no feature is named after were ignored: {listing(rows.ignored)}"
    if flags.output:
        _to_stdout(f"{said}\n")
    else:
        print(said, file=sys.stderr)


def _opened(path: str, mapping: str | None, interface: Interface) -> RowFile | RowFolder:
    if os.path.isdir(path):
        return RowFolder(path, mapping, interface)
    if mapping is not None:
        raise ValueError(
            f"--mapping {mapping}: is for the folder of a data set; --input {path} is none"
        )
    return RowFile(path, interface)


def _check_apart(output: str, paths: Iterable[Path]) -> None:
    """Raises ValueError where the scores would replace what they are scores of."""
    for path in paths:
        if os.path.exists(output) and os.path.samefile(output, path):
            raise ValueError(
                f"--output {output}: is the same file as {path} of --input, which it would "
                "replace; give another path"
            )


def _scores(
    scorer: RequestScorer, rows: RowFile | RowFolder, batch_size: int
) -> Iterator[np.ndarray]:
    """The scores float32 [rows] of some rows at a time."""
    for first_row, arrays in rows.requests(batch_size):
        try:
            yield scorer.score(arrays)[:, 0]
        except BadRequest as error:  # the rows' values are checked: a score is NaN
            raise ValueError(f"{rows.where(first_row)} and those behind it: {error}") from None


@contextlib.contextmanager
def _output(path: str | None, rows: RowFile | RowFolder) -> Iterator[Callable[[np.ndarray], None]]:
    """What takes the scores of the next rows."""
    if path:
        with open_predictions(path, rows.num_rows(), "--output") as writer:
            yield writer.add
        return
    first_row = 0

    def write(scores: np.ndarray) -> None:
        nonlocal first_row
        header = "" if first_row else "row,score\n"
        # The text of a float32 is the shortest that has all of its bits.
        lines = (f"{row},{score!s}\n" for row, score in enumerate(scores, first_row))
        _to_stdout(header + "".join(lines))
        first_row += len(scores)

    yield write


def _to_stdout(text: str) -> None:
    """Writes at once, so that what stdout refuses is met here and not when Python ends.

    Raises:
      BrokenPipeError: nobody reads it any more.
      ValueError: it cannot be written to for another reason.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What Python still holds would be refused again at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise
        raise ValueError(
            f"stdout: {error.strerror}; what is there is not whole. Make room, or give --output"
        ) from None
