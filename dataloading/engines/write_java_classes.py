"""Writes the archive of Spark's Java classes (`java_classes`); `make engines` runs it.

python -m dataloading.engines.write_java_classes
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import functions as F

from dataloading.engines import java_classes, spark_session
from dataloading.engines.spark_session import SessionOptions

_END_S = 300  # Java writes the archive when it ends: 20 s on 2 cores


def main() -> int:
    """Runs the command; returns its exit status: 0, also where Java has no archives, or 1."""
    archive = java_classes.archive()
    if archive is None:
        return 0
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        new = Path(folder) / archive.name
        archive.unlink(missing_ok=True)  # Java does not write one while it maps one
        _run_job(Path(folder), f'"-XX:ArchiveClassesAtExit={new}" {java_classes.SILENT}')
        if not new.exists():
            print(f"Java has not written {archive.name}: Spark starts without it", file=sys.stderr)
            return 1
        new.replace(archive)
    return 0


def _run_job(folder: Path, java_options: str) -> None:
    """Runs a job with the operations of our commands, and waits for the end of its Java."""
    settings = (f"spark.driver.extraJavaOptions={java_options}",)
    options = SessionOptions("local[2]", settings, threads=2, memory_limit_bytes=3 << 30)
    spark = spark_session.start(options, folder, "Java classes")
    table = str(folder / "table")
    numbers = spark.range(0, 1000, 1, 2).withColumn("value", (F.col("id") % 7).cast("string"))
    numbers = numbers.select("value", "id").mapInArrow(_same, "value string, id long")
    numbers.write.parquet(table)
    stored = spark.read.parquet(table)
    counts = stored.groupBy("value").agg(F.count("id").alias("count"))
    stored.join(counts, "value").orderBy("id").mapInArrow(_same, "value string, id long").collect()
    spark.stop()
    spark_session.stop_gateway(_END_S)


def _same(batches):
    for batch in batches:
        yield batch.select(["value", "id"])


if __name__ == "__main__":
    sys.exit(main())
