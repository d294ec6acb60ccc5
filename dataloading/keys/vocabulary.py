"""Vocabularies of prepared data sets: the original value of each id of a feature.

`encoder/vocabulary/FEATURE.parquet` belongs to the data set's encoder (`preproc.transcode`).
`vocabulary/FEATURE.csv` has a header and lines `id,value` from id 0 on (`preproc.movielens`).
`vocabulary/FEATURE.tsv` has lines `value<tab>count`; line N has id N, and id 0 stands for missing
and unknown values (`preproc.criteo`).
"""

import itertools
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dataloading.spec.data_set_files import ENCODER_FOLDER, VOCABULARY_FOLDER
from dataloading.spec.rules import listing

# Texts that are integers and nothing else: 007 and 7.0 stay texts.
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
COUNTED_SCHEMA = pa.schema([("value", pa.string()), ("count", pa.int64())])
_LINES = 1 << 16  # of a text file, read at a time
_WHOLE_FILE = 1 << 30  # bytes of a block of a vocabulary, the most that Arrow parses at once
# What stands for what in a line of text; the first must be the escape character itself.
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_MEANINGS = {escape: character for character, escape in _ESCAPES.items()}


@dataclass(frozen=True)
class Vocabulary:
    """Original values of the ids of a feature.

    Attributes:
        values: int64 if all values are integers, else texts, [cardinality]; null for an id that
            stands for no value.
        first_id: the first id that stands for a value, 0 or 1.
        path: its file; None if the data set has none, and ids stand for themselves.
    """

    values: pa.Array
    first_id: int = 0
    path: Path | None = None

    @property
    def ids(self) -> np.ndarray:
        """Ids that stand for a value, int64, ascending."""
        return np.arange(self.first_id, len(self), dtype=np.int64)

    def decode(self, ids: np.ndarray) -> pa.Array:
        """Returns the values of ids [n]."""
        return self.values.take(pa.array(ids))

    def encode(self, texts: pa.Array, where: str, first_row: int = 1) -> np.ndarray:
        """Returns the ids of values, int64 [n].

        Args:
            first_row: the row of the first value in it.

        Raises:
            ValueError: a value has no id.
        """
        ids = pc.index_in(texts, self.values.cast(pa.string()), skip_nulls=True)
        if ids.null_count:
            row = pc.index(ids.is_null(), True).as_py()
            examples = map(str, self.values.slice(self.first_id, 3).to_pylist())
            raise ValueError(
                f"{where}: row {first_row + row}: expected one of the "
                f"{len(self) - self.first_id:,} values of {self.path or 'the data set'}, "
                f"such as {listing(examples)}, got "
                f"{texts[row].as_py()!r:.100}; leave it out, or train with it"
            )
        return ids.to_numpy(zero_copy_only=False).astype(np.int64)

    def __len__(self) -> int:
        return len(self.values)


def text_file(feature: str) -> str:
    """Returns the vocabulary of a feature, `.tsv`, relative to the data set.

    Odd characters in the name are as in a URL.
    """
    return f"{VOCABULARY_FOLDER}/{urllib.parse.quote(feature, safe='')}.tsv"


def encoder_file(feature: str) -> str:
    """Returns the vocabulary of a feature in the data set's encoder, relative to the data set."""
    return f"{ENCODER_FOLDER}/{VOCABULARY_FOLDER}/{urllib.parse.quote(feature, safe='')}.parquet"


def own_ids(cardinality: int) -> Vocabulary:
    """Returns the vocabulary of a feature whose ids stand for themselves."""
    return Vocabulary(pa.array(np.arange(cardinality)))


