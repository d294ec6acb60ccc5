"""DuckDB: raw ratings to numbered interactions in order, out of core under a memory limit.

Ratings are read twice: first for what users, items and times are, and whether all is well, then
for good. What does not fit into memory DuckDB keeps in the scratch folder.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from preproc.arguments import MachineOptions
from preproc.engines.duckdb_session import PreparationSession
from preproc.movielens.rating_lines import (
    NO_TIME,
    TIME_TYPES,
    RatingFile,
    check_line_ends,
    check_lines,
    is_blank,
    is_integer,
    table,
    time_kind,
)

_FETCHED_ROWS = 1 << 20  # 8 MiB of ids
_INTEGER, _TEXT = "BIGINT", "VARCHAR"


@dataclass(frozen=True)
class _Content:
    """Number of rows of a log, and the SQL types that fit its columns."""

    num_rows: int
    user_type: str
    item_type: str
    time_type: str


@dataclass(frozen=True)
class Counts:
    """Numbers of kept and dropped rows.

    interactions: kept, each user and item once.
    dropped_duplicates: rows with a user and an item that another row has at an earlier time.
    users_left_out: for having too few.
    interactions_left_out: theirs.
    """

    users: int
    items: int
    interactions: int
    dropped_duplicates: int
    users_left_out: int
    interactions_left_out: int


class RatingsEngine(PreparationSession):
    """A context manager around one connection.

    Args:
        options: limits of the whole process.
        scratch: folder for what does not fit into memory.
    """

    def __init__(self, options: MachineOptions, scratch: Path):
        super().__init__(
            options,
            scratch,
            # Rows are sorted by what is in them, never by where they were.
            preserve_insertion_order=False,
            python_enable_replacements=False,
        )

    def number(self, files: Sequence[RatingFile], min_ratings: int) -> Counts:
        """Reads a log, leaves out what does not count, and numbers users and items in ascending
        order from 0: integers by value, text by its UTF-8 bytes.

        Raises:
            ValueError: a line is bad, or no user has `min_ratings` items.
        """
        sql = self.connection.execute
        sql(f"CREATE VIEW ratings AS {' UNION ALL '.join(map(table, files))}")
        content = self._content(files)
        with _explained(files):
            sql(
                f"""
                CREATE TABLE pairs AS
                SELECT user::{content.user_type} AS user, item::{content.item_type} AS item,
                    min(time::{content.time_type}) AS time
                FROM ratings GROUP BY ALL
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
        num_pairs, all_users, most = self._row(
            "SELECT sum(num)::BIGINT, count(*), max(num) FROM "
            "(SELECT count(*) AS num FROM pairs GROUP BY user)"
        )
        users, kept = self._row("SELECT count(*), coalesce(sum(num), 0)::BIGINT FROM users")
        (items,) = self._row("SELECT count(*) FROM items")
        if not users:
            raise ValueError(
                f"no user has --min_ratings {min_ratings} items or more; the most that one has is "
                f"{most or 0:,}"
            )
        return Counts(
            users=users,
            items=items,
            interactions=kept,
            dropped_duplicates=content.num_rows - num_pairs,
            users_left_out=all_users - users,
            interactions_left_out=num_pairs - kept,
        )

    def are_numbers(self, kind: str) -> bool:
        """Returns whether all raw users or items were integers, with ids in the order of values;
        otherwise they are text, with ids in the order of its bytes.

        kind: "user" or "item".
        """
        return self._row(f"SELECT typeof(value) FROM {kind}s LIMIT 1") == (_INTEGER,)

    def num_of_users(self) -> np.ndarray:
        """The number of interactions of each user, int64 [users]."""
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
        """The columns id and value of all users or items, by id, some rows at a time.

        kind: "user" or "item".
        """
        yield from self.connection.sql(
            f"SELECT id, value FROM {kind}s ORDER BY id"
        ).to_arrow_reader(_FETCHED_ROWS)

    def _content(self, files: Sequence[RatingFile]) -> _Content:
        with _explained(files):
            num_rows, blanks, user, item, kind = self._row(
                f"""
                SELECT count(*), count_if({is_blank("user")} OR {is_blank("item")}),
                    bool_and({is_integer("user")}), bool_and({is_integer("item")}), max(kind)
                FROM (SELECT user, item, {time_kind("time")} AS kind FROM ratings)
                """
            )
        if not num_rows:
            raise ValueError(f"{', '.join(str(file.path) for file in files)}: no ratings")
        if blanks or kind == NO_TIME:
            raise _unreadable(files, "a user, an item or a time is missing or of no known kind")
        # A number among timestamps is not of `TIME_TYPES[kind]`, which is reported when it is read.
        return _Content(
            num_rows,
            _INTEGER if user else _TEXT,
            _INTEGER if item else _TEXT,
            TIME_TYPES[kind],
        )

    def _row(self, query: str) -> tuple:
        (row,) = self.connection.execute(query).fetchall()
        return row


@contextlib.contextmanager
def _explained(files: Sequence[RatingFile]) -> Iterator[None]:
    """Translates DuckDB's error about a bad line while it reads these files."""
    try:
        yield
    except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
        raise _unreadable(files, str(error)) from error


def _unreadable(files: Sequence[RatingFile], message: str) -> ValueError:
    """Returns the error of a log in which each line alone is valid.

    Raises:
        ValueError: the first bad line, where there is one.
    """
    check_lines(files)
    check_line_ends(files)
    return ValueError(f"{', '.join(str(file.path) for file in files)}: DuckDB: {message}")
