"""The single-machine engine: DuckDB, embedded, out of core under a memory limit.

Events are staged as Parquet files, then counted, numbered, joined and sorted in SQL; what does not
fit into memory DuckDB keeps in the scratch folder. DuckDB compares text bytewise, as ids demand.
"""

from pathlib import Path

import duckdb
import numpy as np

from dataloading.table_input.duckdb_files import (
    quoted,
    read_ndjson,
    read_ndjson_objects,
    read_parquet,
)
from preproc.amazon_books.arguments import Options
from preproc.amazon_books.engines.engine import NumberedLog, StagedLog, no_user_left, two_values
from preproc.amazon_books.lines import metadata_lines, review_lines
from preproc.amazon_books.lines.line_files import MAX_LINE_BYTES
from preproc.engines.duckdb_connection import DuckDBConnection

_FETCHED_ROWS = 1 << 20  # 4 MiB of item ids
_ROW_GROUP_ROWS = 1 << 16
# Where DuckDB may have taken what is no JSON: a comma behind the last element, any case of NaN and
# Infinity. It also finds text that looks like these.
_LENIENT = r",\s*[}\]]|[:,\[]\s*-?(?i:nan|inf|infinity)\s*[,}\]]"
_FETCHED_LINES = 1 << 10
_SEARCHED_BYTES = 4 << 20


