"""Writes the archive of Spark's Java classes (`java_classes`); `make engines` runs it.

python -m dataloading.table_input.write_java_classes
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dataloading.table_input import java_classes

_END_S = 300  # Java writes the archive when it ends: 20 s on 2 cores


def main() -> int:
    """Runs the command; returns its exit status: 0, also where Java has no archives, or 1."""
    archive = java_classes.archive()
    if archive is None:
        return 0
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        new = Path(folder) / archive.name
        options = f'"-XX:ArchiveClassesAtExit={new}" {java_classes.SILENT}'
        _run_job(Path(folder), options)
        if not new.exists():
            print(f"Java has not written {archive.name}: Spark starts without it", file=sys.stderr)
            return 1
        new.replace(archive)
    return 0


def _run_job(folder: Path, java_options: str) -> None:
    """Runs a job with the operations of our commands, and waits for the end of its Java."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf().setMaster("local[2]")
    conf.set("spark.driver.extraJavaOptions", java_options)
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.local.dir", str(folder))
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")
    spark = SparkSession(context)
    table = str(folder / "table")
    _numbers(spark).write.parquet(table)
    stored = spark.read.parquet(table)
    counts = stored.groupBy("value").agg(F.count("id").alias("count"))
    stored.join(counts, "value").orderBy("id").mapInArrow(_same, "value string, id long").collect()
    java = SparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait(_END_S)


def _numbers(spark: SparkSession) -> DataFrame:
    numbers = spark.range(0, 1000, 1, 2).withColumn("value", (F.col("id") % 7).cast("string"))
    return numbers.select("value", "id").mapInArrow(_same, "value string, id long")


def _same(batches):
    for batch in batches:
        yield batch.select(["value", "id"])


if __name__ == "__main__":
    sys.exit(main())
