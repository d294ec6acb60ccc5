"""Scores of a table of any size in part files, which tasks of an engine write."""

import contextlib
import functools
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from deployment.predict.options import PredictOptions
from deployment.predict.row_scorer import BadRow, RowScorer, ValueCounts, unknown_checks
from deployment.predict.source_rows import TableRows
from deployment.serving import interface as interfaces
from deployment.serving.raw.encoded_rows import RawRows
from deployment.serving.scorer import all_cores
from deployment.triton.model_folders import ModelFolders
from preproc.checks.report import Report
from preproc.engines.engine import PART, ROW, Engine
from preproc.engines.open_engine import SPARK, open_engine
from preproc.engines.spark.tasks import runs
from runtime.files.column_files import FORMATS, check_suffix
from runtime.files.disk import write_errors_name
from runtime.files.outputs import SCORES
from runtime.files.predictions import check_kept
from runtime.files.staging import Staging


def score_on_spark(flags: PredictOptions, model: ModelFolders) -> tuple[int, list[str], Report]:
    """Writes the scores of a table to a new folder; returns the number of rows, remarks, checks.

    Raises:
        ValueError: flags, the table or a value do not fit, a check warns with --strict, or Spark
            fails.
    """
    check_suffix(flags.output, "--output", FORMATS)
    check_kept(flags.output, [(name,) for name in flags.keep], "--output")
    with (
        Staging(Path(flags.output), "deployment.predict", SCORES, resumes=False) as staging,
        open_engine(
            SPARK,
            staging.scratch,
            memory_limit_bytes=flags.memory_limit_bytes,
            threads=flags.threads or all_cores(),
            master=flags.master,
            spark_conf=flags.spark_conf,
        ) as engine,
    ):
        result = score_parts(flags, engine, model, staging.data)
        staging.publish()
    return result


def score_parts(
    flags: PredictOptions, engine: Engine, model: ModelFolders, folder: Path
) -> tuple[int, list[str], Report]:
    """Writes the scores of a table as part files; see `score_on_spark`."""
    suffix, batch_size = Path(flags.output).suffix.lower(), flags.batch_size or 0
    scorer = PartScorer(model, folder.absolute(), suffix, flags.keep, batch_size)
    raw_rows = RawRows(model.folder, interfaces.read(model.folder))
    columns = dict.fromkeys((*(column.name for column in raw_rows.columns), *flags.keep))
    has_header = not flags.no_header
    rows = TableRows(engine, flags.input, list(columns), flags.on_bad_line, has_header)
    moved = rows.drift(raw_rows.encoder)
    Report(tuple(moved)).refuse_warnings(flags.strict)
    table = rows.table.select([PART, ROW, *columns])
    results = [json.loads(text) for text in engine.map_batches(table, scorer)]
    if errors := [result for result in results if "problem" in result]:
        first = min(errors, key=lambda error: error["row"])
        raise BadRow(**first).at(rows.place(first["row"], first["column"]))
    counts = ValueCounts()
    for result in results:
        for name, counter in vars(counts).items():
            counter.update(result["counts"][name])
        for part, file in result["files"].items():
            (folder / file).rename(folder / f"part-{int(part):08d}{suffix}")
    for file in folder.glob("new-*"):  # of attempts that failed
        file.unlink()
    report = Report((*moved, *unknown_checks(counts, raw_rows.encoder)))
    report.refuse_warnings(flags.strict)
    return rows.num_rows, counts.remarks(rows.ignored), report


@dataclass(frozen=True)
class PartScorer:
    """Scores whole parts of a table; `Work` of an engine.

    Files get random names until the driver renames them: a repeated task disturbs no other one.

    Attributes:
        model: version folders, which all workers see.
        folder: of the files.
        suffix: of their format.
        kept: columns that are written before the scores.
        batch_size: see `RowScorer`.
    """

    model: ModelFolders
    folder: Path
    suffix: str
    kept: tuple[str, ...]
    batch_size: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        """Yields in JSON the files of all parts and the counts of unknown values, or a bad row.

        Raises:
            ValueError: a worker does not see the model, or a whole column is wrong.
        """
        scorer = _open_model(self.model, self.batch_size)
        scorer.counts = ValueCounts()
        files = {}
        for part, part_batches in runs(batches, PART):
            name = f"new-{secrets.token_hex(16)}{self.suffix}"
            try:
                with write_errors_name(self.folder / name):
                    self._write(self.folder / name, part_batches, scorer)
            except BadRow as bad:
                yield json.dumps(vars(bad))
                return
            files[part] = name
        yield json.dumps({"files": files, "counts": vars(scorer.counts)})

    def _write(self, path: Path, batches: Iterator[pa.RecordBatch], scorer: RowScorer) -> None:
        with open(path, "wb") as stream, contextlib.ExitStack() as stack:
            table = None
            for batch in batches:
                kept = [batch.column(name) for name in self.kept]
                try:
                    scores = scorer.scores(batch)
                except BadRow as bad:
                    row = batch.column(ROW)[bad.row].as_py()
                    raise BadRow(row, bad.column, bad.problem) from None
                if table is None:
                    fields = [
                        (name, column.type) for name, column in zip(self.kept, kept, strict=True)
                    ]
                    schema = [("row", pa.int64()), *fields, ("score", pa.float32())]
                    table = FORMATS[self.suffix](stream, pa.schema(schema))
                    stack.enter_context(contextlib.closing(table))
                table.write([batch.column(ROW), *kept, pa.array(scores)])


@functools.lru_cache(1)
def _open_model(model: ModelFolders, batch_size: int) -> RowScorer:
    """Returns the model of this process, which Spark keeps for its later tasks.

    Tables are mapped, so that all processes of a machine share one copy of them.
    """
    for path in filter(None, model):
        if not Path(path).is_dir():
            raise ValueError(
                f"a Spark worker on {os.uname().nodename} does not see {path}: --model must lie "
                "on a file system that all workers share, under the same path, or be sent with "
                "--archives of spark-submit"
            )
    try:
        return RowScorer(model, threads=1, batch_size=batch_size)
    except ImportError as error:
        raise ValueError(
            f"a Spark worker on {os.uname().nodename} cannot load the model ({error}); its Python "
            "needs the packages of requirements/engines.txt"
        ) from None
