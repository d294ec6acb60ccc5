"""Spark engine: from raw lines to the prepared files on a cluster.

Queries are plain data frames, which the RAPIDS plugin can run on GPUs; only writing is Python.
"""

import math
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from preproc.criteo.engines.duckdb_engine import CriteoDuckDBEngine
from preproc.criteo.engines.interface import DayFile
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import ColumnFiles, NumericalWriter
from runtime.files.staging import Staging

try:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
except ModuleNotFoundError as error:
    raise ValueError(
        "--engine spark needs PySpark, which is not installed; install it with `make engines`, or "
        "use --engine duckdb"
    ) from error

from dataloading.table_input import spark_session
from preproc.criteo.engines.spark import blocks as spark_blocks
from preproc.criteo.engines.spark import lines
from preproc.criteo.engines.spark import tasks as spark_tasks
from preproc.criteo.engines.spark.blocks import BLOCK, SEQ

# A vocabulary up to this size is looked up without moving the log's rows. Spark holds some 100
# bytes for each of its values, in every executor.
_BROADCAST_VALUES = 1 << 18
_BROADCAST_BYTES = 16 << 20
# Rows of a file that one task writes. A multiple of 4,096 whatever a row's width: no two machines
# write the same page.
_PIECE_ROWS = 1 << 19
_VOCABULARY = T.StructType(
    [T.StructField("value", T.StringType()), T.StructField("count", T.LongType())]
)


