"""Files in DuckDB's SQL: quoted names, and the calls of the functions that read them.

No other module calls DuckDB's `read_parquet` or `read_csv`.
By default DuckDB takes a folder named `name=value` anywhere in a path for a partition of a Hive
table, and every row gets that `value` in place of the file's own column `name`.
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

BLANKS = "' \t\r\n\f\v'"  # in a line without values, as an SQL literal
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def quoted(text) -> str:
    """Returns text, or a path to write, as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


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
