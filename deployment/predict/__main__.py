"""Scores of the rows of a table or a data set by a deployed model, without a server.

    python -m deployment.predict --model repository --input orders.csv --output scores.csv
    python -m deployment.predict --engine spark --model repository --input orders/ \\
        --output scores.parquet --keep order_id

The scores equal those of the server.
"""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from config.flag import Rules
from deployment.predict.folder_input import FolderInput
from deployment.predict.options import LOCAL, SPARK, PredictOptions, parse
from deployment.predict.row_scorer import BadRow, RowScorer, ValueCounts, unknown_checks
from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest
from deployment.serving.scorer import RequestScorer
from deployment.triton.model_folders import ModelFolders, find_model
from preproc.checks.report import Report
from preproc.engines import environment
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted
from runtime.files.predictions import Fields, check_writable, open_predictions

Write = Callable[..., None]


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 if all rows were scored, see `exit_status`."""

    def work() -> None:
        options = parse(argv)
        if options.engine == SPARK and argv is None:
            environment.enter(SPARK, "deployment.predict")
        score(options)

    arguments = sys.argv[1:] if argv is None else argv
    has_output = any(argument.partition("=")[0] == "--output" for argument in arguments)
    state = "nothing was written to --output" if has_output else "the table on stdout is partial"
    with interrupted_by_sigterm():
        return exit_status(work, f"interrupted; {state}")


def score(flags: PredictOptions) -> None:
    """Scores the rows of an input."""
    if flags.output and flags.engine == LOCAL:
        check_writable(flags.output, "--output")  # before the work
    started = time.perf_counter()
    model = find_model(flags.model)
    limit = interfaces.read(model.folder).max_batch_size
    Rules(at_least=1, at_most=limit).check_value("batch_size", flags.batch_size)
    if flags.engine == SPARK:
        environment.require_spark(LOCAL)
        from deployment.predict.spark_scores import score_on_spark as work
    else:
        work = _score_data_set if flags.is_data_set else _score_table
    num_rows, notes, checks = work(flags, model)
    folders = " and ".join(str(folder) for folder in model if folder is not None)
    report = f"{num_rows:,} rows scored in {time.perf_counter() - started:.1f} s by {folders}"
    report = "; ".join([report, *notes]) + (f"\n{checks.text()}" if checks.checks else "")
    print(report, file=sys.stdout if flags.output else sys.stderr)


def _score_table(flags: PredictOptions, model: ModelFolders) -> tuple[int, list[str], Report]:
    from deployment.predict.source_rows import open_rows

    scorer = RowScorer(model, flags.threads, flags.batch_size)
    columns = list(dict.fromkeys((*scorer.columns, *flags.keep)))
    settings = {"memory_limit_bytes": flags.memory_limit_bytes, "threads": flags.threads or None}
    settings["has_header"] = not flags.no_header
    with (
        open_rows(flags.input, columns, on_bad_line=flags.on_bad_line, **settings) as rows,
        contextlib.closing(rows.batches()) as batches,
    ):
        _check_differs(flags.output, rows.files)
        moved = rows.drift(scorer.encoder)
        Report(tuple(moved)).refuse_warnings(flags.strict)
        first_batch = next(batches)
        fields = [(name, first_batch.schema.field(name).type) for name in flags.keep]
        first_row = 0
        with _open_output(flags.output, rows.num_rows, fields) as write:
            for batch in itertools.chain([first_batch], batches):
                try:
                    scores = scorer.scores(batch)
                except BadRow as bad:
                    raise bad.at(rows.place(first_row + bad.row, bad.column)) from None
                write(scores, [batch.column(name) for name in flags.keep])
                first_row += batch.num_rows
            report = Report((*moved, *unknown_checks(scorer.counts, scorer.encoder)))
            report.refuse_warnings(flags.strict)
    return first_row, scorer.counts.remarks(rows.ignored), report


def _score_data_set(flags: PredictOptions, model: ModelFolders) -> tuple[int, list[str], Report]:
    scorer = RequestScorer(model.folder, flags.threads, model.dense_folder)
    rows = FolderInput(flags.input, flags.mapping, scorer.interface)
    rows.check_encoding(scorer)
    _check_differs(flags.output, rows.paths)
    with _open_output(flags.output, rows.num_rows) as write:
        for first_row, arrays in rows.requests(flags.batch_size or scorer.interface.max_batch_size):
            try:
                write(scorer.score(arrays)[:, 0])
            except BadRequest as error:
                place, name = rows.where(first_row + error.row), error.feature
                raise BadRow(0, name, f"got {error.value}; {error.rule}").at(place) from None
    return rows.num_rows, ValueCounts().remarks(rows.ignored), Report()


def _check_differs(output: str | None, paths: Iterable[str | Path]) -> None:
    for path in paths:
        if output and os.path.exists(output) and os.path.samefile(output, path):
            raise ValueError(
                f"--output {output}: is the same file as {path} of --input, which it would "
                "replace; give another path"
            )


@contextlib.contextmanager
def _open_output(path: str | None, num_rows: int, fields: Fields = ()) -> Iterator[Write]:
    """Yields a function that writes the scores of the next rows, to stdout without a path."""
    if path:
        with open_predictions(path, num_rows, "--output", fields) as writer:
            yield writer.add
            raise_if_interrupted()
        return
    next_row = 0

    def write(scores: np.ndarray, _: Sequence = ()) -> None:
        nonlocal next_row
        header = "" if next_row else "row,score\n"
        # str of a float32 is the shortest text that has all of its bits.
        lines = (f"{row},{score!s}\n" for row, score in enumerate(scores, next_row))
        print(header + "".join(lines), end="", flush=True)
        next_row += len(scores)

    yield write


if __name__ == "__main__":
    sys.exit(main())
