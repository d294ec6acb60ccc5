"""Texts to ids by falling count: counting, looking up, and the vocabulary as a text file.

Neither the vocabulary nor the rows need to fit into memory: DuckDB counts and joins them, and what
does not fit goes to a folder. It is imported with the first `Vocabularies`.
"""

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dataloading.output_folder import VOCABULARY_FOLDER

UNKNOWN = 0  # the id of missing values and of those that are not in the vocabulary
MIN_MEMORY_BYTES = 128 << 20
VALUES_SCHEMA = pa.schema([("value", pa.string())])
_NUMBERED = ", file_row_number=true"
_ROWS = 1 << 20  # looked up at a time
# What stands for what in a line of text; the first must be the escape character itself.
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}


def text_file(feature: str) -> str:
    """The vocabulary of a feature, relative to the data set; odd characters as in a URL."""
    return f"{VOCABULARY_FOLDER}/{urllib.parse.quote(feature, safe='')}.tsv"


class Vocabularies:
    """A context manager around DuckDB.

    Values are Parquet files with a column `value`, in the order of the rows, null where missing.
    A vocabulary is one with the columns `value` and `count`; its first value has id 1.

    Args:
        scratch: a folder for what does not fit into memory.
        memory_limit_bytes: what DuckDB may use.

    Raises (on exit):
        ValueError: the memory is too small.
        OSError: reading or writing failed, the disk is full.
    """

    def __init__(self, scratch: Path, memory_limit_bytes: int):
        self._scratch = scratch
        self._memory_bytes = memory_limit_bytes

    def __enter__(self):
        import duckdb

        self._connection = duckdb.connect(
            config={
                "memory_limit": f"{self._memory_bytes}B",
                "temp_directory": str(self._scratch / "duckdb"),
            }
        )
        return self

    def __exit__(self, kind, error, traceback):
        import duckdb

        self._connection.close()
        if isinstance(error, duckdb.OutOfMemoryException):
            raise ValueError(
                f"--memory_limit {self._memory_bytes >> 20} MiB is too small, or the disk of "
                f"--output too full; possible ways out: a larger --memory_limit, more disk space. "
                f"DuckDB says: {error}"
            ) from error
        if isinstance(error, duckdb.IOException):
            raise OSError(f"reading or writing failed: {error}") from error

    def count(self, values: Path, threshold: int, target: Path) -> int:
        """Writes the vocabulary of values that occur `threshold` times or more, by falling count,
        ties by the bytes of their UTF-8 text; returns their number."""
        (kept,) = self._connection.execute(
            f"""
            COPY (
                SELECT value, count(*) AS count FROM {_read(values)}
                WHERE value IS NOT NULL GROUP BY value HAVING count(*) >= {threshold}
                ORDER BY count DESC, value
            ) TO {_quoted(target)} (FORMAT parquet)
            """
        ).fetchone()
        return kept

    def repeated(self, vocabulary: Path) -> str | None:
        """A value that a vocabulary has twice or more, the first by its bytes; None: there is
        none."""
        found = self._connection.execute(
            f"""
            SELECT value FROM {_read(vocabulary)}
            GROUP BY value HAVING count(*) > 1 ORDER BY value LIMIT 1
            """
        ).fetchone()
        return None if found is None else found[0]

    def look_up(self, values: Path, vocabulary: Path) -> Iterator[np.ndarray]:
        """The id, int64, of each value in order, a block at a time; `UNKNOWN` where it has none."""
        # A table, because it spills; sorted, so that a block's rows lie together.
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE ids AS
            SELECT found.file_row_number AS row, known.file_row_number + 1 AS id
            FROM {_read(values, _NUMBERED)} found
            JOIN {_read(vocabulary, _NUMBERED)} known USING (value)
            ORDER BY row
            """
        )
        num_values = pq.read_metadata(values).num_rows
        for start in range(0, num_values, _ROWS):
            found = self._connection.execute(
                f"SELECT row, id FROM ids WHERE row >= {start} AND row < {start + _ROWS}"
            ).fetchnumpy()
            ids = np.full(min(_ROWS, num_values - start), UNKNOWN, np.int64)
            ids[found["row"] - start] = found["id"]
            yield ids
        self._connection.execute("DROP TABLE ids")


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
        raise ValueError(f"{path}: there is no such file; it is part of the data set")
    if not path.stat().st_size:  # every value was rare
        return
    try:
        yield from pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(use_threads=False, column_names=schema.names),
            parse_options=pa_csv.ParseOptions(
                delimiter="\t", quote_char=False, ignore_empty_lines=False
            ),
            convert_options=pa_csv.ConvertOptions(column_types=schema, null_values=[]),
        )
    except pa.ArrowInvalid as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"{path}: is no vocabulary; its lines are value, tab, count: {words:.200}"
        ) from None


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda found: _MEANINGS.get(found[0], found[0]), value)


def _quoted(path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _read(path: Path, options: str = "") -> str:
    """A Parquet file in a query; `*`, `?` and `[`, which mean a pattern there, in brackets."""
    literal = re.sub(r"([*?\[])", r"[\1]", str(path))
    return f"read_parquet({_quoted(literal)}{options})"
