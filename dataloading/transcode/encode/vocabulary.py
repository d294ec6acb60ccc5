"""Texts to ids by falling count: counting, looking up, and the vocabulary as a text file.

Neither the vocabulary nor the rows need to fit into memory: DuckDB counts and joins them, and what
does not fit goes to a folder.
"""

import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import xxhash

from dataloading.spec.output_folder import VOCABULARY_FOLDER
from dataloading.table_input.duckdb_files import quoted, read_parquet
from dataloading.table_input.duckdb_session import DuckDBSession
from dataloading.table_input.lines import BYTE_ORDER_MARK


def bucket_ids(texts: pa.Array, buckets: int) -> np.ndarray:
    """Ids int64 [n], XXH64 of each text's UTF-8 bytes modulo `buckets`; missing is the empty text.

    Each different text is hashed once.
    """
    encoded = pc.fill_null(texts, "").dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary()).to_pylist()
    ids = [xxhash.xxh64_intdigest(text) % buckets for text in texts]
    return np.array(ids, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


UNKNOWN = 0  # the id of missing values and of those that are not in the vocabulary
MIN_MEMORY_BYTES = 128 << 20
VALUES_SCHEMA = pa.schema([("value", pa.string())])
_NUMBERED = "file_row_number=true"
_ROWS = 1 << 20  # looked up at a time
# What stands for what in a line of text; the first must be the escape character itself.
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}


def text_file(feature: str) -> str:
    """The vocabulary of a feature, relative to the data set; odd characters as in a URL."""
    return f"{VOCABULARY_FOLDER}/{urllib.parse.quote(feature, safe='')}.tsv"


class Vocabularies(DuckDBSession):
    """Counts and looks up values.

    Values are Parquet files with a column `value`, in the order of the rows, null where missing.
    A vocabulary is one with the columns `value` and `count`; its first value has id 1.
    """

    def count(
        self, values: Path, threshold: Callable[[int, int], int], target: Path
    ) -> tuple[int, int]:
        """Writes the vocabulary of values that are frequent enough, by falling count, ties by the
        bytes of their UTF-8 text.

        Args:
            threshold: the least count, from the number of values and of those that occur once.

        Returns:
            (number of values in the vocabulary, the threshold).
        """
        self.connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE counts AS
            SELECT value, count(*) AS count FROM {read_parquet(values)}
            WHERE value IS NOT NULL GROUP BY value
            """
        )
        (single,) = self.connection.execute(
            "SELECT count(*) FROM counts WHERE count = 1"
        ).fetchone()
        least = threshold(pq.read_metadata(values).num_rows, single)
        (kept,) = self.connection.execute(
            f"""
            COPY (SELECT * FROM counts WHERE count >= {least} ORDER BY count DESC, value)
            TO {quoted(target)} (FORMAT parquet)
            """
        ).fetchone()
        self.connection.execute("DROP TABLE counts")
        return kept, least

    def reuse(self, known: Path, table: Path, text: Path, cardinality: int) -> int:
        """Copies the vocabulary of an earlier data set, as text and as a table; returns the
        feature's cardinality.

        Raises:
            ValueError: it is not that of a feature of this cardinality.
        """
        num_values = read_text(known, table)
        twice = self.repeated(table)
        if twice is not None:
            raise ValueError(
                f"{known}: has the value {twice!r:.100} on more than one line; allowed: each value "
                "once, line N has id N. Take the file that belongs to the data set"
            )
        if num_values + 1 != cardinality:
            raise ValueError(
                f"{known}: has {num_values} lines; the feature's cardinality {cardinality} needs "
                f"{cardinality - 1}: take the file that belongs to the data set"
            )
        text.parent.mkdir(exist_ok=True)
        shutil.copyfile(known, text)
        return cardinality

    def repeated(self, vocabulary: Path) -> str | None:
        """A value that a vocabulary has twice or more, the first by its bytes; None: there is
        none."""
        row = self.connection.execute(
            f"""
            SELECT value FROM {read_parquet(vocabulary)}
            GROUP BY value HAVING count(*) > 1 ORDER BY value LIMIT 1
            """
        ).fetchone()
        return None if row is None else row[0]

    def most_frequent_unknown(self, values: Path, vocabulary: Path) -> tuple[str, int] | None:
        """Returns the value without an id that occurs most often, and how often; None: each value
        has an id."""
        return self.connection.execute(
            f"""
            SELECT value, count(*) AS count
            FROM (SELECT value FROM {read_parquet(values)} WHERE value IS NOT NULL)
            ANTI JOIN {read_parquet(vocabulary)} USING (value)
            GROUP BY value ORDER BY count DESC, value LIMIT 1
            """
        ).fetchone()

    def look_up(self, values: Path, vocabulary: Path) -> Iterator[np.ndarray]:
        """The id, int64, of each value in order, a block at a time; `UNKNOWN` where it has none."""
        # A table, because it spills; sorted, so that a block's rows lie together.
        self.connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE ids AS
            SELECT joined.file_row_number AS row, known.file_row_number + 1 AS id
            FROM {read_parquet(values, _NUMBERED)} joined
            JOIN {read_parquet(vocabulary, _NUMBERED)} known USING (value)
            ORDER BY row
            """
        )
        num_values = pq.read_metadata(values).num_rows
        for start in range(0, num_values, _ROWS):
            joined = self.connection.execute(
                f"SELECT row, id FROM ids WHERE row >= {start} AND row < {start + _ROWS}"
            ).fetchnumpy()
            ids = np.full(min(_ROWS, num_values - start), UNKNOWN, np.int64)
            ids[joined["row"] - start] = joined["id"]
            yield ids
        self.connection.execute("DROP TABLE ids")


