"""Scores of the rows of a file or a data set by a deployed model, without a server.

    python -m deployment.predict --model repository --input rows.csv --output scores.csv
    python -m deployment.predict --engine spark --model repository --input rows.parquet \\
        --output scores.parquet --predictions_keep user_id,item_id

The scores equal those of the server.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from dataloading.engines import environment
from dataloading.engines.memory import parse_bytes
from dataloading.spec.rules import listing
from deployment.option_checks import check_ranges, refuse
from deployment.predict.folder_input import FolderInput
from deployment.predict.input import FileInput
from deployment.predict.partition_scores import SCORE
from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest
from deployment.serving.interface import Interface
from deployment.serving.memory import available_bytes
from deployment.serving.scorer import RequestScorer, all_cores
from deployment.triton.model_folders import find_model
from runtime.cli import exit_status
from runtime.cluster.signals import interrupted_by_sigterm, raise_if_interrupted
from runtime.files.predictions import check_writable, open_predictions
from runtime.options import tool_parser

LOCAL, SPARK = "local", "spark"  # engines
_MEMORY_SHARE = 0.6  # of the available memory, for a local master of Spark


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
    _check_engine(flags)
    if flags.engine == SPARK:
        print(_score_on_spark(flags))
        return
    if flags.output:
        check_writable(flags.output, "--output")  # before the work
    model = find_model(flags.model)
    scorer = RequestScorer(model.folder, flags.threads, model.dense_folder)
    limit = scorer.interface.max_batch_size
    check_ranges(vars(flags), {"batch_size": 1}, {"batch_size": limit})
    rows = _open_input(flags.input, flags.split, scorer.interface)
    if flags.output:
        _check_differs(flags.output, rows.paths)
    started = time.perf_counter()
    with _open_output(flags.output, rows.num_rows) as write:
        for batch in rows.requests(flags.batch_size or limit):
            try:
                write(scorer.score(batch.arrays)[:, 0])
            except BadRequest as error:
                row, name = rows.where(batch.first_row + error.row), error.feature
                where = row if name is None else f"{row}: column '{name}'"
                raise ValueError(f"{where}: found {error.value}; {error.rule}") from None
        if flags.output:
            raise_if_interrupted()
    elapsed_s = time.perf_counter() - started
    folders = " and ".join(str(folder) for folder in model if folder is not None)
    report = f"{rows.num_rows:,} rows scored in {elapsed_s:.1f} s by {folders}"
    if rows.ignored:
        report += f"; columns that no feature is named after were ignored: {listing(rows.ignored)}"
    print(report, file=sys.stdout if flags.output else sys.stderr)


def _check_engine(flags: argparse.Namespace) -> None:
    if flags.engine == SPARK:
        kept = flags.predictions_keep or ""
        refuse(
            {
                "--engine spark: expected --output, a folder (.parquet or .csv)": not flags.output,
                "--engine spark: expected --predictions_keep, the keys of a row": not kept,
                f"--predictions_keep {SCORE}: a column of --output": SCORE in kept.split(","),
            }
        )
        unread, master = {"split": "--engine spark"}, flags.master
        unread |= {"threads": f"--master {master}"} if master else {}
        if master and not master.startswith("local"):
            unread["memory_limit"] = f"--master {master}"
    else:
        names = ("predictions_keep", "master", "spark_conf", "memory_limit")
        unread = dict.fromkeys(names, f"--engine {flags.engine}")
    for name, reader in unread.items():
        if getattr(flags, name):
            flag = {"split": "mapping"}.get(name, name)
            raise ValueError(f"--{flag}: {reader} does not read it; leave it out")


def _score_on_spark(flags: argparse.Namespace) -> str:
    environment.require_spark(LOCAL)
    from deployment.predict.spark_scores import score_on_spark

    model = find_model(flags.model)
    interface = interfaces.read(model.folder)
    limit = interface.max_batch_size
    check_ranges(vars(flags), {"batch_size": 1}, {"batch_size": limit})
    flags.batch_size, flags.threads = flags.batch_size or limit, flags.threads or all_cores()
    flags.memory_limit_bytes = int(_MEMORY_SHARE * available_bytes())
    if flags.memory_limit is not None:
        flags.memory_limit_bytes = parse_bytes(flags.memory_limit)
    started = time.perf_counter()
    num_rows = score_on_spark(flags, model, interface)
    elapsed_s = time.perf_counter() - started
    return f"{num_rows:,} rows scored in {elapsed_s:.1f} s on Spark by {model.folder}"


def _open_input(path: str, split: str | None, interface: Interface) -> FileInput | FolderInput:
    if os.path.isdir(path):
        return FolderInput(path, split, interface)
    if split is not None:
        raise ValueError(
            f"--mapping {split}: expected the folder of a data set as --input, got {path}"
        )
    return FileInput(path, interface)


def _check_differs(output: str, paths: Iterable[Path]) -> None:
    for path in paths:
        if os.path.exists(output) and os.path.samefile(output, path):
            raise ValueError(
                f"--output {output}: is the same file as {path} of --input, which it would "
                "replace; give another path"
            )


@contextlib.contextmanager
def _open_output(path: str | None, num_rows: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Yields a function that writes the scores of the next rows, to stdout without a path."""
    if path:
        with open_predictions(path, num_rows, "--output") as writer:
            yield writer.add
        return
    next_row = 0

    def write(scores: np.ndarray) -> None:
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
        "Scores the rows of a file or a data set by a deployed model, without a server.",
        epilog="Columns are named after the model's features, others are ignored. Numerical "
        "features and single ids have one value per row; several ids are a list in Parquet, and "
        "separated by ';' in CSV. Ids are those of the training: integers, in CSV without a "
        "decimal point (17, not 17.0). `python -m preproc.transcode --vocabulary` encodes "
        "texts as a folder of such ids for --input. Rows are counted from 0 in the output, and "
        "from 1 in messages.",
    )
    add = parser.add_argument
    add("--model", required=True, help="repository with one model, model's or version folder")
    add(
        "--input",
        required=True,
        help="rows: .csv with a header and commas (.csv.gz compressed), .parquet, or the folder of "
        "a data set in split binaries, encoded as the training's",
    )
    add(
        "--mapping",
        dest="split",
        help="split of a data set's folder, e.g. test (default: the only one)",
    )
    add(
        "--output",
        help="file for the scores: .csv or .parquet (columns row and score), or .npy (float32 "
        "[rows]); it appears when it is complete (default: stdout, as CSV, batch by batch: after a "
        "bad row, with exit status 2, the scores of earlier batches are there)",
    )
    add(
        "--engine",
        choices=(LOCAL, SPARK),
        default=LOCAL,
        help="local (default): this process; spark: a table of any size, .parquet or .csv, file or "
        "folder; --output is a new folder of part files then",
    )
    add(
        "--predictions_keep",
        metavar="A,B",
        help="columns of --input that identify a row, written before the scores (--engine spark)",
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
        help="memory of a local master of Spark, like 8GB (default: 60 %% of what is available)",
    )
    add("--batch_size", type=int, help="maximum rows per batch (default: the model's)")
    add("--threads", type=int, default=0, help="threads per batch (default: one per core)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
