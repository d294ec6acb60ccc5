"""Spark engine: from raw lines to the prepared files on a cluster, in few passes.

Tasks in Python parse, count and encode pieces of the log; Spark adds up the counts, sorts the
vocabularies, joins large ones and moves encoded rows to the tasks that write them. A pass is one
job for all columns.
"""

import functools
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from preproc.criteo.engines import parts
from preproc.criteo.engines.engine_interface import CategoricalColumn, DayFile
from preproc.criteo.engines.spark import tasks
from preproc.criteo.engines.spark.tasks import RecordFiles
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.data_set import EncodedFiles
from preproc.criteo.raw_lines import LineCounts, line_counts, line_ranges, write_plain_copy
from preproc.engines.spark.session import WORKER_BYTES, Session, literal
from preproc.raw_files import is_gzip

# Rows of a file that one task writes. A multiple of 4,096 whatever a row's width: no two machines
# write the same page.
_PIECE_ROWS = 1 << 19
_KEPT_SCHEMA = pa.schema([("value", pa.string()), ("count", pa.int64())])
# Below this size of a log, the optimizing compiler of Java costs more than it saves: on 10,002 rows
# a run took 59 s of processor time with it and 36 s without. 4 partitions took 4 s less than 32,
# and queries that are not compiled 1 s less.
_SMALL_LOG_BYTES = 32 << 20
_SMALL_LOG_SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
}
_RANGE_BYTES = 64 << 20  # of a raw file, to one task
_LEAST_RANGE_BYTES = 4 << 20
# Vocabularies that every Python worker reads whole, as long as they are smaller than this
# together; those of other columns are joined, so that no machine needs memory for them.
_SMALL_VALUES = 1 << 20
_SMALL_BYTES = 64 << 20


