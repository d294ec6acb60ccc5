"""Files in DuckDB's SQL: quoted names, and the calls of the functions that read them.

No other module calls `read_parquet`, `read_csv` or `read_ndjson`. By default DuckDB takes a folder
named `name=value` anywhere in a path for a partition of a Hive table, and every row gets that
`value` in place of the file's own column `name`.
"""

import re
from collections.abc import Sequence
from pathlib import Path


def quoted(text) -> str:
    """Returns text, or a path to write, as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


def read_parquet(paths: Path | Sequence[Path], options: str = "") -> str:
    """Returns a call of DuckDB's `read_parquet`.

    Args:
        paths: one file or several.
        options: further arguments in SQL, for example `file_row_number=true`.
    """
    return _read("read_parquet", paths, options)


def read_csv(path: Path, options: str) -> str:
    """Returns a call of DuckDB's `read_csv`; see `read_parquet`."""
    return _read("read_csv", path, options)


def read_ndjson(path: Path, options: str) -> str:
    """Returns a call of DuckDB's `read_ndjson`, a column per field; see `read_parquet`."""
    return _read("read_ndjson", path, options)


def read_ndjson_objects(path: Path, options: str) -> str:
    """Returns a call of DuckDB's `read_ndjson_objects`, a column `json`; see `read_parquet`."""
    return _read("read_ndjson_objects", path, options)


def _read(function: str, paths: Path | Sequence[Path], options: str) -> str:
    if isinstance(paths, Path):
        files = _quoted_pattern(paths)
    else:
        files = f"[{', '.join(map(_quoted_pattern, paths))}]"
    arguments = [files, "hive_partitioning=false", *([options] if options else [])]
    return f"{function}({', '.join(arguments)})"


def _quoted_pattern(path: Path) -> str:
    """Returns the literal of a path to read: DuckDB expands `*`, `?` and `[` in it."""
    return quoted(re.sub(r"([*?\[])", r"[\1]", str(path)))
