"""Scores of a table of any size on Spark, in Arrow batches."""

import argparse
import contextlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import FloatType, StringType, StructField, StructType

from dataloading.engines.spark_session import Session, one_line
from dataloading.spec.rules import listing
from deployment.predict.csv_lines import CsvLines, column_names
from deployment.predict.input import check_names
from deployment.predict.partition_scores import SCORE, PartitionScorer
from deployment.predict.spark_folders import SparkPath, check_apart, check_replaceable
from deployment.serving.interface import Interface
from deployment.triton.model_folders import ModelFolders

_ARROW_ROWS = 8192  # of a batch that a task receives
_FORMATS = {".parquet": "parquet", ".csv": "csv"}
# Files are renamed when the job ends, and then its file _SUCCESS is written.
_COMMITTER = {
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
# Types that Spark has not, names that differ in case alone, and dates before 1900 in any column.
_PARQUET = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    **{
        f"spark.sql.parquet.{kind}RebaseModeIn{way}": "CORRECTED"
        for kind in ("datetime", "int96")
        for way in ("Read", "Write")
    },
}
_UNKNOWN_TYPE = re.compile(r"Illegal Parquet type|parquet\.format\.LogicalType")
# Of a CSV output: fields as they are, with quotation marks written twice.
_CSV_OUTPUT = {
    "header": True,
    "escape": '"',
    "ignoreLeadingWhiteSpace": False,
    "ignoreTrailingWhiteSpace": False,
}


