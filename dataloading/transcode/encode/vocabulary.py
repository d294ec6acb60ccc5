"""Texts to ids by falling count: counting, looking up, and the vocabulary as a text file.

Neither the vocabulary nor the rows need to fit into memory: DuckDB counts and joins them, and what
does not fit goes to a folder.
"""

import datetime
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from dataloading.engines.duckdb_session import DuckDBSession
from dataloading.keys.vocabulary import COUNTED_SCHEMA, read_counted
from dataloading.table_input.duckdb_files import quoted, read_parquet

UNKNOWN = 0  # the id of missing values and of those that are not in the vocabulary
_ROWS = 1 << 20  # looked up at a time
_NUMBERED = "file_row_number=true"


def bucket_ids(texts: pa.Array, buckets: int) -> np.ndarray:
    """Ids int64 [n], XXH64 of each text's UTF-8 bytes modulo `buckets`; missing is the empty text.

    Each different text is hashed once.
    """
    encoded = pc.fill_null(texts, "").dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary()).to_pylist()
    ids = [xxhash.xxh64_intdigest(text) % buckets for text in texts]
    return np.array(ids, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


class CountedTexts(Protocol):
    """Texts of a feature in the rows of a split.

    Attributes:
        num_values: values of all rows, missing ones included.
        counts: a query for the different `value`s that are not null, and the `count` of each.
    """

    num_values: int
    counts: str


class TextColumn(NamedTuple):
    """Column of texts in a Parquet file, or of lists of `hotness` texts; null where missing."""

    path: Path
    name: str
    hotness: int

    @property
    def num_values(self) -> int:
        """Values of all rows."""
        return pq.read_metadata(self.path).num_rows * self.hotness

    @property
    def sql(self) -> str:
        """A query for `row`, the number of a value from 0, and `value`."""
        row, value = "file_row_number", self.name
        if self.hotness > 1:
            row = f"file_row_number * {self.hotness} + unnest(range({self.hotness}))"
            value = f"unnest({self.name})"
        return f"(SELECT {row} AS row, {value} AS value FROM {read_parquet(self.path, _NUMBERED)})"

    @property
    def counts(self) -> str:
        """A query for `value` and `count`; see `CountedTexts`."""
        query = f"SELECT value, count(*) AS count FROM {self.sql}"
        return f"({query} WHERE value IS NOT NULL GROUP BY value)"


def check_last_seen(path: Path, num_values: int) -> None:
    """Raises ValueError unless a file has the last day of each value of a vocabulary."""
    try:
        with pq.ParquetFile(path) as file:
            days = pa.types.is_date(file.schema_arrow.field("last_seen").type)
            batches = file.iter_batches(columns=["last_seen"], use_threads=False)
            num_days = sum(len(batch.column(0).drop_null()) for batch in batches) if days else 0
    except (pa.ArrowException, OSError, KeyError) as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"{path}: expected the last day of each value of the vocabulary, which is a part of "
            f"the data set, got a file that cannot be read: {words:.200}; make the data set again"
        ) from None
    if num_days != num_values or file.metadata.num_rows != num_values:
        raise ValueError(
            f"{path}: expected the last day of each of the {num_values:,} values of the "
            f"vocabulary, got {num_days:,} days: take the file that belongs to the data set"
        )