class DuckDBEngine(DuckDBConnection):
    """A context manager around one connection; see `preproc/amazon_books/engines/engine.py`.

    Args:
        options: their memory limit is for the whole process; their threads are DuckDB's.
        scratch: for what does not fit; DuckDB makes files in it and removes them.
    """

    name = "duckdb"

    def __init__(self, options: Options, scratch: Path):
        super().__init__(
            options.memory_limit_bytes,
            options.threads,
            scratch,
            # Rows are sorted by what is in them, never by where they were.
            preserve_insertion_order=False,
            python_enable_replacements=False,
        )

    # Lines

    def stage_reviews(self, source: Path, target: Path) -> bool:
        """See `Engine`."""
        user, item, time = review_lines.USER, review_lines.ITEM, review_lines.TIME
        # As JSON: converted by DuckDB, numbers would pass for text and fractions for integers.
        return self._stage(
            f"""
            SELECT CASE WHEN {_is_text(user)} AND {_is_text(item)}
                AND regexp_full_match({time}::VARCHAR, '-?[0-9]+')
                THEN {user} ->> '$' ELSE error('a bad line') END AS user,
                {item} ->> '$' AS item, {time}::VARCHAR::BIGINT AS time
            FROM {_json_lines(source, {user: "JSON", item: "JSON", time: "JSON"})}
            """,
            source,
            target,
        )

    def stage_metadata(self, source: Path, target: Path) -> bool:
        """See `Engine`."""
        item, categories = metadata_lines.ITEM, metadata_lines.CATEGORIES
        return self._stage(
            f"""
            SELECT CASE WHEN {_is_text(item)} AND {_is_names(categories)}
                THEN {item} ->> '$' ELSE error('a bad line') END AS item,
                nullif({categories} ->> '$[#-1][#-1]', '') AS item_0
            FROM {_json_lines(source, {item: "JSON", categories: "JSON"})}
            """,
            source,
            target,
        )

    def _stage(self, query: str, source: Path, target: Path) -> bool:
        if _has_odd_space(source):
            return False
        try:
            self._connection.execute(
                f"COPY ({query}) TO {quoted(target)} "
                f"(FORMAT parquet, ROW_GROUP_SIZE {_ROW_GROUP_ROWS})"
            )
        # UnicodeDecodeError: DuckDB's message quotes a line and cuts a character in half.
        except (duckdb.InvalidInputException, duckdb.ConversionException, UnicodeDecodeError):
            return False
        return self._is_strict(source)

    def _is_strict(self, source: Path) -> bool:
        """Whether lines that DuckDB could read are JSON to stricter readers, too."""
        options = f"compression='uncompressed', maximum_object_size={MAX_LINE_BYTES}"
        suspects = self._connection.execute(
            f"SELECT json::VARCHAR FROM {read_ndjson_objects(source, options)} "
            f"WHERE regexp_matches(json::VARCHAR, {quoted(_LENIENT)})"
        )
        while lines := suspects.fetchmany(_FETCHED_LINES):
            for (line,) in lines:
                try:
                    review_lines.json_object(line, ())
                except ValueError:
                    return False
        return True

    # Numbers

    def number(self, log: StagedLog, min_events: int, folder: Path) -> NumberedLog:
        """See `Engine`."""
        sql = self._connection.execute
        sql(f"CREATE VIEW events AS SELECT user, item, time FROM {read_parquet(log.events)}")
        sql(
            f"""
            CREATE TABLE users AS
            SELECT user, count(*) AS num_events, (row_number() OVER (ORDER BY user))::INTEGER AS id
            FROM events GROUP BY user HAVING num_events >= {min_events}
            """
        )
        num_events = self._column("SELECT num_events FROM users ORDER BY id", np.int64)
        if not len(num_events):
            counts = self._column("SELECT count(*) FROM events GROUP BY user", np.int64)
            raise no_user_left(min_events, int(counts.max(initial=0)))
        sql(
            """
            CREATE TABLE items AS
            SELECT item, (row_number() OVER (ORDER BY item))::INTEGER AS id
            FROM (SELECT DISTINCT item FROM events SEMI JOIN users USING (user))
            """
        )
        (num_items,) = self._column("SELECT count(*) FROM items", np.int64)
        (num_users,) = self._column("SELECT count(DISTINCT user) FROM events", np.int64)
        events = folder / "events.bin"
        self._write_events(events)
        missing: dict[str, int] = {}
        return NumberedLog(
            events=events,
            num_events=num_events,
            user_features=self._features("user", log, missing),
            item_features=self._features("item", log, missing),
            num_items=int(num_items),
            num_users_before=int(num_users),
            num_missing=missing,
        )

    def _write_events(self, target: Path) -> None:
        reader = self._connection.sql(
            """
            SELECT items.id FROM events JOIN users USING (user) JOIN items USING (item)
            ORDER BY users.id, time, items.id
            """
        ).to_arrow_reader(_FETCHED_ROWS)
        with open(target, "wb") as file:
            for batch in reader:
                batch.column(0).to_numpy().tofile(file)

    def _features(
        self, kind: str, log: StagedLog, missing: dict[str, int]
    ) -> tuple[np.ndarray, ...]:
        """Returns the ids of the features of users or items, as `NumberedLog` has them.

        missing: `NumberedLog.num_missing`, which is filled here.
        """
        names = log.user_features if kind == "user" else log.item_features
        tables = log.users if kind == "user" else log.items
        features = []
        for i, name in enumerate(names):
            self._connection.execute(
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
        return tuple(features)

    def _check_single(self, kind: str, name: str, gaps_count: bool) -> None:
        twofold = self._connection.sql(
            f"""
            SELECT key, CASE WHEN known = num THEN least END, most FROM feature
            WHERE least <> most OR ({gaps_count} AND 0 < known AND known < num) ORDER BY id LIMIT 1
            """
        ).fetchall()
        for key, *values in twofold:
            raise two_values(kind, key, name, tuple(values))

    def _column(self, query: str, dtype: type) -> np.ndarray:
        """A query's single column, [n]."""
        table = self._connection.sql(query).to_arrow_table()
        return table.column(0).to_numpy().astype(dtype)


def _has_odd_space(source: Path) -> bool:
    """Returns whether a file has a vertical tab or a form feed.

    DuckDB ignores them around a line. JSON allows them nowhere, not even in text.
    """
    with open(source, "rb") as file:
        while block := file.read(_SEARCHED_BYTES):
            if b"\v" in block or b"\f" in block:
                return True
    return False


def _json_lines(path: Path, columns: dict[str, str]) -> str:
    """A table of the fields of a plain file's lines; NULL where one is not there."""
    types = ", ".join(f"{name}: '{type_name}'" for name, type_name in columns.items())
    return read_ndjson(
        path,
        "auto_detect=false, records=true, compression='uncompressed', "
        f"columns={{{types}}}, maximum_object_size={MAX_LINE_BYTES}",
    )


def _is_text(column: str) -> str:
    """A condition: the JSON value is text with something in it."""
    return f"""(starts_with({column}::VARCHAR, '"') AND {column}::VARCHAR <> '""')"""


def _is_names(column: str) -> str:
    """A condition: the JSON value is missing, or a list of lists of text. It may also fail for
    text with a null in it."""
    text = f"{column}::VARCHAR"
    types = (
        f"json_structure({column})::VARCHAR IN ('[[\"VARCHAR\"]]', '[[\"NULL\"]]', '[\"NULL\"]')"
    )
    no_null = f"NOT contains({text}, '[null') AND NOT contains({text}, ',null')"
    return f"({column} IS NULL OR ({types} AND {no_null}))"
