"""Work that preparations give to Spark: vocabularies."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dataloading.engines.spark_session import Session
from preproc.engines import spark_parts
from preproc.engines.spark_parts import (
    KEPT,
    read_vocabularies,
    write_vocabularies,
)


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
