"""Files of keys: a column of users or items as original values."""

from pathlib import Path

import numpy as np

from dataloading.keys.vocabulary import Vocabulary
from dataloading.table_input.files import CSV, PARQUET, RawChunk, describe_file, file_blocks
from dataloading.table_input.values import BadValue, flat, texts

_KINDS = {".csv": CSV, ".parquet": PARQUET}
_ROWS = 1 << 16


def read_keys(
    path: str, feature: str, vocabulary: Vocabulary, flag: str, other_name: str | None = None
) -> np.ndarray:
    """Returns the ids of the values in the column `feature` of a file, int64 [rows].

    Args:
        path: CSV file with a header, or Parquet file; other columns are not read.
        flag: name of the path on a command line, for error messages.
        other_name: name of the column in a file that has no column `feature`.

    Raises:
        ValueError: the file cannot be read, lacks the column, has no rows, or a value has no id.
    """
    where, file = f"{flag} {path}", Path(path)
    if not file.is_file():
        raise ValueError(f"{where}: expected a .csv or .parquet file, got a path without a file")
    kind = _KINDS.get(file.suffix.lower())
    if kind is None:
        raise ValueError(f"{where} ends with {file.suffix!r}; expected one of {', '.join(_KINDS)}")
    columns, num_rows = describe_file(file, kind, where)
    if not num_rows:
        raise ValueError(f"{where}: expected rows, got none")
    name = other_name if other_name in columns and feature not in columns else feature
    ids = []
    for block in file_blocks(file, RawChunk(kind, (name,), (), header=True), _ROWS, where):
        try:
            values = texts(flat(block.columns[name], 1))
        except BadValue as bad:
            row = block.first_row + bad.index
            raise ValueError(f"{where}: row {row}: got {bad.value}; {bad.rule}") from None
        ids.append(vocabulary.encode(values, where, block.first_row))
    return np.concatenate(ids)
