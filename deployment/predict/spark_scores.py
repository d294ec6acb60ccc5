"""Scores of a table of any size on Spark, in Arrow batches."""

import argparse
import contextlib
import os
import tempfile
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import FloatType, StructType

from dataloading.engines.spark_session import Session, literal
from deployment.predict.input import check_names
from deployment.predict.partition_scores import SCORE, PartitionScorer
from deployment.serving.interface import Interface
from deployment.triton.model_folders import ModelFolders

_FORMATS = {".parquet": "parquet", ".csv": "csv"}
_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",  # rows that a task receives at a time
    # Files are renamed when the job ends, and then its file _SUCCESS is written.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    # Names that differ in case alone, and timestamps that Spark has not.
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # The values of folders such as day=01 are text.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Otherwise the fields of a line are not counted.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
}
# Quotation marks are written twice inside quoted fields.
_CSV = {"header": True, "escape": '"'}
# A line with more or fewer fields, and a file with other columns, end the reading.
_CSV_INPUT = {"mode": "FAILFAST", "enforceSchema": False}
_CSV_OUTPUT = {"ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}


def score_on_spark(options: argparse.Namespace, model: ModelFolders, interface: Interface) -> int:
    """Writes the scores of a table; returns the number of rows.

    `options` are the flags of the command with all values of `SparkOptions`, the batch size too.

    Tasks write files that Spark's committer renames when their attempt is the one that counts, and
    the output has its file _SUCCESS when all have: a lost executor loses and repeats no row.

    Raises:
        ValueError: options, the table or a value do not fit, or Spark fails.
    """
    formats = _format_of(options.input, "--input"), _format_of(options.output, "--output")
    with (
        tempfile.TemporaryDirectory() as scratch,
        _Scoring(options, Path(scratch), f"predict: {options.output}", more=_SETTINGS) as scoring,
        scoring.explained_errors(),
    ):
        return scoring.score(model, interface, *formats)


class _Scoring(Session):
    def score(
        self, model: ModelFolders, interface: Interface, file_format: str, target_format: str
    ) -> int:
        options, where = self._options, f"--input {self._options.input}"
        context = self._spark.sparkContext
        output = context._jvm.org.apache.hadoop.fs.Path(options.output)
        files = output.getFileSystem(context._jsc.hadoopConfiguration())
        if files.exists(output):
            raise ValueError(
                f"--output {options.output}: expected a path that does not exist; remove it, or "
                "choose another one"
            )
        table = self._table(options.input, file_format)
        features = [feature.name for feature in interface.features]
        kept = tuple(options.predictions_keep.split(","))
        check_names(where, table.columns, features, "feature of the model")
        check_names(where, table.columns, kept, "column of --predictions_keep")
        columns = tuple(dict.fromkeys((*features, *kept)))
        scorer = PartitionScorer(
            folder=str(model.folder),
            dense_folder=None if model.dense_folder is None else str(model.dense_folder),
            columns=columns,
            kept=kept,
            is_csv=file_format == "csv",
            batch_size=options.batch_size,
        )
        schema = StructType([table.schema[name] for name in kept]).add(SCORE, FloatType())
        counter = Observation()
        # Renamed: names may differ in case alone.
        selected = table.select([_column(name, f"c{i}") for i, name in enumerate(columns)])
        scores = selected.mapInArrow(scorer, schema)
        scores = scores.observe(counter, F.count(F.lit(1)).alias("rows"))
        settings = _CSV | _CSV_OUTPUT if target_format == "csv" else {}
        try:
            scores.write.save(options.output, format=target_format, **settings)
        except BaseException:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                files.delete(output, False)  # an empty folder
            raise
        return counter.get["rows"]

    def _table(self, path: str, file_format: str) -> DataFrame:
        source = literal(Path(path)) if os.path.exists(path) else path
        if file_format == "parquet":
            return self._spark.read.parquet(source)
        schema = self._spark.read.csv(source, **_CSV).schema
        return self._spark.read.csv(source, schema, **_CSV, **_CSV_INPUT)


def _column(name: str, alias: str) -> Column:
    """Returns a column; Spark would take a point in an unquoted name for a field of a struct."""
    return F.col(f"`{name.replace('`', '``')}`").alias(alias)


def _format_of(path: str, flag: str) -> str:
    for suffix, file_format in _FORMATS.items():
        if path.lower().rstrip("/").endswith((suffix, f"{suffix}.gz")):
            return file_format
    raise ValueError(
        f"{flag} {path}: expected a path that ends with .parquet or .csv, of a file or a folder"
    )