class Vocabularies(DuckDBSession):
    """Counts and looks up values.

    A vocabulary is a Parquet file with the columns `value` and `count`; its first value has id 1.
    """

    def count(
        self, texts: CountedTexts, threshold: Callable[[int, int], int], target: Path
    ) -> tuple[int, int]:
        """Writes the vocabulary of values that are frequent enough, by falling count, ties by the
        bytes of their UTF-8 text; returns its number of values, and the least count, which is
        `threshold(number of values, number of those that occur once)`."""
        self._count(texts)
        (single,) = self.connection.execute(
            "SELECT count(*) FROM counts WHERE count = 1"
        ).fetchone()
        least = threshold(texts.num_values, single)
        kept = self._copy(
            f"SELECT * FROM counts WHERE count >= {least} ORDER BY count DESC, value", target
        )
        self.connection.execute("DROP TABLE counts")
        return kept, least

    def _count(self, texts: CountedTexts) -> None:
        self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE counts AS SELECT value, count FROM {texts.counts}"
        )

    def grow(
        self,
        texts: CountedTexts,
        least: int,
        table: Path,
        date: datetime.date | None,
        evict_after: int | None,
        known_days: Path | None,
        days: Path,
    ) -> tuple[np.ndarray, int]:
        """Adds the values of texts that occur `least` times to a vocabulary, in the order of
        `count` after its values.

        Args:
            date: day of the rows; None if days are not kept.
            evict_after: values that did not occur in this number of days are removed; None: all
                stay.
            known_days: Parquet file with the column `last_seen`, the last day on which each value
                so far occurred; None: they count as seen on `date`.
            days: such a file of all values, written with `date`.

        Returns:
            (the former ids of the values that stay, ascending, the number of new values).
        """
        self._count(texts)
        today = "NULL::DATE" if date is None else f"DATE '{date}'"
        dates = f"(SELECT file_row_number, {today} AS last_seen FROM known)"
        if known_days is not None:
            dates = read_parquet(known_days, _NUMBERED)
        stays = "true" if evict_after is None else f"{today} - last_seen < {evict_after}"
        self.connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE grown AS
            WITH known AS (FROM {read_parquet(table, _NUMBERED)}), seen AS (
                SELECT file_row_number + 1 AS id, value,
                    known.count + coalesce(counts.count, 0) AS count,
                    if(counts.count IS NULL, last_seen, greatest(last_seen, {today})) AS last_seen
                FROM known JOIN {dates} USING (file_row_number) LEFT JOIN counts USING (value)
            )
            SELECT * FROM seen WHERE {stays}
            UNION ALL
            SELECT NULL, value, count, {today} FROM counts ANTI JOIN known USING (value)
            WHERE count >= {least}
            """
        )
        in_order = "FROM grown ORDER BY id NULLS LAST, count DESC, value"
        self._copy(f"SELECT value, count {in_order}", table)
        if date is not None:
            self._copy(f"SELECT last_seen {in_order}", days)
        (new,) = self.connection.execute("SELECT count(*) FROM grown WHERE id IS NULL").fetchone()
        stayed = self.connection.execute("SELECT id FROM grown WHERE id NOT NULL ORDER BY id")
        ids = stayed.fetchnumpy()["id"]
        self.connection.execute("DROP TABLE counts; DROP TABLE grown")
        return np.asarray(ids, np.int64), new

    def write_last_seen(self, vocabulary: Path, date: datetime.date, target: Path) -> None:
        """Writes that all values of a vocabulary occurred on a day; see `grow`."""
        self._copy(f"SELECT DATE '{date}' AS last_seen FROM {read_parquet(vocabulary)}", target)

    def _copy(self, query: str, target: Path) -> int:
        (rows,) = self.connection.execute(
            f"COPY ({query}) TO {quoted(target)} (FORMAT parquet)"
        ).fetchone()
        return rows

    def reuse(self, known: Path, table: Path, text: Path, cardinality: int) -> None:
        """Copies the vocabulary of an earlier data set, as text and as a table."""
        num_values = read_text(known, table)
        repeated = self.connection.execute(
            f"""
            SELECT value FROM {read_parquet(table)}
            GROUP BY value HAVING count(*) > 1 ORDER BY value LIMIT 1
            """
        ).fetchone()
        if repeated is not None:
            raise ValueError(
                f"{known}: has the value {repeated[0]!r:.100} on more than one line; expected each "
                "value once, line N has id N. Take the file that belongs to the data set"
            )
        if num_values + 1 != cardinality:
            raise ValueError(
                f"{known}: has {num_values} lines; the feature's cardinality {cardinality} needs "
                f"{cardinality - 1}: take the file that belongs to the data set"
            )
        shutil.copyfile(known, text)

    def most_frequent_unknown(
        self, texts: CountedTexts, vocabulary: Path
    ) -> tuple[str, int] | None:
        """Returns the most frequent value without an id and its count; None: each has an id."""
        return self.connection.execute(
            f"""
            SELECT value, count
            FROM {texts.counts} ANTI JOIN {read_parquet(vocabulary)} USING (value)
            ORDER BY count DESC, value LIMIT 1
            """
        ).fetchone()

    def look_up(self, texts: TextColumn, vocabulary: Path) -> Iterator[np.ndarray]:
        """Yields the ids of the values in order, int64; `UNKNOWN` of a value that has none."""
        # A table, because it spills; sorted, so that a block's rows lie together.
        self.connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE ids AS
            SELECT texts.row, known.file_row_number + 1 AS id
            FROM {texts.sql} texts
            JOIN {read_parquet(vocabulary, _NUMBERED)} known USING (value)
            ORDER BY row
            """
        )
        num_values = texts.num_values
        for start in range(0, num_values, _ROWS):
            joined = self.connection.execute(
                f"SELECT row, id FROM ids WHERE row >= {start} AND row < {start + _ROWS}"
            ).fetchnumpy()
            ids = np.full(min(_ROWS, num_values - start), UNKNOWN, np.int64)
            ids[joined["row"] - start] = joined["id"]
            yield ids
        self.connection.execute("DROP TABLE ids")


def read_text(path: Path, target: Path) -> int:
    """Makes the vocabulary at `target` from a file of `write_counted`; returns its size.

    Raises:
        ValueError: a line is not value, tab, count.
    """
    if not path.is_file():
        raise ValueError(f"{path}: the file does not exist; it is part of the data set")
    num_values = 0
    with pq.ParquetWriter(target, COUNTED_SCHEMA) as file:
        for block in read_counted(path):
            file.write_batch(block)
            num_values += block.num_rows
    return num_values
