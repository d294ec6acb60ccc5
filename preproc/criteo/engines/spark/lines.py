"""Raw lines -> typed rows by the rules of `raw_lines.py`, as a Spark query."""

import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dataloading.table_input.spark_session import literal
from preproc.criteo.engines.spark import blocks as spark_blocks
from preproc.criteo.engines.spark.blocks import BLOCK, SEQ
from preproc.criteo.output.binary_files import MIN_NUMERICAL
from preproc.criteo.raw_lines import (
    LINE_PATTERN,
    MAX_LINE_BYTES,
    NUM_CATEGORICAL,
    NUM_NUMERICAL,
    write_plain_copy,
)
from preproc.raw_files import is_gzip

LABEL = T.StructField("label", T.ByteType())
NUMERICALS = [T.StructField(f"num_{i}", T.LongType()) for i in range(NUM_NUMERICAL)]
_RETURN = "\r"


def parse_day(spark: SparkSession, source: Path, target: Path, scratch: Path) -> dict[str, int]:
    """See `CriteoEngine`; writes a staged folder.

    Its columns: label, num_0.. (x + 3, and 0 where missing or undefined), cat_0.. (null where
    missing), block and seq.
    """
    # Under this name nothing in the file's own name has a meaning for Spark: no pattern, no
    # compression by suffix, no hidden file.
    plain = scratch / "plain.tsv"
    parsed = scratch / "parsed"
    try:
        if is_gzip(source):
            # One task at a time could read it, and would not report a missing end.
            write_plain_copy(source, plain)
        else:
            plain.symlink_to(source.resolve())
        lines = _lines(spark, plain)
        observation = Observation()
        judged = lines.observe(observation, F.count_if(~F.col("is_good")).alias("others"))
        blocks = spark_blocks.stage(_rows(judged), parsed)
        counts = {
            "rows": sum(block.num_rows for block in blocks),
            "bad_lines": 0,
            "first_bad_line": 0,
        }
        if observation.get["others"]:
            counts |= _bad_lines(lines, counts["rows"])
    finally:
        plain.unlink(missing_ok=True)
    if target.exists():
        shutil.rmtree(target)
    parsed.rename(target)
    return counts


def _lines(spark: SparkSession, path: Path) -> DataFrame:
    """Returns `value` (a line's bytes; Spark drops a byte order mark), `is_good` and `block`."""
    block = F.col("_metadata.file_block_start").alias(BLOCK)
    text = spark.read.schema("value string").option("lineSep", "\n").text(literal(path))
    return text.select("value", _is_good().alias("is_good"), block)


def _is_good() -> Column:
    value = F.col("value")
    num_bytes = F.octet_length(value) - value.endswith(_RETURN).cast("int")
    # Text that is not UTF-8 becomes other text on its way through Java's strings.
    is_text = F.encode(value, "UTF-8") == value.cast("binary")
    return (num_bytes <= MAX_LINE_BYTES) & value.rlike(rf"\A(?:{LINE_PATTERN})\r?\z") & is_text


def _rows(lines: DataFrame) -> DataFrame:
    lowest = MIN_NUMERICAL - 1  # undefined and missing values are the same from here on
    field = F.col("field")

    def shifted(text: Column) -> Column:
        return F.greatest(F.coalesce(text.cast("long"), F.lit(lowest)), F.lit(lowest)) - lowest

    numericals = [shifted(field[1 + i]).alias(f"num_{i}") for i in range(NUM_NUMERICAL)]
    categoricals = [field[1 + NUM_NUMERICAL + i] for i in range(NUM_CATEGORICAL)]
    categoricals[-1] = F.regexp_replace(categoricals[-1], _RETURN, "")
    return (
        lines.filter("is_good")
        .select(
            BLOCK, F.monotonically_increasing_id().alias(SEQ), F.split("value", "\t").alias("field")
        )
        .select(
            BLOCK,
            SEQ,
            field[0].cast("byte").alias("label"),
            *numericals,
            *(F.when(value != "", value).alias(f"cat_{i}") for i, value in enumerate(categoricals)),
        )
    )


def _bad_lines(lines: DataFrame, num_rows: int) -> dict[str, int]:
    is_empty = F.col("value").isin("", _RETURN)
    numbered = lines.select(
        BLOCK,
        F.monotonically_increasing_id().alias(SEQ),
        is_empty.alias("is_empty"),
        "is_good",
    )
    blocks = numbered.groupBy(BLOCK).agg(
        F.count(F.lit(1)).alias("lines"),
        F.min(SEQ).alias("start"),
        F.max(F.when(~F.col("is_empty"), F.col(SEQ))).alias("last"),
        F.min(F.when(~F.col("is_good"), F.col(SEQ))).alias("bad"),
    )
    before, last, first_bad = 0, 0, 0
    for block in sorted(blocks.collect(), key=lambda row: row[BLOCK]):
        if block["last"] is not None:
            last = before + block["last"] - block["start"] + 1
        if block["bad"] is not None and not first_bad:
            first_bad = before + block["bad"] - block["start"] + 1
        before += block["lines"]
    bad = last - num_rows  # empty lines after the last other line do not count
    return {"bad_lines": bad, "first_bad_line": first_bad if bad else 0}
