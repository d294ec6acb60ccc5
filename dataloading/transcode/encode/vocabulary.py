"""Texts to ids by falling count: counting, looking up, and the vocabulary as a text file.

Neither the vocabulary nor the rows need to fit into memory: DuckDB counts and joins them, and what
does not fit goes to a folder.
"""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from dataloading.keys.vocabulary import unescaped
from dataloading.table_input.duckdb_files import quoted, read_parquet
from dataloading.table_input.duckdb_session import DuckDBSession

UNKNOWN = 0  # the id of missing values and of those that are not in the vocabulary
_ROWS = 1 << 20  # looked up at a time
_LINES = 1 << 16  # of a text file, read at a time
_NUMBERED = "file_row_number=true"
_SCHEMA = pa.schema([("value", pa.string()), ("count", pa.int64())])


def bucket_ids(texts: pa.Array, buckets: int) -> np.ndarray:
    """Ids int64 [n], XXH64 of each text's UTF-8 bytes modulo `buckets`; missing is the empty text.

    Each different text is hashed once.
    """
    encoded = pc.fill_null(texts, "").dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary()).to_pylist()
    ids = [xxhash.xxh64_intdigest(text) % buckets for text in texts]
    return np.array(ids, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


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


class Vocabularies(DuckDBSession):
    """Counts and looks up values.

    A vocabulary is a Parquet file with the columns `value` and `count`; its first value has id 1.
    """

    def count(
        self, texts: TextColumn, threshold: Callable[[int, int], int], target: Path
    ) -> tuple[int, int]:
        """Writes the vocabulary of values that are frequent enough, by falling count, ties by the
        bytes of their UTF-8 text; returns its number of values, and the least count, which is
        `threshold(number of values, number of those that occur once)`."""
        self.connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE counts AS
            SELECT value, count(*) AS count FROM {texts.sql}
            WHERE value IS NOT NULL GROUP BY value
            """
        )
        (single,) = self.connection.execute(
            "SELECT count(*) FROM counts WHERE count = 1"
        ).fetchone()
        least = threshold(texts.num_values, single)
        (kept,) = self.connection.execute(
            f"""
            COPY (SELECT * FROM counts WHERE count >= {least} ORDER BY count DESC, value)
            TO {quoted(target)} (FORMAT parquet)
            """
        ).fetchone()
        self.connection.execute("DROP TABLE counts")
        return kept, least

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

    def most_frequent_unknown(self, texts: TextColumn, vocabulary: Path) -> tuple[str, int] | None:
        """Returns the most frequent value without an id and its count; None: each has an id."""
        return self.connection.execute(
            f"""
            SELECT value, count(*) AS count
            FROM (SELECT value FROM {texts.sql} WHERE value IS NOT NULL)
            ANTI JOIN {read_parquet(vocabulary)} USING (value)
            GROUP BY value ORDER BY count DESC, value LIMIT 1
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
    with (
        open(path, encoding="utf-8", newline="\n") as lines,
        pq.ParquetWriter(target, _SCHEMA) as file,
    ):
        try:
            while block := list(itertools.islice(lines, _LINES)):
                texts, counts = zip(*(line.rsplit("\t", 1) for line in block), strict=True)
                columns = [list(map(unescaped, texts)), list(map(int, counts))]
                file.write_table(pa.table(columns, schema=_SCHEMA))
                num_values += len(block)
        except ValueError as error:
            raise ValueError(
                f"{path}: is not a vocabulary; its lines are value, tab, count: {error}"
            ) from None
    return num_values
