"""Spark with the resources of a preparation, and work that several preparations give to it."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dataloading.table_input import spark_session
from dataloading.table_input.run_token import RunToken
from preproc.engines import spark_parts
from preproc.engines.spark_options import SparkMachineOptions
from preproc.engines.spark_tasks import KEPT, ReadVocabularies, WriteVocabularies


class SparkPreparation:
    """A context manager with a session in it, which an engine adds its work to.

    Memory limit, threads and scratch folder are those of a local master.

    Args:
        options: of the preparation.
        scratch: for what does not fit into memory.
        name: of the application.
        shared: folder of the output's file system, in which workers look for a file of ours.
        settings: of Spark.

    Raises:
        ValueError: on entering: Spark does not start, or its workers do not see our files.
    """

    def __init__(
        self,
        options: SparkMachineOptions,
        scratch: Path,
        name: str,
        shared: Path,
        settings: Mapping[str, str] | None = None,
    ):
        self._options = options
        self._scratch = scratch
        self._name = name
        self._settings = settings
        # Absolute: tasks may have another working folder.
        self._token = RunToken(shared.absolute() / "spark_run", uuid.uuid4().hex)

    def __enter__(self):
        self._interruptions = spark_session.Interruptions()
        self._spark = spark_session.start(self._options, self._scratch, self._name, self._settings)
        self._interruptions.watch(self._spark)
        self._is_cluster = not spark_session.is_local(self._spark.sparkContext.master)
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
        """Turns errors of Spark into KeyboardInterrupt, ValueError or OSError."""
        return spark_session.explained_errors(self._options, self._interruptions)

    def _check_workers(self) -> None:
        """Lets every worker look for our files; those that come later look when they write."""
        if self._is_cluster:
            num_tasks = 4 * self._spark.sparkContext.defaultParallelism
            self._tasks(num_tasks, self._token.checked, "id long").collect()

    def _tasks(self, number: int, work: Callable, schema: str) -> DataFrame:
        """Returns what `work` yields in a task for each of the numbers from 0."""
        return self._spark.range(0, number, 1, max(1, number)).mapInArrow(work, schema)

    def _write_vocabularies(self, ordered: DataFrame, targets: Sequence[Path]) -> list[int]:
        """Writes values in their order as staged folders (value, count); returns their numbers.

        ordered: (column, value, count), where column is the place in `targets`. A range of the
            order is written by a task.
        """
        new = [spark_parts.new_folder(target) for target in targets]
        write = WriteVocabularies(tuple(new))
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
        read = ReadVocabularies(
            tuple(piece for _, piece in pieces), tuple(column for column, _ in pieces)
        )
        return self._tasks(len(pieces), read, f"column int, value {kind}, id long")
