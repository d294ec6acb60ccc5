"""Spark's part of a run: jobs over parts, counts of texts, their ids, and remote files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from dataloading.engines import spark_session
from dataloading.engines.spark_session import Session, SparkCommand
from dataloading.transcode.spark.encode_task import EncodePart
from dataloading.transcode.spark.run_folder import Failure, RunFolder

_MOST_TASKS = 10_000  # of a job
COMMAND = SparkCommand(
    worker_bytes=128 << 20,
    duckdb_share=4,
    fewer_threads="--master 'local[N]' with fewer threads",
    other_folder="an --output without a comma in its path",
)
_BROADCAST_VALUES = 1 << 18  # vocabularies up to this size go to every executor
_COUNTS = "part int, split int, feature int, value string, count long"


class SparkJobs(Session):
    """Jobs in a `Session`; all workers share the folder for temporary files, `scratch`."""

    def map(
        self, folder: RunFolder, job: str, work: Callable[[Any], Any], items: Sequence[Any]
    ) -> list[Any]:
        """Returns the results of work on items, which are tasks of one job, in order.

        Raises:
            ValueError: that of the first item whose work raises one.
        """
        if not items:
            return []
        with self.explained_errors():
            numbered = self._spark.sparkContext.parallelize(
                list(enumerate(items)), min(len(items), _MOST_TASKS)
            )
            results = numbered.map(
                lambda item: folder.unless_failed(job, item[0], lambda: work(item[1]))
            ).collect()
        failure = next((result for result in results if isinstance(result, Failure)), None)
        if failure is not None:
            raise ValueError(failure.message)
        return results

    def count_texts(self, counts: Path, target: Path) -> None:
        """Writes the sums of the counts of all parts: split, feature, value, count."""
        with self.explained_errors():
            rows = self._spark.read.schema(_COUNTS).parquet(spark_session.literal(counts))
            summed = rows.groupBy("split", "feature", "value").agg(F.sum("count").alias("count"))
            # Sorted, so that readers of a feature skip the others.
            summed.sortWithinPartitions("split", "feature").write.mode("overwrite").parquet(
                f"file://{target.absolute()}"
            )

    def encode(
        self,
        task: EncodePart,
        counts: Path,
        vocabularies: Sequence[Path],
        num_values: int,
        parts: Sequence[int],
        num_parts: int,
    ) -> None:
        """Encodes parts: only their different values are looked up, and move between workers.

        Args:
            counts: folder of the counted texts of parts.
            vocabularies: one per feature, named after its number.
            num_values: of all of them.
            parts: numbers of the parts to encode.
            num_parts: of all parts.
        """
        wanted = F.col("part").isin(list(parts)) if len(parts) < num_parts else F.lit(True)
        marks = self._spark.range(0, num_parts, 1, 1).select(F.col("id").cast("int").alias("part"))
        marks = marks.where(wanted)
        rows = marks.select(
            "part",
            F.lit(-1).alias("split"),
            F.lit(-1).alias("feature"),
            F.lit(None).cast("string").alias("value"),
            F.lit(None).cast("long").alias("id"),
        )
        with self.explained_errors():
            if vocabularies:
                paths = map(spark_session.literal, vocabularies)
                known = self._spark.read.schema("value string, count long").parquet(*paths)
                known = known.select(
                    F.regexp_extract("_metadata.file_name", r"^(\d+)", 1)
                    .cast("int")
                    .alias("feature"),
                    "value",
                    (F.col("_metadata.row_index") + 1).alias("id"),
                )
                known = F.broadcast(known) if num_values <= _BROADCAST_VALUES else known
                texts = self._spark.read.schema(_COUNTS).parquet(spark_session.literal(counts))
                ids = texts.where(wanted).join(known, ["feature", "value"])
                rows = rows.unionByName(ids.select(*rows.columns))
            num_tasks = min(len(parts), _MOST_TASKS)
            placed = rows.repartition(num_tasks, "part").sortWithinPartitions(
                "part", "split", "feature"
            )
            results = placed.mapInArrow(task, "part int, message string").collect()
        failures = sorted((row.part, row.message) for row in results if row.message is not None)
        if failures:
            raise ValueError(failures[0][1])

    def copy(self, source: str, target: Path) -> None:
        """Copies a file from a file system that Spark knows, like hdfs:// and s3a://.

        Raises:
            ValueError: the file does not exist, or its file system is unknown or fails.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(target.name + ".new")
        try:
            with self.explained_errors():
                files = [self._file(name) for name in (source, f"file://{new.absolute()}")]
                configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
                self._hadoop.FileUtil.copy(*files[0], *files[1], False, configuration)
        except ValueError as error:
            raise ValueError(f"{source}: cannot be copied: {error}") from error
        new.rename(target)

    def modified(self, source: str) -> tuple[int, int]:
        """Returns the size in bytes of a file that Spark knows, and the time of its change in ms.

        Raises:
            ValueError: the file does not exist, or its file system is unknown or fails.
        """
        try:
            with self.explained_errors():
                file_system, path = self._file(source)
                status = file_system.getFileStatus(path)
                return status.getLen(), status.getModificationTime()
        except ValueError as error:
            raise ValueError(f"{source}: cannot be read: {error}") from error

    @property
    def _hadoop(self):
        return self._spark.sparkContext._jvm.org.apache.hadoop.fs

    def _file(self, name: str) -> tuple:
        """Returns Hadoop's file system and path of a file."""
        path = self._hadoop.Path(name)
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        return path.getFileSystem(configuration), path
