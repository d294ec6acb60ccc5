"""The single-machine engine: DuckDB, embedded, out of core under a memory limit."""

from pathlib import Path

import numpy as np

from dataloading.table_input.duckdb_files import quoted, read_parquet
from preproc.amazon_books.engines.interface import LEAST, NumberedLog, StagedLog
from preproc.amazon_books.options import AmazonOptions
from preproc.engines.duckdb_session import DuckDBEvents


class AmazonDuckDBEngine(DuckDBEvents):
    """See `AmazonEngine`; spills to files in the scratch folder."""

    def __init__(self, options: AmazonOptions, scratch: Path):
        super().__init__(
            options,
            scratch,
            # Rows are sorted by what is in them, never by where they were.
            preserve_insertion_order=False,
            python_enable_replacements=False,
        )

    def number(self, log: StagedLog, min_events: int, folder: Path) -> NumberedLog:
        self.connection.execute(
            f"CREATE VIEW events AS SELECT user, item, time FROM {read_parquet(log.events)}"
        )
        self._number(min_events, 1, LEAST.format(min_events))
        events = folder / "events.bin"
        self._write_events(events)
        user_features, missing_users = self.features("user", log)
        item_features, missing_items = self.features("item", log)
        return NumberedLog(
            events=events,
            num_events=self._column("SELECT num_events FROM users ORDER BY id", np.int64),
            user_features=user_features,
            item_features=item_features,
            num_items=self._integer("SELECT count(*) FROM items"),
            num_users_before=self._integer("SELECT count(*) FROM all_users"),
            num_missing=missing_users | missing_items,
            vocabularies={kind: self._write_values(kind, folder) for kind in ("user", "item")},
        )

    def _write_values(self, kind: str, folder: Path) -> Path:
        target = folder / f"{kind}_values.parquet"
        self.connection.execute(
            f"COPY (SELECT value, num_events AS count FROM {kind}s ORDER BY id) "
            f"TO {quoted(target)} (FORMAT parquet)"
        )
        return target

    def _write_events(self, target: Path) -> None:
        with open(target, "wb") as file:
            for batch in self._ordered():
                batch["item"].to_numpy().tofile(file)

    def features(
        self, kind: str, log: StagedLog, known: Path | None = None
    ) -> tuple[tuple[np.ndarray, ...], dict[str, int]]:
        """Returns `NumberedLog.user_features` or those of items, and `NumberedLog.num_missing`.

        Args:
            kind: "user" or "item".
            log: with the tables of features.
            known: the users or items where another engine numbered them: a file with the column
                value in the order of the ids.

        Raises:
            ValueError: a user or item has two values of a feature.
        """
        if known is not None:
            self.connection.execute(
                f"CREATE TABLE {kind}s AS SELECT value, (file_row_number + 1)::INTEGER AS id "
                f"FROM {read_parquet(known, 'file_row_number=true')}"
            )
        names = log.user_features if kind == "user" else log.item_features
        tables = log.users if kind == "user" else log.items
        features, missing = [], {}
        for i, name in enumerate(names):
            self.connection.execute(
                f"""
                CREATE OR REPLACE TABLE feature AS
                SELECT id, any_value(value) AS key, min({kind}_{i}) AS least,
                    max({kind}_{i}) AS most, count({kind}_{i}) AS known, count(*) AS num
                FROM {kind}s LEFT JOIN {read_parquet(tables)} ON {kind} = value GROUP BY id
                """
            )
            self._check_single(kind, name, log.gaps_count)
            missing[name] = self._integer("SELECT count(*) FROM feature WHERE known = 0")
            ids = self._column(
                "SELECT (dense_rank() OVER (ORDER BY least NULLS FIRST))::INTEGER FROM feature "
                "ORDER BY id",
                np.int32,
            )
            features.append(np.concatenate([np.zeros(1, np.int32), ids]))
        return tuple(features), missing

    def _check_single(self, kind: str, name: str, gaps_count: bool) -> None:
        differing = self.connection.sql(
            f"""
            SELECT key, CASE WHEN known = num THEN least END, most FROM feature
            WHERE least <> most OR ({gaps_count} AND 0 < known AND known < num) ORDER BY id LIMIT 1
            """
        ).fetchall()
        for key, *values in differing:
            shown = " and ".join("none" if value is None else repr(value) for value in values)
            raise ValueError(
                f"{kind} {key!r} has two values of {name}: {shown}; a feature of "
                f"{'a user' if kind == 'user' else 'an item'} is the same wherever the {kind} "
                "occurs, so keep one of them"
            )
