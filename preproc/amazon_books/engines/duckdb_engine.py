"""The single-machine engine: DuckDB, embedded, out of core under a memory limit.

DuckDB compares text bytewise, as ids demand.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from dataloading.table_input.duckdb_files import quoted, read_parquet
from preproc.amazon_books.engines.interface import NumberedLog, StagedLog, no_user_left
from preproc.amazon_books.options import AmazonOptions
from preproc.engines.duckdb_session import PreparationSession

_FETCHED_ROWS = 1 << 20  # 4 MiB of item ids


class AmazonDuckDBEngine(PreparationSession):
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
        sql = self.connection.execute
        sql(f"CREATE VIEW events AS SELECT user, item, time FROM {read_parquet(log.events)}")
        sql("CREATE TABLE counts AS SELECT user, count(*) AS num_events FROM events GROUP BY user")
        sql(
            f"""
            CREATE TABLE users AS
            SELECT *, (row_number() OVER (ORDER BY user))::INTEGER AS id
            FROM counts WHERE num_events >= {min_events}
            """
        )
        num_events = self._column("SELECT num_events FROM users ORDER BY id", np.int64)
        if not len(num_events):
            (most,) = self._column("SELECT coalesce(max(num_events), 0) FROM counts", np.int64)
            raise no_user_left(min_events, int(most))
        (num_users,) = self._column("SELECT count(*) FROM counts", np.int64)
        sql("DROP TABLE counts")
        sql(
            "CREATE TABLE kept AS SELECT users.id AS user, item, time "
            "FROM events JOIN users USING (user)"
        )
        sql(
            """
            CREATE TABLE items AS
            SELECT item, count(*) AS num_events,
                (row_number() OVER (ORDER BY item))::INTEGER AS id
            FROM kept GROUP BY item
            """
        )
        (num_items,) = self._column("SELECT count(*) FROM items", np.int64)
        events = folder / "events.bin"
        self._write_events(events)
        sql("DROP TABLE kept")
        user_features, missing_users = self.features("user", log)
        item_features, missing_items = self.features("item", log)
        return NumberedLog(
            events=events,
            num_events=num_events,
            user_features=user_features,
            item_features=item_features,
            num_items=int(num_items),
            num_users_before=int(num_users),
            num_missing=missing_users | missing_items,
            vocabularies={kind: self._write_values(kind, folder) for kind in ("user", "item")},
        )

    def _write_values(self, kind: str, folder: Path) -> Path:
        target = folder / f"{kind}_values.parquet"
        self.connection.execute(
            f"COPY (SELECT {kind} AS value, num_events AS count FROM {kind}s ORDER BY id) "
            f"TO {quoted(target)} (FORMAT parquet)"
        )
        return target

    def _write_events(self, target: Path) -> None:
        reader = self.connection.sql(
            """
            SELECT items.id FROM kept JOIN items USING (item) ORDER BY user, time, items.id
            """
        ).to_arrow_reader(_FETCHED_ROWS)
        with open(target, "wb") as file:
            for batch in reader:
                batch.column(0).to_numpy().tofile(file)

    def features(
        self, kind: str, log: StagedLog, known: pa.Table | Path | None = None
    ) -> tuple[tuple[np.ndarray, ...], dict[str, int]]:
        """Returns `NumberedLog.user_features` or those of items, and `NumberedLog.num_missing`.

        Args:
            kind: "user" or "item".
            log: with the tables of features.
            known: the users or items where another engine numbered them: columns `kind` and id,
                or a file with the column value in the order of the ids.

        Raises:
            ValueError: a user or item has two values of a feature.
        """
        if isinstance(known, Path):
            self.connection.execute(
                f"CREATE TABLE {kind}s AS SELECT value AS {kind}, "
                "(file_row_number + 1)::INTEGER AS id "
                f"FROM {read_parquet(known, 'file_row_number=true')}"
            )
        elif known is not None:
            self.connection.register("known", known)
            self.connection.execute(f"CREATE TABLE {kind}s AS SELECT * FROM known")
        names = log.user_features if kind == "user" else log.item_features
        tables = log.users if kind == "user" else log.items
        features, missing = [], {}
        for i, name in enumerate(names):
            self.connection.execute(
                f"""
                CREATE OR REPLACE TABLE feature AS
                SELECT id, any_value({kind}) AS key, min({kind}_{i}) AS least,
                    max({kind}_{i}) AS most, count({kind}_{i}) AS known, count(*) AS num
                FROM {kind}s LEFT JOIN {read_parquet(tables)} USING ({kind}) GROUP BY id
                """
            )
            self._check_single(kind, name, log.gaps_count)
            (without,) = self._column("SELECT count(*) FROM feature WHERE known = 0", np.int64)
            missing[name] = int(without)
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

    def _column(self, query: str, dtype: type) -> np.ndarray:
        table = self.connection.sql(query).to_arrow_table()
        return table.column(0).to_numpy().astype(dtype)
