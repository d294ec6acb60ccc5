"""The engine for Spark: counts, numbers, joins and sorts events on a cluster.

DuckDB numbers the features on this machine, where also the numbers of users' events are in memory.
"""

from pathlib import Path

import pyarrow.parquet as pq

from preproc.amazon_books.engines.duckdb_engine import AmazonDuckDBEngine
from preproc.amazon_books.engines.interface import LEAST, NumberedLog, StagedLog
from preproc.amazon_books.options import AmazonOptions
from preproc.engines.spark_parts import part_files
from preproc.engines.spark_preparation import SparkEvents, read_pairs


class AmazonSparkEngine(SparkEvents):
    """See `AmazonEngine` and `SparkPreparation`."""

    def __init__(self, options: AmazonOptions, scratch: Path):
        super().__init__(options, scratch, f"amazon_books: {options.output_path}", scratch)

    def number(self, log: StagedLog, min_events: int, folder: Path) -> NumberedLog:
        self._interruptions.check()
        least = LEAST.format(min_events)
        numbered = self._number(self._read(log.events), min_events, 1, least)
        events = folder / "events.bin"
        with open(events, "wb") as file:
            for path in numbered.events:
                read_pairs(path)[:, 1].tofile(file)
        vocabularies = {
            kind: _merged(parts, folder / f"{kind}_values.parquet")
            for kind, parts in (("user", numbered.users), ("item", numbered.items))
        }
        features, missing = {}, {}
        for kind, path in vocabularies.items():
            with AmazonDuckDBEngine(self._options, self._scratch / "duckdb") as duckdb:
                features[kind], missing[kind] = duckdb.features(kind, log, path)
        return NumberedLog(
            events=events,
            num_events=pq.read_table(vocabularies["user"], columns=["count"])["count"].to_numpy(),
            user_features=features["user"],
            item_features=features["item"],
            num_items=numbered.num_items,
            num_users_before=numbered.num_users_before,
            num_missing=missing["user"] | missing["item"],
            vocabularies=vocabularies,
        )


def _merged(folder: Path, target: Path) -> Path:
    files = part_files(folder)
    with pq.ParquetWriter(target, pq.read_schema(files[0])) as writer:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    writer.write_batch(batch)
    return target
