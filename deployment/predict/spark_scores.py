"""Scores of a table of any size on Spark, in Arrow batches."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import FloatType, StructField, StructType

from dataloading.engines.spark_session import Session
from dataloading.spec.rules import listing, suggestion
from deployment.predict.partition_scores import SCORE, PartitionScorer
from deployment.serving.interface import Interface
from deployment.triton.model_folders import ModelFolders

_ARROW_ROWS = 8192  # of a batch that a task receives
_FORMATS = {".parquet": "parquet", ".csv": "csv"}
# Files are renamed when the job ends, and then its file _SUCCESS is written.
_COMMITTER = {
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}


@dataclass(frozen=True)
class SparkScoringOptions:
    """Flags of a scoring on Spark.

    Attributes:
        input: file, or folder of files, that Spark reads: .parquet or .csv with a header.
        output: folder of part files that ends with .parquet or .csv.
        kept: columns of the input that identify a row, written before the scores.
        batch_size: rows per request; None: the model's maximum.
        master, spark_conf, threads, memory_limit_bytes: see `SparkOptions`.
        overwrite: whether to replace an output.
    """

    input: str
    output: str
    kept: tuple[str, ...]
    batch_size: int | None
    master: str | None
    spark_conf: tuple[str, ...]
    threads: int
    memory_limit_bytes: int
    overwrite: bool = False


def score_on_spark(options: SparkScoringOptions, model: ModelFolders, interface: Interface) -> int:
    """Writes the scores of a table; returns the number of rows.

    Tasks write files that Spark's committer renames when their attempt is the one that counts, and
    the output has its file _SUCCESS when all have: a lost executor loses and repeats no row.

    Raises:
        ValueError: options, the table or a value do not fit, or Spark fails.
    """
    file_format = _format_of(options.input, "--input")
    target_format = _format_of(options.output, "--output")
    settings = _COMMITTER | {"spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_ROWS)}
    with (
        tempfile.TemporaryDirectory() as scratch,
        _Scoring(options, Path(scratch), f"predict: {options.output}", more=settings) as scoring,
        scoring.explained_errors(),
    ):
        return scoring.score(model, interface, file_format, target_format)


class _Scoring(Session):
    def score(
        self, model: ModelFolders, interface: Interface, file_format: str, target_format: str
    ) -> int:
        options, spark = self._options, self._spark
        table = spark.read.load(options.input, format=file_format, header=True)
        features = [feature.name for feature in interface.features]
        _check_columns(options.input, table, features, "the model's features")
        _check_columns(options.input, table, options.kept, "--predictions_keep")
        columns = tuple(dict.fromkeys((*features, *options.kept)))
        fields = [table.schema[name] for name in options.kept]
        # Quoted and renamed: Spark would take a point in a name for a field of a struct.
        table = table.select(
            [F.col(f"`{name.replace('`', '``')}`").alias(f"c{i}") for i, name in enumerate(columns)]
        )
        schema = StructType([*fields, StructField(SCORE, FloatType())])
        scorer = PartitionScorer(
            folder=str(model.folder),
            dense_folder=None if model.dense_folder is None else str(model.dense_folder),
            columns=columns,
            kept=options.kept,
            is_csv=file_format == "csv",
            batch_size=options.batch_size or interface.max_batch_size,
        )
        scores = table.mapInArrow(scorer, schema)
        mode = "overwrite" if options.overwrite else "errorifexists"
        scores.write.save(options.output, format=target_format, mode=mode, header=True)
        return spark.read.load(options.output, format=target_format, header=True).count()


def _check_columns(path: str, table: DataFrame, names: tuple[str, ...] | list[str], what: str):
    """Raises ValueError for a name that is not that of exactly one column."""
    missing = [name for name in names if table.columns.count(name) != 1]
    if missing:
        others = [column for column in table.columns if column not in names]
        raise ValueError(
            f"--input {path}: expected one column for each of {what}, got "
            f"{table.columns.count(missing[0])} for {listing(missing)}. It has "
            f"{listing(table.columns)}" + suggestion(missing[0], others)
        )


def _format_of(path: str, flag: str) -> str:
    for suffix, file_format in _FORMATS.items():
        if path.lower().rstrip("/").endswith((suffix, f"{suffix}.gz")):
            return file_format
    raise ValueError(
        f"{flag} {path}: expected a path that ends with .parquet or .csv, of a file or a folder"
    )