def read_vocabulary(folder: Path, feature: str, cardinality: int) -> Vocabulary | None:
    """Returns the vocabulary of a feature; None if the data set has none.

    Raises:
        ValueError: the file is not a vocabulary, or not that of this feature.
    """
    encoded, counted = folder / encoder_file(feature), folder / text_file(feature)
    numbered = counted.with_suffix(".csv")
    path = next((path for path in (encoded, numbered, counted) if path.is_file()), None)
    if path is None:
        return None
    first_id = 1 if path == counted else 0
    try:
        if path == encoded:
            texts = pq.read_table(path, columns=["value"])["value"].combine_chunks()
            first_id = int(cardinality > len(texts))
        elif first_id:
            blocks = [block.column("value") for block in read_counted(path)]
            texts = pa.concat_arrays([pa.array([], pa.string()), *blocks])
        else:
            texts = _numbered_values(path)
    except (pa.ArrowException, OSError) as error:
        words = " ".join(str(error).split())
        raise ValueError(f"{path}: is not a vocabulary: {words:.300}") from None
    if len(texts) + first_id != cardinality:
        raise ValueError(
            f"{path}: expected {cardinality - first_id:,} values, as the cardinality of the "
            f"feature '{feature}' is {cardinality:,}, got {len(texts):,}: take the file that "
            "belongs to the data set"
        )
    is_integer = pc.all(pc.match_substring_regex(texts, _INTEGER), min_count=0).as_py()
    values = texts.cast(pa.int64()) if is_integer else texts
    if first_id:
        values = pa.concat_arrays([pa.nulls(1, values.type), values])
    return Vocabulary(values, first_id, path)


def _numbered_values(path: Path) -> pa.Array:
    """Returns the values of a file with lines `id,value`, whose ids must be 0, 1, 2, ..."""
    table = pa_csv.read_csv(
        path,
        pa_csv.ReadOptions(block_size=max(1, min(_WHOLE_FILE, path.stat().st_size))),
        pa_csv.ParseOptions(newlines_in_values=True),
        pa_csv.ConvertOptions(
            column_types={"id": pa.int64(), "value": pa.string()},
            include_columns=["id", "value"],
            null_values=[],
        ),
    ).combine_chunks()
    ids = table["id"].to_numpy()
    if (ids != np.arange(len(ids))).any():
        line = int(np.argmax(ids != np.arange(len(ids))))
        raise ValueError(
            f"{path}: expected the ids 0, 1, 2, ... one per line, got {ids[line]} after {line} "
            "lines: take the file that belongs to the data set"
        )
    return pa.concat_arrays([pa.array([], pa.string()), *table["value"].chunks])


def read_counted(path: Path) -> Iterator[pa.RecordBatch]:
    """Yields the columns `value` and `count` of a file of `write_counted`.

    No CSV parser reads it: one would drop U+FEFF at the start of the first value.

    Raises:
        ValueError: a line is not value, tab, count.
    """
    with open(path, encoding="utf-8", newline="\n") as lines:
        try:
            while block := list(itertools.islice(lines, _LINES)):
                texts, counts = zip(*(line.rsplit("\t", 1) for line in block), strict=True)
                texts = [re.sub(r"\\.", _meaning, text) if "\\" in text else text for text in texts]
                columns = [texts, list(map(int, counts))]
                yield pa.record_batch(columns, schema=COUNTED_SCHEMA)
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}: is not a vocabulary; its lines are value, tab, count: {error}"
            ) from None


def _meaning(escape: re.Match) -> str:
    return _MEANINGS.get(escape[0], escape[0])


def write_counted(table: Path, target: Path) -> None:
    """Writes the columns `value` and `count` of a Parquet file as lines of value, tab, count.

    Line N has id N. In a value, a backslash is written as `\\\\`, a tab as `\\t`, line ends as
    `\\n` and `\\r`.
    """
    with open(target, "wb") as stream, pq.ParquetFile(table) as file:
        for batch in file.iter_batches(use_threads=False):
            values = batch.column("value").cast(pa.string())
            for character, escape in _ESCAPES.items():
                values = pc.replace_substring(values, character, escape)
            counts = batch.column("count").cast(pa.string())
            lines = pc.binary_join_element_wise(values, counts, "\t")
            stream.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())
