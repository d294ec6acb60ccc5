"""Work that preparations give to Spark: vocabularies, and events to numbered users and items."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dataloading.engines import spark_session
from dataloading.engines.spark_session import Session
from preproc.arguments import no_user_left
from preproc.engines import spark_parts
from preproc.engines.spark_parts import (
    KEPT,
    read_vocabularies,
    write_events,
    write_vocabularies,
)

# A vocabulary up to this size is looked up without moving the events. Spark holds some 100 bytes
# for each of its values, in every executor.
_BROADCAST_VALUES = 1 << 18
_BROADCAST_BYTES = 16 << 20


class SparkPreparation(Session):
    """Session that writes and reads vocabularies."""

    def _write_vocabularies(self, ordered: DataFrame, targets: Sequence[Path]) -> list[int]:
        """Writes values in their order as staged folders (value, count); returns their numbers.

        ordered: (column, value, count), where column is the place in `targets`. A range of the
            order is written by a task.
        """
        new = [spark_parts.new_folder(target) for target in targets]
        write = functools.partial(write_vocabularies, new)
        num_values = [0] * len(targets)
        numbered = ordered.withColumn("part", F.spark_partition_id())
        for column, number in numbered.mapInArrow(write, KEPT).collect():
            num_values[column] += number
        for folder, target in zip(new, targets, strict=True):
            spark_parts.publish(folder, target)
        return num_values

    def _read_vocabularies(
        self, folders: Mapping[int, Path], first_id: int, kind: str = "string"
    ) -> DataFrame:
        """Returns (column, value, id) of staged folders by column; kind: Spark's type of value."""
        pieces = [
            (column, piece)
            for column, folder in folders.items()
            for piece in spark_parts.pieces([(folder, first_id)])
        ]
        read = functools.partial(read_vocabularies, pieces)
        return self._tasks(len(pieces), read, f"column int, value {kind}, id long")


@dataclass(frozen=True)
class NumberedEvents:
    """Kept events, and the values of the ids of users and items, in order."""

    # users, items: staged folders (value, count of kept events), in the order of the ids
    users: Path
    items: Path
    events: tuple[Path, ...]  # files of int32 pairs (user, item), together by user, time, item
    num_users: int
    num_items: int
    # num_users_before, num_events_before: before users with few events were left out
    num_users_before: int
    num_events_before: int


class SparkEvents(SparkPreparation):
    """`SparkPreparation` that numbers events."""

    def _read(self, paths: Sequence[Path]) -> DataFrame:
        """Returns (user, item, time) of Parquet files in our file system."""
        return self._spark.read.parquet(*map(spark_session.literal, paths)).select(
            "user",
            "item",
            (F.col("time") + F.lit(0)).alias("time"),  # -0.0 is 0.0
        )

    def _number(
        self, events: DataFrame, min_events: int, first_id: int, least: str
    ) -> NumberedEvents:
        """Leaves out users with fewer than min_events events, and numbers the others' events.

        Args:
            events: (user, item, time).
            first_id: the first id; ids follow the values, integers or the bytes of text.
            least: flag, `min_events` and unit for the error where no user is left.
        """
        by_user = events.groupBy("user").agg(F.count(F.lit(1)).alias("count"))
        num_users_before, num_events_before, most = by_user.agg(
            F.count(F.lit(1)), F.sum("count"), F.max("count")
        ).first()
        if (most or 0) < min_events:
            raise no_user_left(least, most or 0)
        users, items, target = (
            self._scratch / f"{name}.parts" for name in ("users", "items", "events")
        )
        kept_users = by_user.where(F.col("count") >= min_events)
        num_users = self._write_values(kept_users, "user", users)
        kept = self._with_ids(events, "user", users, num_users, first_id)
        by_item = kept.groupBy("item").agg(F.count(F.lit(1)).alias("count"))
        num_items = self._write_values(by_item, "item", items)
        numbered = self._with_ids(kept, "item", items, num_items, first_id)
        ordered = numbered.orderBy("user", "time", "item")
        new = spark_parts.new_folder(target)
        ordered.select("user", "item", F.spark_partition_id().alias("part")).mapInArrow(
            functools.partial(write_events, new), "num_events long"
        ).collect()
        spark_parts.publish(new, target)
        files, before = spark_parts.part_files(target), (num_users_before, num_events_before)
        return NumberedEvents(users, items, tuple(files), num_users, num_items, *before)

    def _write_values(self, counted: DataFrame, key: str, target: Path) -> int:
        """Writes the vocabulary of (key, count) in the order of the key; returns its size."""
        ordered = counted.orderBy(key).select(
            F.lit(0).cast("int").alias("column"), F.col(key).alias("value"), "count"
        )
        (num_values,) = self._write_vocabularies(ordered, [target])
        return num_values

    def _with_ids(
        self, events: DataFrame, key: str, vocabulary: Path, num_values: int, first_id: int
    ) -> DataFrame:
        """Returns the events whose value of `key` has an id, with that in its place.

        A large vocabulary is joined; Spark divides a partition with a value in many events.
        """
        kind = events.schema[key].dataType.simpleString()
        ids = self._read_vocabularies({0: vocabulary}, first_id, kind).drop("column")
        num_bytes = sum(path.stat().st_size for path in spark_parts.part_files(vocabulary))
        if num_values <= _BROADCAST_VALUES and num_bytes <= _BROADCAST_BYTES:
            ids = F.broadcast(ids)
        joined = events.withColumnRenamed(key, "value").join(ids, "value").drop("value")
        return joined.withColumnRenamed("id", key)


def read_pairs(path: Path) -> np.ndarray:
    """Returns the pairs of a file of `NumberedEvents.events`, int32 [n, 2]."""
    return np.fromfile(path, np.int32).reshape(-1, 2)