class SparkEngine(Session):
    """See `CriteoEngine`."""

    name = "spark"
    columns_at_once = True

    def __init__(self, options: CriteoOptions, scratch: Path, shared: Path):
        source = options.input
        files = source.glob("*day_*") if source.is_dir() else [source]
        log_bytes = sum(path.stat().st_size for path in files if path.is_file())
        settings = _SMALL_LOG_SETTINGS if log_bytes < _SMALL_LOG_BYTES else {}
        batch = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(tasks.BLOCKS_PER_BATCH)}
        super().__init__(options, scratch, f"criteo: {options.output}", shared, batch | settings)
        self._shared = shared.absolute()

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        """See `CriteoEngine`; `target` is a folder."""
        plain = scratch / "plain.tsv"
        lines = source
        try:
            if is_gzip(source):  # one task at a time could read it
                write_plain_copy(source, plain)
                lines = plain
            share = lines.stat().st_size // self._spark.sparkContext.defaultParallelism
            ranges = line_ranges(lines, min(max(share, _LEAST_RANGE_BYTES), _RANGE_BYTES))
            options = replace(
                self._options,
                threads=1,
                memory_limit_bytes=WORKER_BYTES,
                master=None,
                spark_conf=(),
            )
            with parts.new_folder(target) as new:
                parse = partial(
                    tasks.parse_ranges, self.token, lines.resolve(), ranges, new, options
                )
                counted = self._tasks(len(ranges), parse, tasks.LINES).collect()
        finally:
            plain.unlink(missing_ok=True)
        return line_counts(LineCounts(*row[1:]) for row in sorted(counted))

    def write_numericals(self, days: Sequence[DayFile], files: EncodedFiles) -> dict[str, int]:
        """See `CriteoEngine`; a row's label, numerical features and bins travel together."""
        pieces = parts.row_groups(days)
        record_files = RecordFiles(files.files, _PIECE_ROWS)
        encode = partial(tasks.encode_numericals, pieces, files, record_files)
        nonzero = self._write(self._tasks(len(pieces), encode, tasks.RECORDS), record_files)
        return {split: count for (file, split), count in nonzero.items() if file == 0}

    def count_columns(
        self, columns: Sequence[CategoricalColumn], days: Sequence[DayFile], num_rows: int
    ) -> list[int]:
        """See `CriteoEngine`.

        Tasks count the values of a piece, so that a frequent one is a single row of the shuffle
        for each piece.
        """
        pieces = parts.row_groups(days, num_rows)
        count = partial(tasks.count_values, pieces, [column.name for column in columns])
        counted = self._tasks(len(pieces), count, tasks.COUNTED)
        thresholds = F.array([F.lit(column.threshold) for column in columns])
        kept = (
            counted.groupBy("column", "value")
            .agg(F.sum("count").alias("count"))
            .where(F.col("count") >= thresholds[F.col("column")])
            .orderBy("column", F.desc("count"), "value")
        )
        with tempfile.TemporaryDirectory(dir=self._shared) as name:
            folder = Path(name, "kept")
            # Only paths to read are patterns, which `literal` escapes.
            kept.write.partitionBy("column").parquet(f"file://{folder.absolute()}")
            return [
                _join_files(sorted(folder.glob(f"column={i}/part-*")), column.vocabulary)
                for i, column in enumerate(columns)
            ]

    def write_columns(
        self, columns: Sequence[CategoricalColumn], days: Sequence[DayFile]
    ) -> list[int]:
        """See `CriteoEngine`.

        The values of a piece, each once, are joined with vocabularies that are large; a value in
        any share of the rows therefore makes no task larger than others.
        """
        pieces = parts.row_groups(days)
        large = _large(columns)
        files = RecordFiles(tuple(column.files for column in columns), _PIECE_ROWS)
        small = {c.name: None if i in large else c.vocabulary for i, c in enumerate(columns)}
        encode = partial(tasks.encode_values, pieces, small, files)
        # A row for each piece, also for one without known values.
        rows = self._spark.range(0, len(pieces), 1, len(pieces)).selectExpr(
            "id AS piece", "-1 AS column", "CAST(NULL AS STRING) AS value", "0L AS id"
        )
        if large:
            known = functools.reduce(
                DataFrame.unionAll,
                (self._known_values(i, columns[i].vocabulary) for i in large),
            )
            names = {i: columns[i].name for i in large}
            distinct = partial(tasks.distinct_values, pieces, names)
            values = self._tasks(len(pieces), distinct, tasks.VALUES)
            joined = values.join(known, ["column", "value"])
            num_parts = int(self._spark.conf.get("spark.sql.shuffle.partitions"))
            rows = (
                rows.unionByName(joined)
                .repartition(min(len(pieces), num_parts), "piece")
                .sortWithinPartitions("piece")
            )
        nonzero = self._write(rows.mapInArrow(encode, tasks.RECORDS), files)
        known_rows = [0] * len(columns)
        for (file, _), count in nonzero.items():
            known_rows[file] += count
        return known_rows

    def _known_values(self, column: int, vocabulary: Path) -> DataFrame:
        """Returns (column, value, id) of a vocabulary."""
        return self._spark.read.parquet(literal(vocabulary)).select(
            F.lit(column).alias("column"), "value", (F.col("_metadata.row_index") + 1).alias("id")
        )

    def _write(self, encoded: DataFrame, files: RecordFiles) -> dict[tuple[int, str], int]:
        """Writes records; returns the number of values that are not 0, by file and split."""
        write = partial(tasks.write_records, self.token, files, self.is_cluster)
        counts: Counter[tuple[int, str]] = Counter()
        for file, split, nonzero in (
            encoded.repartition("piece").mapInArrow(write, tasks.COUNTS).collect()
        ):
            counts[file, split] += nonzero
        return counts


def _join_files(files: Sequence[Path], target: Path) -> int:
    """Writes the rows of vocabularies, a row group at a time, as one file; returns their number."""
    num_rows = 0
    with parts.new_file(target) as new, pq.ParquetWriter(new, _KEPT_SCHEMA) as writer:
        for path in files:
            with pq.ParquetFile(path) as file:
                for i in range(file.num_row_groups):
                    rows = file.read_row_group(i).cast(_KEPT_SCHEMA)
                    writer.write_table(rows)
                    num_rows += rows.num_rows
    return num_rows


def _large(columns: Sequence[CategoricalColumn]) -> list[int]:
    """Returns the numbers of the columns whose vocabularies are not read whole by workers."""
    sizes = []
    for number, column in enumerate(columns):
        num_values = pq.read_metadata(column.vocabulary).num_rows
        sizes.append((num_values, column.vocabulary.stat().st_size, number))
    values = size = 0
    large = []
    for num_values, num_bytes, number in sorted(sizes):
        values, size = values + num_values, size + num_bytes
        if values > _SMALL_VALUES or size > _SMALL_BYTES:
            large.append(number)
    return large
