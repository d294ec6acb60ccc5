"""DuckDB: ratings to numbered interactions in order, out of core under a memory limit."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from preproc.engines.duckdb_session import DuckDBEvents, PreparationSession
from preproc.event_tables import EventFile, integer_columns, time_number, union

_FETCHED_ROWS = 1 << 20
_INTEGER, _TEXT = "BIGINT", "VARCHAR"
LEAST = "--min_ratings {} items"  # of a user, for the error where no user is left


def typed_rows(session: PreparationSession, files: Sequence[EventFile]) -> str:
    """Returns a query for user, item (integers, or text) and time (a number) of all rows.

    Raises:
        ValueError: a time is invalid.
    """
    integers = integer_columns(session.connection, files, ("user", "item"))
    user, item = (f"{key}::{_INTEGER if key in integers else _TEXT}" for key in ("user", "item"))
    time = time_number(session.connection, files)
    return (
        f"SELECT {user} AS user, {item} AS item, {time} AS time "
        f"FROM ({union(files, 'user, item, time')})"
    )


class RatingsEngine(DuckDBEvents):
    """See `DuckDBEvents`; an event is the first rating of an item by a user."""

    def number(self, files: Sequence[EventFile], min_ratings: int) -> dict[str, int]:
        """Reads a log, leaves out what does not count, and numbers users and items in ascending
        order from 0: integers by value, text by its UTF-8 bytes.

        Returns:
            numbers of kept and dropped rows; a duplicate has the user and item of an earlier row.

        Raises:
            ValueError: a time is invalid, or no user has `min_ratings` items.
        """
        self.connection.execute(
            f"""
            CREATE TABLE events AS
            SELECT user, item, min(time) AS time FROM ({typed_rows(self, files)}) GROUP BY ALL
            """
        )
        self._number(min_ratings, 0, LEAST.format(min_ratings))
        num_rows = self._integer(f"SELECT count(*) FROM ({union(files, 'user')})")
        num_pairs = self._integer("SELECT count(*) FROM events")
        users, kept = self._row("SELECT count(*), sum(num_events)::BIGINT FROM users")
        return {
            "users": users,
            "items": self._integer("SELECT count(*) FROM items"),
            "interactions": kept,
            "dropped_duplicates": num_rows - num_pairs,
            "users_left_out": self._integer("SELECT count(*) FROM all_users") - users,
            "interactions_left_out": num_pairs - kept,
        }

    def are_numbers(self, kind: str) -> bool:
        """Returns whether all raw users or items were integers, with ids in their order."""
        return self._row(f"SELECT typeof(value) FROM {kind}s LIMIT 1") == (_INTEGER,)

    def num_of_users(self) -> np.ndarray:
        return self._column("SELECT num_events FROM users ORDER BY id", np.int64)

    def interactions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Users and items, int32 [n] each, some at a time: by user, by time, by item."""
        for batch in self._ordered():
            yield batch["user"].to_numpy(), batch["item"].to_numpy()

    def vocabulary(self, kind: str) -> Iterator[pa.RecordBatch]:
        """Yields the columns id and value of all users or items, by id, some rows at a time."""
        yield from self.connection.sql(
            f"SELECT id, value FROM {kind}s ORDER BY id"
        ).to_arrow_reader(_FETCHED_ROWS)

    def _row(self, query: str) -> tuple:
        (row,) = self.connection.execute(query).fetchall()
        return row


def without_last(
    interactions: Iterable[tuple[np.ndarray, np.ndarray]],
    num_of_users: np.ndarray,
    last: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields users and items, [n] each, by user and time, without each user's last interactions.

    Args:
        num_of_users: each user's number of interactions, [users].
        last: receives the items that are left out, int32 [users, count], the last first.
    """
    ends, begin = np.cumsum(num_of_users), 0
    for users, items in interactions:
        from_end = ends[users] - 1 - np.arange(begin, begin + len(users))
        is_held_out = from_end < last.shape[1]
        last[users[is_held_out], from_end[is_held_out]] = items[is_held_out]
        yield users[~is_held_out], items[~is_held_out]
        begin += len(users)