class SparkEngine:
    """See `CriteoEngine`; memory limit, threads and scratch folder are those of a local master.

    Raises:
        ValueError: on entering: Spark does not start, or its workers do not see our files.
    """

    name = "spark"
    writes_in_order = True

    def __init__(self, options: CriteoOptions, scratch: Path):
        self._options = options
        self._scratch = scratch

    def __enter__(self):
        self._interruptions = spark_session.Interruptions()
        self._spark = spark_session.start(
            self._options, self._scratch, f"criteo: {self._options.output}"
        )
        self._interruptions.watch(self._spark)
        self._is_cluster = not spark_session.is_local(self._spark.sparkContext.master)
        path = Staging(self._options.output).scratch / "spark_run"
        self._token = spark_tasks.RunToken(path, uuid.uuid4().hex)
        try:
            self._token.create()
            with self.explained_errors():
                self._check_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        spark_session.stop(self._spark)
        self._interruptions.end()

    def explained_errors(self):
        return spark_session.explained_errors(self._options, self._interruptions)

    def _check_workers(self) -> None:
        """Lets every worker look for our files; those that come later look when they write."""
        if self._is_cluster:
            num_tasks = 4 * self._spark.sparkContext.defaultParallelism
            tasks = self._spark.range(0, num_tasks, 1, num_tasks)
            tasks.mapInArrow(self._token.checked, "id long").collect()

    # Days

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        """See `CriteoEngine`; `target` is a staged folder (`spark_blocks.py`)."""
        self._interruptions.check()
        return lines.parse_day(self._spark, source, target, scratch)

    def write_numericals(self, days: Sequence[DayFile], writer: NumericalWriter) -> dict[str, int]:
        self._interruptions.check()
        rows = self._rows(days, [lines.LABEL, *lines.NUMERICALS])
        write = spark_tasks.WriteNumericals(self._token, writer, self._is_cluster)
        clicks = Counter()
        for split, count in (
            self._placed(rows, writer.numericals, is_shuffled=False)
            .mapInArrow(write, "split string, clicks long")
            .collect()
        ):
            clicks[split] += count
        return dict(clicks)

    # Columns

    def count_values(
        self, column: str, days: Sequence[DayFile], num_rows: int, threshold: int, target: Path
    ) -> int:
        """See `CriteoEngine`; `target`: staged (value, count), one block per partition."""
        self._interruptions.check()
        values = self._values(column, days, num_rows)
        counts = values.where("value IS NOT NULL").groupBy("value").count()
        # A range of the order to each task; its rows know their place in it, the blocks theirs.
        ordered = counts.where(F.col("count") >= threshold).orderBy(F.desc("count"), "value")
        numbered = ordered.select(
            "value",
            "count",
            F.spark_partition_id().cast("long").alias(BLOCK),
            F.monotonically_increasing_id().alias(SEQ),
        )
        return sum(block.num_rows for block in spark_blocks.stage(numbered, target))

    def write_vocabulary(self, vocabulary: Path, target: Path) -> None:
        """See `CriteoEngine`; the driver copies the blocks, each of which is a file, in order."""
        self._interruptions.check()
        with CriteoDuckDBEngine(self._options, self._scratch / "duckdb") as duckdb:
            duckdb.write_text(spark_blocks.part_files(vocabulary), target)

    def write_ids(
        self, column: str, days: Sequence[DayFile], vocabulary: Path, files: ColumnFiles
    ) -> int:
        """See `CriteoEngine`.

        A small vocabulary goes to every executor. Of a large one only the values that fill whole
        percents of the log do, so that no task gets all their rows.
        """
        self._interruptions.check()
        if not spark_blocks.blocks_of(vocabulary):
            return 0
        known = spark_blocks.read_numbered(self._spark, [(vocabulary, 1)], _VOCABULARY, "id")
        rows = self._rows(days, [T.StructField(column, T.StringType())])
        rows = rows.withColumnRenamed(column, "value").where("value IS NOT NULL")
        is_small = _is_small(vocabulary)
        if is_small:
            ids = rows.join(F.broadcast(known.drop("count")), "value")
        else:
            share = self._options.skew_broadcast_pct / 100
            is_hot = F.col("count") >= math.ceil(share * sum(day.num_rows for day in days))
            hot = F.broadcast(known.where(is_hot).drop("count"))
            cold = known.where(~is_hot).drop("count")
            ids = rows.join(hot, "value").unionByName(
                rows.join(hot, "value", "left_anti").join(cold, "value")
            )
        write = spark_tasks.WriteIds(self._token, files, self._is_cluster)
        written = (
            self._placed(ids.select("row", "id"), files, is_shuffled=not is_small)
            .mapInArrow(write, "written long")
            .collect()
        )
        return sum(row["written"] for row in written)

    def _rows(self, days: Sequence[DayFile], fields: list[T.StructField]) -> DataFrame:
        parts = [(day.path, day.first_row) for day in days]
        return spark_blocks.read_numbered(self._spark, parts, T.StructType(fields), "row")

    def _values(self, column: str, days: Sequence[DayFile], num_rows: int) -> DataFrame:
        """A column's `value` in those of the log's first num_rows rows that are in `days`."""
        fields = [T.StructField(column, T.StringType())]
        result = None
        for day in days:
            if day.first_row + day.num_rows <= num_rows:
                rows = spark_blocks.read(self._spark, day.path, T.StructType(fields))
            else:
                rows = self._rows([day], fields).where(F.col("row") < num_rows)
            values = rows.select(F.col(column).alias("value"))
            result = values if result is None else result.unionAll(values)
        return result

    def _placed(self, rows: DataFrame, files: ColumnFiles, is_shuffled: bool) -> DataFrame:
        """Returns rows in an order that is good to write: a piece of the files to one task."""
        if files.order.is_sequential and not is_shuffled and not self._is_cluster:
            return rows
        if files.order.is_sequential:
            placed = rows.withColumn("position", F.col("row"))
        else:
            schema = T.StructType([*rows.schema.fields, T.StructField("position", T.LongType())])
            placed = rows.mapInArrow(spark_tasks.AddPositions(files), schema)
        piece, first = None, 0
        for split in files.splits:
            inside = F.col("position") < split.stop
            number = F.floor((F.col("position") - split.start) / _PIECE_ROWS) + first
            piece = F.when(inside, number) if piece is None else piece.when(inside, number)
            first += -(-split.num_rows // _PIECE_ROWS)
        return placed.repartition(piece).drop("position")


def _is_small(vocabulary: Path) -> bool:
    num_values = sum(block.num_rows for block in spark_blocks.blocks_of(vocabulary))
    num_bytes = sum(path.stat().st_size for path in spark_blocks.part_files(vocabulary))
    return num_values <= _BROADCAST_VALUES and num_bytes <= _BROADCAST_BYTES
