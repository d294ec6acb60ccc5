"""DuckDB: ratings to numbered interactions in order, out of core under a memory limit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from preproc.engines.duckdb_session import PreparationSession
from preproc.event_tables import EventFile, integer_columns, time_number, union

_FETCHED_ROWS = 1 << 20  # 8 MiB of ids
_INTEGER, _TEXT = "BIGINT", "VARCHAR"


@dataclass(frozen=True)
class Counts:
    """Numbers of kept and dropped rows; a duplicate has the user and item of an earlier row."""

    users: int
    items: int
    interactions: int
    dropped_duplicates: int
    users_left_out: int
    interactions_left_out: int


def no_user_left(min_ratings: int, most: int) -> ValueError:
    """Returns the error of a log without a user of enough items; most: of a user."""
    return ValueError(
        f"no user has --min_ratings {min_ratings} items or more; the most that one has is {most:,}"
    )


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


class RatingsEngine(PreparationSession):
    """A context manager around one connection; see `PreparationSession`."""

    def number(self, files: Sequence[EventFile], min_ratings: int) -> Counts:
        """Reads a log, leaves out what does not count, and numbers users and items in ascending
        order from 0: integers by value, text by its UTF-8 bytes.

        Raises:
            ValueError: a time is invalid, or no user has `min_ratings` items.
        """
        sql = self.connection.execute
        sql(
            f"""
            CREATE TABLE pairs AS
            SELECT user, item, min(time) AS time FROM ({typed_rows(self, files)}) GROUP BY ALL
            """
        )
        sql(
            f"""
            CREATE TABLE users AS
            SELECT user AS value, count(*) AS num,
                (row_number() OVER (ORDER BY user) - 1)::INTEGER AS id
            FROM pairs GROUP BY user HAVING num >= {min_ratings}
            """
        )
        sql(
            """
            CREATE TABLE items AS
            SELECT item AS value, (row_number() OVER (ORDER BY item) - 1)::INTEGER AS id
            FROM (SELECT DISTINCT item FROM pairs SEMI JOIN users ON user = value)
            """
        )
        (num_rows,) = self._row(f"SELECT count(*) FROM ({union(files, 'user')})")
        num_pairs, all_users, most = self._row(
            "SELECT sum(num)::BIGINT, count(*), max(num) FROM "
            "(SELECT count(*) AS num FROM pairs GROUP BY user)"
        )
        users, kept = self._row("SELECT count(*), coalesce(sum(num), 0)::BIGINT FROM users")
        (items,) = self._row("SELECT count(*) FROM items")
        if not users:
            raise no_user_left(min_ratings, most or 0)
        return Counts(
            users=users,
            items=items,
            interactions=kept,
            dropped_duplicates=num_rows - num_pairs,
            users_left_out=all_users - users,
            interactions_left_out=num_pairs - kept,
        )

    def are_numbers(self, kind: str) -> bool:
        """Returns whether all raw users or items were integers, with ids in their order."""
        return self._row(f"SELECT typeof(value) FROM {kind}s LIMIT 1") == (_INTEGER,)

    def num_of_users(self) -> np.ndarray:
        rows = self.connection.sql("SELECT num FROM users ORDER BY id").to_arrow_table()
        return rows["num"].to_numpy()

    def interactions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Users and items, int32 [n] each, some at a time: by user, by time, by item."""
        reader = self.connection.sql(
            """
            SELECT users.id AS user, items.id AS item
            FROM pairs JOIN users ON user = users.value JOIN items ON item = items.value
            ORDER BY users.id, time, items.id
            """
        ).to_arrow_reader(_FETCHED_ROWS)
        for batch in reader:
            yield batch["user"].to_numpy(), batch["item"].to_numpy()

    def vocabulary(self, kind: str) -> Iterator[pa.RecordBatch]:
        """Yields the columns id and value of all users or items, by id, some rows at a time."""
        yield from self.connection.sql(
            f"SELECT id, value FROM {kind}s ORDER BY id"
        ).to_arrow_reader(_FETCHED_ROWS)

    def _row(self, query: str) -> tuple:
        (row,) = self.connection.execute(query).fetchall()
        return row


class LastOfUsers:
    """Takes each user's last `count` interactions out of those that pass through `others`.

    num_of_users: each user's number of interactions, [users], `count` or more.

    Attributes:
        items: int32 [users, count], the last first, complete at the stream's end.
    """

    def __init__(self, num_of_users: np.ndarray, count: int):
        self.items = np.zeros((len(num_of_users), count), np.int32)
        self._ends = np.cumsum(num_of_users)
        self._count = count

    def others(
        self, interactions: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields what is not held out of users and items, [n] each, by user and time."""
        begin = 0
        for users, items in interactions:
            from_end = self._ends[users] - 1 - np.arange(begin, begin + len(users))
            is_held_out = from_end < self._count
            self.items[users[is_held_out], from_end[is_held_out]] = items[is_held_out]
            yield users[~is_held_out], items[~is_held_out]
            begin += len(users)
