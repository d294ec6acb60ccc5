"""Source files of Spark's tables: their rows as numbered parts in a folder that all workers see."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from dataloading.spec.rules import listing
from preproc.engines.bad_lines import (
    MOST_LISTED,
    NO_BAD_LINES,
    BadLine,
    BadLines,
    check_bad_lines,
)
from preproc.engines.engine import StoredChunk
from preproc.engines.spark.hadoop_store import HadoopStore, is_uri, spark_path
from preproc.engines.spark.staged_rows import (
    REPORT,
    FileSplit,
    StageRows,
    StageText,
    file_numbers,
    spark_file,
    split_from_json,
)
from preproc.engines.spark.tasks import RunToken
from preproc.engines.text_tables import stored_columns
from preproc.sources.column_chunk import CSV, PARQUET, SourceChunk
from preproc.sources.header import check_names
from preproc.sources.part_files import csv_columns, partition_values

_PLACE_NAMES = ("path", "start")
_UNDIVIDED = 1 << 50
_SPLIT_SETTINGS = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")


@dataclass(frozen=True, kw_only=True)
class StagedChunk(StoredChunk):
    """Rows of a chunk in parts, and where they come from.

    Attributes:
        schema: names and types of the columns of the parts, in order.
        part_files: number of the source file of each part.
        first_rows: number of the first row of each part.
        folder_values: column that the parts do not have -> its value in each file.
    """

    folder: Path
    schema: StructType
    part_files: tuple[int, ...]
    first_rows: tuple[int, ...]
    folder_values: Mapping[str, Sequence[str | None]]


def column(name: str) -> str:
    """Returns a name as SQL of Spark."""
    return "`" + name.replace("`", "``") + "`"


def collect_splits(frame: DataFrame, task: Callable) -> list[FileSplit]:
    """Runs a task on the rows of a frame; returns its splits in order."""
    reports = frame.mapInArrow(task, REPORT).collect()
    return sorted((split_from_json(text) for (text,) in reports), key=lambda split: split[:2])


def number_parts(folder: Path, splits: Sequence[FileSplit]) -> None:
    """Gives the parts of splits their final names, with their numbers in order."""
    parts = [part for split in splits for part in split.parts]
    for number, part in enumerate(parts):
        (folder / part.name).replace(folder / f"part-{number:08d}.parquet")


def stage_chunk(
    session: SparkSession,
    store: HadoopStore,
    token: RunToken,
    folder: Path,
    chunk: SourceChunk,
    on_bad_line: str,
) -> StagedChunk:
    """Writes the rows of a chunk as parts; see `Engine.read`."""
    is_text = chunk.type != PARQUET
    stage = _stage_text if is_text else _stage_parquet
    schema, splits = stage(session, store, token, folder, chunk)
    bad = _bad_lines(splits) if is_text else NO_BAD_LINES
    num_rows = sum(split.num_rows for split in splits)
    check_bad_lines(bad, num_rows, chunk.files, on_bad_line)
    number_parts(folder, splits)
    parts = [(split.file, part.num_rows) for split in splits for part in split.parts]
    first_rows = itertools.accumulate((size for _, size in parts), initial=0)
    added = [name for name in chunk.partitions if name not in schema.names]
    return StagedChunk(
        files=chunk.files,
        columns=chunk.columns or (*schema.names, *added),
        num_rows=num_rows,
        header_rows=int(chunk.header and chunk.type == CSV),
        bad=bad,
        folder=folder,
        schema=schema,
        part_files=tuple(file for file, _ in parts),
        first_rows=tuple(first_rows)[:-1],
        folder_values={name: partition_values(chunk, name) for name in added},
    )


def _bad_lines(splits: Sequence[FileSplit]) -> BadLines:
    """Returns the bad lines of all splits, numbered from the start of their files."""
    lines: list[BadLine] = []
    count, file, before = 0, -1, 0
    for split in splits:
        before = before if split.file == file else 0
        file = split.file
        for bad in split.bad.first:
            lines.append(bad._replace(line=bad.line + before, record=bad.record + before))
        count += split.bad.count
        before += split.num_lines
    return BadLines(count, tuple(lines[:MOST_LISTED]))


def _stage_text(
    session: SparkSession, store: HadoopStore, token: RunToken, folder: Path, chunk: SourceChunk
) -> tuple[StructType, list[FileSplit]]:
    # Spark does not divide compressed files, does not know Zstandard, and names no damaged file.
    whole = [
        number
        for number, file in enumerate(chunk.files)
        if file.endswith((".gz", ".zst")) and not is_uri(file)
    ]
    if remote := next((f for f in chunk.files if f.endswith(".zst") and is_uri(f)), None):
        raise ValueError(
            f"{remote}: Spark reads .zst only from folders that all workers see under the same "
            "path; possible solutions: copy the file, compress it with gzip"
        )
    others = [file for number, file in enumerate(chunk.files) if number not in whole]
    if chunk.type == CSV:
        names = csv_columns(chunk, store)
    else:
        names = stored_columns(chunk, ()) or _json_keys(session, chunk)
    stored = stored_columns(chunk, names)
    check_names([*stored, *chunk.partitions], chunk.files[0])
    task = StageText(chunk, tuple(names), folder, token)
    splits = collect_splits(_lines(session, chunk, others), task) if others else []
    splits = _close_fields(session, task, splits)
    if whole:
        work = functools.partial(task.whole_files, whole)
        frame = session.range(0, len(whole), 1, len(whole))
        splits += collect_splits(frame, work)
    schema = StructType([StructField(name, StringType()) for name in stored])
    return schema, sorted(splits, key=lambda split: split[:2])


def _close_fields(
    session: SparkSession, task: StageText, splits: list[FileSplit]
) -> list[FileSplit]:
    """Reads divided files again, undivided, if fields with line breaks may cross their splits."""
    divided = {split.file for split in splits if split.start > 0}
    again = {split.file for split in splits if split.is_open} & divided
    if not again:
        return splits
    for split in splits:
        for part in split.parts if split.file in again else ():
            (task.folder / part.name).unlink()
    with _undivided_files(session):
        frame = _lines(session, task.chunk, [task.chunk.files[n] for n in sorted(again)])
        whole = collect_splits(frame, task)
    return [split for split in splits if split.file not in again] + whole


def _json_keys(session: SparkSession, chunk: SourceChunk) -> list[str]:
    """Returns the keys of the objects in JSON lines, in the order in which they appear."""
    if file := next((file for file in chunk.files if file.endswith(".zst")), None):
        raise ValueError(f"{file}: expected --engine duckdb for JSON lines in .zst files, or gzip")
    lines = _lines(session, chunk, chunk.files).select(
        F.struct(*_PLACE_NAMES, F.monotonically_increasing_id().alias("row")).alias("place"),
        F.expr("json_object_keys(value)").alias("keys"),
    )
    places = lines.where("keys IS NOT NULL").groupBy("keys").agg(F.min("place").alias("place"))
    numbers = file_numbers(chunk.files)
    rows = [
        (numbers[spark_file(row.place.path)], row.place.start, row.place.row, row["keys"])
        for row in places.collect()
    ]
    return list(dict.fromkeys(key for *_, keys in sorted(rows) for key in keys))


def _stage_parquet(
    session: SparkSession, store: HadoopStore, token: RunToken, folder: Path, chunk: SourceChunk
) -> tuple[StructType, list[FileSplit]]:
    reader = session.read.option("recursiveFileLookup", "true")
    frame = reader.parquet(*map(spark_path, chunk.files))
    known = {field.name: field for field in frame.schema.fields}
    wanted = chunk.columns or (*known, *chunk.partitions)
    check_names(list(wanted), chunk.files[0])
    if missing := [name for name in wanted if name not in (*known, *chunk.partitions)]:
        raise ValueError(
            f"{chunk.files[0]}: expected the columns {listing(missing)}, got {listing(known)}"
        )
    stored = [name for name in wanted if name in known]
    # Spark reads all files of a frame with the types of one, and takes a column that has only
    # missing values for the type that stores them.
    alike: dict[tuple, list[str]] = {}
    for file in chunk.files:
        kinds = {field.name: field.type for field in store.schema(file)}
        alike.setdefault(tuple(kinds.get(name) for name in stored), []).append(file)
    parts = []
    for kinds, files in alike.items():
        columns = [
            F.lit(None) if kind is not None and pa.types.is_null(kind) else F.col(column(name))
            for name, kind in zip(stored, kinds, strict=True)
        ]
        named = (own.alias(f"c{i}") for i, own in enumerate(columns))
        parts.append(reader.parquet(*map(spark_path, files)).select(*_places(), *named))
    plain = functools.reduce(DataFrame.union, parts)
    voids = [f.name for f in plain.schema.fields if f.dataType.typeName() == "void"]
    plain = plain.withColumns({name: F.col(name).cast("string") for name in voids})
    splits = collect_splits(plain, StageRows(chunk.files, folder, token))
    types = [field.dataType for field in plain.schema.fields[2:]]
    return StructType([StructField(*field) for field in zip(stored, types, strict=True)]), splits


def _lines(session: SparkSession, chunk: SourceChunk, files: Sequence[str]) -> DataFrame:
    reader = session.read.option("recursiveFileLookup", "true")
    if chunk.type == CSV:  # other line ends stay, because they may be part of a field
        reader = reader.option("lineSep", "\n")
    frame = reader.text([spark_path(file) for file in files])
    return frame.select(*_places(), F.col("value"))


def _places() -> tuple[Column, Column]:
    """Returns the columns of a file's path and of the byte at which a split of it begins."""
    return (
        F.expr("_metadata.file_path").alias("path"),
        F.expr("_metadata.file_block_start").alias("start"),
    )


@contextlib.contextmanager
def _undivided_files(session: SparkSession) -> Iterator[None]:
    """Makes Spark read each file in one task."""
    before = {name: session.conf.get(name) for name in _SPLIT_SETTINGS}
    try:
        for name in before:
            session.conf.set(name, str(_UNDIVIDED))
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
