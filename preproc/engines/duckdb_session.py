"""DuckDB with the resources of a preparation, and the numbers of users and items by it."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from dataloading.engines.duckdb_session import DuckDBSession
from preproc.arguments import MachineOptions, no_user_left

# The part of the memory limit that DuckDB does not account for: Python, NumPy, Arrow and code
# (about 110 MiB), one block of results and the mapped part of a file (about 40 MiB), allocator
# slack.
_RESERVED_BYTES = 192 << 20
_FETCHED_ROWS = 1 << 20  # 8 MiB of ids


class PreparationSession(DuckDBSession):
    """DuckDB session within the limits of a preparation; settings: of DuckDB."""

    def __init__(self, options: MachineOptions, scratch: Path, **settings: bool):
        super().__init__(
            scratch,
            options.memory_limit_bytes,
            reserved_bytes=_RESERVED_BYTES,
            threads=options.threads,
            remedies="fewer --threads, another --temp_dir",
            **settings,
        )


class DuckDBEvents(PreparationSession):
    """Session with the events of a log in the table or view `events`: user, item, time.

    DuckDB compares text bytewise, as ids demand.
    """

    def _number(self, min_events: int, first_id: int, least: str) -> None:
        """Makes tables of value, num_events, id: `users` and `items` of kept events; `all_users`.

        Args:
            first_id: the first id; ids follow the values, integers or the bytes of text.
            least: flag, `min_events` and unit for the error where no user is left.
        """
        count = "SELECT {0} AS value, count(*) AS num_events FROM events {1} GROUP BY {0}"
        self.connection.execute(f"CREATE TABLE all_users AS {count.format('user', '')}")
        kept = count.format("item", "SEMI JOIN users ON user = users.value")
        for kind, counts in (
            ("user", f"FROM all_users WHERE num_events >= {min_events}"),
            ("item", f"FROM ({kept})"),
        ):
            self.connection.execute(
                f"""
                CREATE TABLE {kind}s AS SELECT value, num_events,
                    (row_number() OVER (ORDER BY value) + {first_id - 1})::INTEGER AS id {counts}
                """
            )
        if not self._integer("SELECT count(*) FROM users"):
            most = self._integer("SELECT coalesce(max(num_events), 0) FROM all_users")
            raise no_user_left(least, most)

    def _ordered(self) -> pa.RecordBatchReader:
        """Returns the ids of users and items of kept events, int32, by user, time, item."""
        return self.connection.sql(
            """
            SELECT users.id AS user, items.id AS item
            FROM events JOIN users ON user = users.value JOIN items ON item = items.value
            ORDER BY users.id, time, items.id
            """
        ).to_arrow_reader(_FETCHED_ROWS)

    def _column(self, query: str, dtype: type) -> np.ndarray:
        table = self.connection.sql(query).to_arrow_table()
        return table.column(0).to_numpy().astype(dtype)

    def _integer(self, query: str) -> int:
        return int(self._column(query, np.int64)[0])
