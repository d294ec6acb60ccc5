"""Scores of a table on Spark compared with `--mode predict` and `deployment.predict`, interleaved.

The three score the same rows, by the same model, from the start of the command to its end: the
start of TensorFlow, or of Spark's JVM and its workers, is part of the time. Spark's local master
has a task per core. Peak memory is that of all processes, with shared pages counted once.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, run
from benchmarks.harness.report import Page, command
from deployment.predict.folder_input import FolderInput
from deployment.serving import interface as interfaces
from deployment.triton.model_folders import find_model
from runtime.files.predictions import read_predictions

TOLERANCE = 1e-6
SIDES = PREDICT, LOCAL, SPARK = "--mode predict", "deployment.predict", "on Spark"
_ROWS_AT_A_TIME = 1 << 17
_FILES = 16


def write_table(data: Path, repository: Path, folder: Path) -> None:
    """Writes the test split as a table, in several files, with a column `row`."""
    interface = interfaces.read(find_model(repository).folder)
    folder.mkdir()
    rows = FolderInput(data, "test", interface)
    size = min(_ROWS_AT_A_TIME, -(-rows.num_rows // _FILES))
    for number, batch in enumerate(rows.requests(size)):
        first = batch.first_row - 1
        columns = {}
        for feature in interface.features:
            values = batch.arrays[feature.input][:, feature.start]
            columns[feature.name] = values
        columns["row"] = np.arange(first, first + len(values))
        pq.write_table(pa.table(columns), folder / f"{number:03}.parquet")


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=3, rows=2_000_000)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=args.work_dir) as scratch:
        work = Path(scratch)
        data, checkpoint, models = work / "data", work / "checkpoint", work / "models"
        table, whole = work / "rows.parquet", work / "whole.parquet"
        splits = ("--rows", 20_000, "--validation_rows", 2_000, "--test_rows", args.rows)
        run("dataloading.synthetic", "--output", data, *splits)
        run("dlrm", "--dataset_path", data, "--save_checkpoint_path", checkpoint, "--cpu")
        deployed = ("--checkpoint_dir", checkpoint, "--model_repository", models, "--monolithic")
        run("deployment.deploy", *deployed)
        write_table(data, models, table)
        pq.write_table(pq.read_table(table), whole)

        def score(side: str) -> PreparationRun:
            if side == PREDICT:
                flags = ("--mode", "predict", "--dataset_path", data, "--cpu")
                restored = ("--restore_checkpoint_path", checkpoint)
                output = ("--predictions_path", work / "predict.npy")
                return run("dlrm", *flags, *restored, *output, "--run_dir", work / "run")
            if side == LOCAL:
                output = ("--output", work / "local.npy")
                return run("deployment.predict", "--model", models, "--input", whole, *output)
            flags = ("--engine", "spark", "--predictions_keep", "row", "--overwrite")
            paths = ("--input", table, "--output", work / "spark.parquet")
            return run("deployment.predict", "--model", models, *paths, *flags)

        runs = preparations.compare(SIDES, score, args.repeats, "scores")
        expected = read_predictions(work / "predict.npy")
        scored = pq.read_table(work / "spark.parquet").sort_by("row")
    is_whole = scored["row"].to_pylist() == list(range(args.rows))
    difference = float(np.abs(scored["score"].to_numpy() - expected).max()) if is_whole else np.inf
    facts = [preparations.engine_versions("pyspark", "pyarrow", "numpy")]
    page = Page("Scores of a table on Spark", [command("spark_scores", args)], facts)
    lines = preparations.table(runs, "rows", args.rows)
    page.add(f"DLRM, 13 numerical and 26 categorical features, {args.rows:,} rows", *lines)
    text = f"every row once, and scores differ from those of {PREDICT} by at most {difference:.1e}"
    page.judge(text, TOLERANCE, difference <= TOLERANCE)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
