"""Scores of the rows of a table or a data set by a deployed model, without a server.

    python -m deployment.predict --model repository --input orders.csv --output scores.csv
    python -m deployment.predict --engine spark --model repository --input orders/ \\
        --output scores.parquet --keep order_id

The scores equal those of the server.
"""

import argparse
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from dataloading.spec.data_set_files import SPEC_FILE
from deployment.option_checks import check_ranges, refuse
from deployment.predict.folder_input import FolderInput
from deployment.predict.row_scorer import (
    BadRow,
    RowScorer,
    UnknownValues,
    remarks,
    unknown_checks,
)
from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest
from deployment.serving.scorer import RequestScorer
from deployment.triton.model_folders import ModelFolders, find_model
from preproc.checks.report import STRICT_HELP, Report
from preproc.engines import environment
from preproc.engines.memory import parse_bytes
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted
from runtime.files.predictions import Fields, check_writable, open_predictions
from runtime.options import tool_parser

LOCAL, SPARK = "local", "spark"  # engines
_MEMORY = {LOCAL: "1GB", SPARK: "4GB"}

Write = Callable[..., None]


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 if all rows were scored, see `exit_status`."""
    flags = _parser().parse_args(argv)
    if flags.engine == SPARK and argv is None:
        environment.enter(SPARK, "deployment.predict")
    state = "nothing was written to --output" if flags.output else "the table on stdout is partial"
    with interrupted_by_sigterm():
        return exit_status(lambda: score(flags), f"interrupted; {state}")


def score(flags: argparse.Namespace) -> None:
    """Scores the rows of an input."""
    check_ranges(vars(flags), {"threads": 0})
    is_data_set = os.path.isfile(os.path.join(flags.input, SPEC_FILE))
    _check_flags(flags, is_data_set)
    if flags.output and flags.engine == LOCAL:
        check_writable(flags.output, "--output")  # before the work
    started = time.perf_counter()
    model = find_model(flags.model)
    limit = interfaces.read(model.folder).max_batch_size
    check_ranges(vars(flags), {"batch_size": 1}, {"batch_size": limit})
    if flags.engine == SPARK:
        environment.require_spark(LOCAL)
        from deployment.predict.spark_scores import score_on_spark as work
    else:
        work = _score_data_set if is_data_set else _score_table
    num_rows, notes, checks = work(flags, model)
    folders = " and ".join(str(folder) for folder in model if folder is not None)
    report = f"{num_rows:,} rows scored in {time.perf_counter() - started:.1f} s by {folders}"
    report = "; ".join([report, *notes]) + (f"\n{checks.text()}" if checks.checks else "")
    print(report, file=sys.stdout if flags.output else sys.stderr)


def _check_flags(flags: argparse.Namespace, is_data_set: bool) -> None:
    on_spark, engine = flags.engine == SPARK, f"--engine {flags.engine}"
    refuse(
        {
            "--engine spark: expected --output, a folder (.parquet or .csv)": on_spark
            and not flags.output,
            "--engine spark: expected a table as --input, got a data set": on_spark and is_data_set,
            "--keep: expected --output, .parquet or .csv": flags.keep and not flags.output,
        }
    )
    unread = {} if on_spark else dict.fromkeys(("master", "spark_conf"), engine)
    if is_data_set:
        unread |= dict.fromkeys(
            ("keep", "on_bad_line", "memory_limit", "no_header", "strict"), "a data set as --input"
        )
    else:
        unread["split"] = "a table as --input"
    if on_spark and not (flags.master or "local").startswith("local"):
        unread |= dict.fromkeys(("threads", "memory_limit"), f"--master {flags.master}")
    for name, reader in unread.items():
        if getattr(flags, name):
            flag = {"split": "mapping"}.get(name, name)
            raise ValueError(f"--{flag}: {reader} does not read it; leave it out")
    flags.keep = flags.keep.split(",") if flags.keep else []
    flags.on_bad_line = flags.on_bad_line or "fail"
    flags.memory_limit_bytes = parse_bytes(flags.memory_limit or _MEMORY[flags.engine])


def _score_table(flags: argparse.Namespace, model: ModelFolders) -> tuple[int, list[str], Report]:
    from deployment.predict.rows import open_rows

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
            report = Report((*moved, *unknown_checks(scorer.unknown, scorer.encoder)))
            report.refuse_warnings(flags.strict)
    return first_row, remarks(scorer.unknown, scorer.long_lists, rows.ignored), report


def _score_data_set(
    flags: argparse.Namespace, model: ModelFolders
) -> tuple[int, list[str], Report]:
    scorer = RequestScorer(model.folder, flags.threads, model.dense_folder)
    rows = FolderInput(flags.input, flags.split, scorer.interface)
    _check_differs(flags.output, rows.paths)
    with _open_output(flags.output, rows.num_rows) as write:
        for batch in rows.requests(flags.batch_size or scorer.interface.max_batch_size):
            try:
                write(scorer.score(batch.arrays)[:, 0])
            except BadRequest as error:
                place, name = rows.where(batch.first_row + error.row), error.feature
                raise BadRow(0, name, f"got {error.value}; {error.rule}").at(place) from None
    return rows.num_rows, remarks(UnknownValues(), {}, rows.ignored), Report()


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


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        "deployment.predict",
        "Scores the rows of a table or a data set by a deployed model, without a server.",
        epilog="A table has the columns of the model's encoder, as the file that the data set was "
        "made from; others are ignored. The columns of a model without an encoder are its "
        "features, with ids and numbers as in training. A list is a list in Parquet and JSON, and "
        "separated by ';' in text. Rows are counted from 0 in the output, and from 1 in messages.",
    )
    add = parser.add_argument
    add("--model", required=True, help="repository with one model, model's or version folder")
    add(
        "--input",
        required=True,
        help="raw rows: what preproc.transcode reads, a file (.csv, .tsv, .parquet, .jsonl; text "
        "also .gz or .zst) or a folder of such files; or the folder of an encoded data set in "
        "split binaries",
    )
    add(
        "--mapping",
        dest="split",
        help="split of a data set's folder, e.g. test (default: the only one)",
    )
    add(
        "--output",
        help="file for the scores: .csv or .parquet (columns row and score), or .npy (float32 "
        "[rows]); it appears when it is complete (default: stdout, as CSV, some 65,000 rows at a "
        "time: after a bad row, with exit status 2, earlier scores are there)",
    )
    add("--keep", metavar="A,B", help="columns of --input that are written before the scores")
    add(
        "--on_bad_line",
        choices=("fail", "skip"),
        help="fail (default) at a line of text that is not a row, or skip up to 1 %% of them",
    )
    add("--strict", action="store_true", help=STRICT_HELP)
    add(
        "--no_header",
        action="store_true",
        help="a table of CSV without a header: its columns are c1, c2 and so on, as in transcode",
    )
    add(
        "--engine",
        choices=(LOCAL, SPARK),
        default=LOCAL,
        help="local (default): this process; spark: a cluster, for tables of any size; --output is "
        "a new folder of part files then, which all workers must see",
    )
    add("--master", help="of Spark (default: local[--threads], or that of spark-submit)")
    add(
        "--spark_conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of Spark, repeatable",
    )
    add(
        "--memory_limit",
        metavar="SIZE",
        help="memory for the rows of a table (default 1GB), in addition to tables of the model and "
        "some 350 MB; of a local master of Spark, all of its heap (default 4GB)",
    )
    add("--batch_size", type=int, help="maximum rows per batch (default: the model's)")
    add("--threads", type=int, default=0, help="threads per batch (default: one per core)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