def write_text(vocabulary: Path, target: Path) -> None:
    """Writes a vocabulary as lines of value, tab, count; line N has id N.

    In a value, a backslash is written as `\\\\`, a tab as `\\t`, line ends as `\\n` and `\\r`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as stream, pq.ParquetFile(vocabulary) as file:
        for batch in file.iter_batches(use_threads=False):
            values = batch.column("value")
            for character, escape in _ESCAPES.items():
                values = pc.replace_substring(values, character, escape)
            counts = batch.column("count").cast(pa.string())
            lines = pc.binary_join_element_wise(values, counts, "\t")
            stream.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())


def read_text(path: Path, target: Path) -> int:
    """Makes the vocabulary at `target` from what `write_text` wrote; returns its number of values.

    Raises:
        ValueError: a line is not value, tab, count.
    """
    schema = pa.schema([("value", pa.string()), ("count", pa.int64())])
    num_values = 0
    with pq.ParquetWriter(target, schema) as writer:
        for batch in _text_batches(path, schema):
            values = batch.column("value")
            if pc.any(pc.match_substring(values, "\\")).as_py():
                values = pa.array([_unescaped(value) for value in values.to_pylist()], pa.string())
            columns = [values, batch.column("count")]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            num_values += batch.num_rows
    return num_values


def _text_batches(path: Path, schema: pa.Schema):
    if not path.is_file():
        raise ValueError(f"{path}: the file does not exist; it is part of the data set")
    if not path.stat().st_size:  # every value was rare
        return
    try:
        with open(path, "rb") as file:
            has_mark = file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK
        reader = pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(use_threads=False, column_names=schema.names),
            parse_options=pa_csv.ParseOptions(
                delimiter="\t", quote_char=False, ignore_empty_lines=False
            ),
            convert_options=pa_csv.ConvertOptions(column_types=schema, null_values=[]),
        )
        for batch in reader:
            if has_mark:  # Arrow removes it, but it is part of the first value
                values, counts = batch.columns
                first = pa.array(["\ufeff" + values[0].as_py()])
                values = pa.concat_arrays([first, values.slice(1)])
                batch, has_mark = pa.record_batch([values, counts], schema), False
            yield batch
    except pa.ArrowInvalid as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"{path}: is not a vocabulary; its lines are value, tab, count: {words:.200}"
        ) from None


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda found: _MEANINGS.get(found[0], found[0]), value)
