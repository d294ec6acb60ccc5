"""Files in DuckDB's SQL: quoted names, and the calls of the functions that read them.

No other module calls DuckDB's `read_parquet` or `read_csv`.
By default DuckDB takes a folder named `name=value` anywhere in a path for a partition of a Hive
table, and every row gets that `value` in place of the file's own column `name`.
"""

import functools
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

BLANKS = "' \t\r\n\f\v'"  # in a line without values, as an SQL literal
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def quoted(text) -> str:
    """Returns text, or a path to write, as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Returns a name as SQL of DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def _read(function: str, paths: Path | Sequence[Path], options: str = "") -> str:
    if isinstance(paths, Path):
        files = _quoted_pattern(paths)
    else:
        files = f"[{', '.join(map(_quoted_pattern, paths))}]"
    arguments = [files, "hive_partitioning=false", *([options] if options else [])]
    return f"{function}({', '.join(arguments)})"


def _quoted_pattern(path: Path) -> str:
    """Returns the literal of a path to read: DuckDB expands `*`, `?` and `[` in it."""
    return quoted(re.sub(r"([*?\[])", r"[\1]", str(path)))


# SQL calls of (one path or several, further arguments in SQL such as `file_row_number=true`).
read_parquet = functools.partial(_read, "read_parquet")
read_csv = functools.partial(_read, "read_csv")


def parquet_rows(paths: Sequence[Path], schemas: Sequence[pa.Schema]) -> str:
    """Returns SQL of the rows of Parquet files in order, with `file_index` and `file_row_number`.

    DuckDB casts all files to the types of the first one, fractions to integers, for example.
    Here a column of several types, as pandas writes whole numbers with and without gaps, has one
    that holds all values.

    Raises:
        ValueError: a column holds lists in some files, and single values in others.
    """
    options = "file_row_number=true, binary_as_string=true"
    kinds = [{field.name: field.type for field in schema} for schema in schemas]
    firsts = [i for i in range(len(paths)) if not i or kinds[i] != kinds[i - 1]]
    if len(firsts) == 1:
        return read_parquet(paths, options)
    _check_lists(paths, kinds)
    parts = []
    for first, end in itertools.pairwise([*firsts, len(paths)]):
        empty = [name for name, kind in kinds[first].items() if pa.types.is_null(kind)]
        names = ", ".join(map(identifier, empty))
        parts.append(
            f"SELECT * {f'EXCLUDE ({names})' if empty else ''}, "
            f"file_index::BIGINT + {first} AS file_index "
            f"FROM {read_parquet(paths[first:end], options)}"
        )
    return f"({' UNION ALL BY NAME '.join(parts)})"


def _check_lists(paths: Sequence[Path], kinds: Sequence[dict[str, pa.DataType]]) -> None:
    seen: dict[str, tuple[Path, pa.DataType]] = {}
    for path, own in zip(paths, kinds, strict=True):
        for name, kind in own.items():
            if pa.types.is_null(kind):
                continue
            first, other = seen.setdefault(name, (path, kind))
            if pa.types.is_nested(kind) != pa.types.is_nested(other):
                raise ValueError(
                    f"{path}: column '{name}' holds {kind}, but {other} in {first}; expected "
                    "lists in all files or in none: write the files in one way"
                )