def score_on_spark(options: argparse.Namespace, model: ModelFolders, interface: Interface) -> int:
    """Writes the scores of a table; returns the number of rows.

    `options` are the flags of the command with all values of `SparkOptions`, the batch size too.

    Tasks write files that Spark's committer renames when their attempt is the one that counts, and
    the output has its file _SUCCESS when all have: a lost executor loses and repeats no row.

    Raises:
        ValueError: options, the table or a value do not fit, or Spark fails.
    """
    file_format = _format_of(options.input, "--input")
    target_format = _format_of(options.output, "--output")
    settings = _COMMITTER | _PARQUET
    settings |= {"spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_ROWS)}
    with (
        tempfile.TemporaryDirectory() as scratch,
        _Scoring(options, Path(scratch), f"predict: {options.output}", more=settings) as scoring,
        scoring.explained_errors(),
    ):
        return scoring.score(model, interface, file_format, target_format)


class _Scoring(Session):
    @property
    def _kept(self) -> tuple[str, ...]:
        return tuple(self._options.predictions_keep.split(","))

    def score(
        self, model: ModelFolders, interface: Interface, file_format: str, target_format: str
    ) -> int:
        options, spark = self._options, self._spark
        source, output = SparkPath(spark, options.input), SparkPath(spark, options.output)
        check_apart(output.address(), source.addresses())
        entries = output.entries()
        check_replaceable(options.output, output.is_file(), entries, options.overwrite)
        features = [feature.name for feature in interface.features]
        columns = tuple(dict.fromkeys((*features, *self._kept)))
        read = self._csv_table if file_format == "csv" else self._parquet_table
        table, lines, fields = read(source, features, columns)
        scorer = PartitionScorer(
            folder=str(model.folder),
            dense_folder=None if model.dense_folder is None else str(model.dense_folder),
            columns=columns,
            kept=self._kept,
            csv=lines,
            batch_size=options.batch_size,
        )
        schema = StructType([*fields, StructField(SCORE, FloatType())])
        counter = Observation()
        scores = table.mapInArrow(scorer, schema).observe(counter, F.count(F.lit(1)).alias("rows"))
        # Unlike overwrite, append removes nothing.
        mode = "overwrite" if entries else "append"
        more = _CSV_OUTPUT if target_format == "csv" else {}
        try:
            scores.write.save(options.output, format=target_format, mode=mode, **more)
        except BaseException:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                output.remove_if_empty()
            raise
        return counter.get["rows"]

    def _parquet_table(
        self, source: SparkPath, features: list[str], columns: tuple[str, ...]
    ) -> tuple[DataFrame, None, list[StructField]]:
        """Returns the columns of Parquet files, and the fields of those that are kept."""
        try:
            table = self._spark.read.parquet(source.pattern())
        except (PySparkException, Py4JError) as error:
            if not _UNKNOWN_TYPE.search(str(error)):
                raise
            known = self._known_fields(source, columns)
            table = self._spark.read.schema(known).parquet(source.pattern())
        self._check_columns(table.columns, features)
        fields = [table.schema[name] for name in self._kept]
        # Renamed: names may differ in case alone.
        return (
            table.select([_column(name, f"c{i}") for i, name in enumerate(columns)]),
            None,
            fields,
        )

    def _known_fields(self, source: SparkPath, columns: tuple[str, ...]) -> StructType:
        """Returns the fields of Parquet files whose types Spark has.

        Raises:
            ValueError: Spark lacks the type of one of `columns`, or does not read the schema.
        """
        context, where = self._spark.sparkContext, f"--input {self._options.input}"
        path, parquet = next(source.data_files()), context._jvm.org.apache.parquet
        try:
            footer = parquet.hadoop.ParquetFileReader.readFooter(
                context._jsc.hadoopConfiguration(), path
            )
        except Py4JError:
            raise ValueError(
                f"{where}: {path.toString()}: expected types that Spark's Parquet library has, got "
                f"one that it lacks, such as float16{_half_floats(path)}; cast the column to "
                "float32, or write the file without it"
            ) from None
        converter = context._jvm.org.apache.spark.sql.execution.datasources.parquet
        convert = converter.ParquetToSparkSchemaConverter(
            self._spark._jsparkSession.sessionState().conf()
        ).convert
        fields: list[StructField] = []
        for kind in footer.getFileMetaData().getSchema().getFields():
            one = context._jvm.java.util.ArrayList()
            one.add(kind)
            try:
                converted = convert(parquet.schema.MessageType("file", one))
            except (PySparkException, Py4JError) as error:
                if kind.getName() in columns:
                    raise ValueError(
                        f"{where}: column '{kind.getName()}': expected a type that Spark has, got "
                        f"another ({one_line(error)}); cast the column, e.g. to a timestamp"
                    ) from None
            else:
                fields += StructType.fromJson(json.loads(converted.json())).fields
        return StructType(fields)

    def _csv_table(
        self, source: SparkPath, features: list[str], columns: tuple[str, ...]
    ) -> tuple[DataFrame, CsvLines, list[StructField]]:
        """Returns the lines of CSV files, what splits them, and the fields that are kept."""
        where = f"--input {self._options.input}"
        # The values of folders such as day=01 are text, as all values of a CSV file.
        self._spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        table = self._spark.read.text(source.pattern())
        line, *partitions = table.columns
        file = F.when(F.col("_metadata.file_block_start") == 0, F.col("_metadata.file_path"))
        lines = table.select(
            F.col(line).cast("binary").alias("line"),
            file.alias("file"),
            *(_column(name, name) for name in partitions if name in columns),
        )
        header = lines.where(F.col("file").isNotNull()).first()
        if header is None:
            raise ValueError(f"{where}: expected CSV with a header, got no line")
        names = column_names(bytes(header["line"]), where)
        self._check_columns([*names, *partitions], features)
        used = tuple(name for name in columns if name in names)
        fields = [StructField(name, StringType()) for name in self._kept]
        return lines, CsvLines(where, names, used), fields

    def _check_columns(self, names: Sequence[str], features: list[str]) -> None:
        where = f"--input {self._options.input}"
        check_names(where, names, features, "feature of the model")
        check_names(where, names, self._kept, "column of --predictions_keep")


def _half_floats(path: Any) -> str:
    if path.toUri().getScheme() != "file":
        return ""
    schema = pq.read_schema(path.toUri().getPath())
    return f" ({listing(field.name for field in schema if field.type == pa.float16())})"


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
