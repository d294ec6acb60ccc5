"""Rows that Spark wrote in parallel, numbered without a global sort and without one big partition.

A task numbers only what it sees, so staged rows carry `block`, which part of the whole they are
from (in rising order), and `seq`, which rises within the block without gaps. The sums of the
blocks' numbers of rows, known once all are written, are the starts of the blocks.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dataloading.table_input.spark_session import literal
from runtime.files.atomic import sync

BLOCK, SEQ = "block", "seq"  # columns of staged rows
_ROWS = "rows"  # the Parquet files of a staged folder
_INDEX = "blocks.json"  # next to them: one [block, first seq, rows] for each block
_STAGED = T.StructType([T.StructField(BLOCK, T.LongType()), T.StructField(SEQ, T.LongType())])


@dataclass(frozen=True)
class StagedBlock:
    """Rows seq, seq + 1, ... of a block."""

    block: int
    seq: int
    num_rows: int


def stage(rows: DataFrame, target: Path) -> list[StagedBlock]:
    """Writes rows with `block` and `seq` as a folder, which appears whole; returns its blocks."""
    new = target.with_name(target.name + ".new")
    _remove(new)
    # A file a task, so that no block is in two files.
    rows.write.option("maxRecordsPerFile", 0).parquet(f"file://{(new / _ROWS).absolute()}")
    blocks = _blocks_of_files(part_files(new))
    if blocks is None:
        staged = read(rows.sparkSession, new, _STAGED)
        counts = staged.groupBy(BLOCK).agg(F.min(SEQ), F.count(F.lit(1)))
        blocks = [StagedBlock(*row) for row in counts.collect()]
    blocks.sort(key=lambda block: block.block)
    entries = [[block.block, block.seq, block.num_rows] for block in blocks]
    (new / _INDEX).write_text(json.dumps(entries))
    for path in sorted(new.rglob("*"), reverse=True):
        sync(path)
    _remove(target)
    os.rename(new, target)
    sync(target.parent)
    return blocks


def _blocks_of_files(paths: list[Path]) -> list[StagedBlock] | None:
    """Returns the blocks by the files' footers, or None where a file holds several."""
    blocks = []
    for path in paths:
        footer = pyarrow.parquet.read_metadata(path)
        if not footer.num_rows:
            continue
        names = footer.schema.to_arrow_schema().names
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        block, seq = (
            [group.column(names.index(name)).statistics for group in groups]
            for name in (BLOCK, SEQ)
        )
        if not all(range_ is not None and range_.has_min_max for range_ in [*block, *seq]):
            return None
        if min(one.min for one in block) != max(one.max for one in block):
            return None
        blocks.append(StagedBlock(block[0].min, min(one.min for one in seq), footer.num_rows))
    return blocks


def blocks_of(folder: Path) -> list[StagedBlock]:
    """The blocks of a staged folder, in rising order."""
    return [StagedBlock(*entry) for entry in json.loads((folder / _INDEX).read_text())]


def part_files(folder: Path) -> list[Path]:
    """The Parquet files of a staged folder."""
    return sorted((folder / _ROWS).glob("*.parquet"))


def read(spark: SparkSession, folder: Path, schema: T.StructType) -> DataFrame:
    """Staged rows with the columns of `schema` and no others, in any order."""
    # Given the schema, Spark starts no job just to find it out.
    return spark.read.schema(schema).parquet(literal(folder / _ROWS))


def read_numbered(
    spark: SparkSession, parts: Sequence[tuple[Path, int]], schema: T.StructType, number: str
) -> DataFrame:
    """Staged rows of several folders with their numbers.

    Args:
        parts: folders, each with the number of its first row.
        schema: the columns to read.
        number: name of the number's column, int64.
    """
    staged = T.StructType([*schema.fields, *_STAGED.fields])
    places, rows = [], None
    for part, (folder, start) in enumerate(parts):
        for block in blocks_of(folder):
            places.append(f"({part}, {block.block}L, {start - block.seq}L)")
            start += block.num_rows
        one = read(spark, folder, staged).withColumn("part", F.lit(part))
        rows = one if rows is None else rows.unionAll(one)
    # An inline table is broadcast without a job.
    place = spark.sql(f"SELECT * FROM VALUES {', '.join(places)} AS (part, {BLOCK}, shift)")
    return rows.join(F.broadcast(place), ["part", BLOCK]).select(
        (F.col("shift") + F.col(SEQ)).alias(number), *schema.names
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
