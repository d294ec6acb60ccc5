"""Spark: ratings to numbered interactions in order, on a cluster."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from preproc.engines.spark_parts import part_files
from preproc.engines.spark_preparation import SparkEvents, read_pairs
from preproc.movielens.duckdb_engine import LEAST
from preproc.movielens.options import MovieLensOptions


class RatingsSparkEngine(SparkEvents):
    """`RatingsEngine` of a log of typed rows on Spark; see `SparkPreparation`."""

    def __init__(self, options: MovieLensOptions, scratch: Path):
        super().__init__(options, scratch, f"movielens: {options.output}", scratch)

    def number(self, rows: Path, min_ratings: int) -> dict[str, int]:
        """Numbers users and items of a file of `typed_rows`; see `RatingsEngine.number`."""
        self._interruptions.check()
        pairs = self._read([rows]).groupBy("user", "item").agg(F.min("time").alias("time"))
        pairs.persist(StorageLevel.DISK_ONLY)
        self._numbered = self._number(pairs, min_ratings, 0, LEAST.format(min_ratings))
        numbered = self._numbered
        kept = int(self.num_of_users().sum())
        return {
            "users": numbered.num_users,
            "items": numbered.num_items,
            "interactions": kept,
            "dropped_duplicates": pq.read_metadata(rows).num_rows - numbered.num_events_before,
            "users_left_out": numbered.num_users_before - numbered.num_users,
            "interactions_left_out": numbered.num_events_before - kept,
        }

    def are_numbers(self, kind: str) -> bool:
        schema = pq.read_schema(part_files(self._vocabulary(kind))[0])
        return pa.types.is_integer(schema.field("value").type)

    def num_of_users(self) -> np.ndarray:
        files = part_files(self._vocabulary("user"))
        return np.concatenate([pq.read_table(path)["count"].to_numpy() for path in files])

    def interactions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for path in self._numbered.events:
            users, items = read_pairs(path).T
            yield users, items

    def vocabulary(self, kind: str) -> Iterator[pa.RecordBatch]:
        first = 0
        for path in part_files(self._vocabulary(kind)):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=["value"]):
                    ids = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int32))
                    yield pa.RecordBatch.from_arrays([ids, batch.column(0)], ["id", "value"])
                    first += batch.num_rows

    def _vocabulary(self, kind: str) -> Path:
        return self._numbered.users if kind == "user" else self._numbered.items
