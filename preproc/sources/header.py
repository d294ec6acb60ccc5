"""Names of the columns of text files, and the delimiter between them."""

import csv
import io
import json
import re

from dataloading.spec.rules import listing
from preproc.sources.file_store import FileStore, text_start

DELIMITERS = ("\t", ",", "|", ";")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Names that engines give to the number of a row and of the part that it is in.
RESERVED_NAMES = ("__part", "__row")


def read_header(
    store: FileStore, path: str, delimiter: str | None, quoting: bool = True
) -> tuple[list[str], str]:
    """Returns the names of the columns of a CSV file, and the delimiter.

    Columns without a name have an empty one. A file without a byte has no columns.

    Args:
        delimiter: None: the one of `DELIMITERS` that divides the header most often.

    Raises:
        ValueError: the header is not UTF-8, is empty, or looks like a row of values.
    """
    start = text_start(store, path)
    if not start.strip():
        return [], delimiter or ","
    text = _decoded(start, path)
    delimiter = delimiter or _delimiter(text)
    quotes = csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quotes)
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise ValueError(
            f"{path}: expected a header, got a line that is not CSV: {error}"
        ) from None
    if not any(names):
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got an empty line: "
            "remove the lines before the names"
        )
    if "\ufffd" in "".join(names):
        raise ValueError(
            f"{path}: expected UTF-8 text, got the header {listing(names)}: convert the file, e.g. "
            "with: iconv -f latin1 -t utf-8 FILE > NEW"
        )
    if numbers := [name for name in names if _NUMBER.fullmatch(name)]:
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got the numbers "
            f"{listing(numbers)}; possible solutions: add a header, or describe the files in a "
            "feature spec with 'header: false'"
        )
    return names, delimiter


def check_names(names: list[str], where: str) -> None:
    """Raises ValueError unless names are unique, also ignoring case, and none is reserved."""
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        if folded in RESERVED_NAMES:
            raise ValueError(f"{where}: the column name '{name}' is reserved; rename the column")
        if folded in seen:
            raise ValueError(
                f"{where}: expected different column names (upper and lower case are equal), got "
                f"'{seen[folded]}' and '{name}'; rename one of the columns"
            )
        seen[folded] = name


def check_json_lines(store: FileStore, path: str) -> bool:
    """Returns whether a file has a line; raises ValueError for JSON in another form than one object
    per line."""
    start = text_start(store, path)
    text = _decoded(start, path).lstrip() if start else ""
    if text.startswith("["):
        raise ValueError(
            f"{path}: expected JSON lines (one object per line), got a JSON array; convert it, "
            "e.g. with: jq -c '.[]' FILE"
        )
    first, line_end, _ = text.partition("\n")
    if not text or text.startswith("{"):
        try:
            if line_end:
                json.loads(first)
        except ValueError:
            raise ValueError(
                f"{path}: expected JSON lines (one object per line), got {first!r:.100} in the "
                "first line; if an object has several lines, convert the file, e.g. with: jq -c . "
                "FILE"
            ) from None
        return bool(text)
    raise ValueError(f"{path}: expected JSON lines (one object per line), got {first!r:.100}")


def _decoded(start: bytes, path: str) -> str:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(
            f"{path}: expected UTF-8 text, got UTF-16: convert the file, e.g. "
            "with: iconv -f utf-16 -t utf-8 FILE > NEW"
        )
    return start.decode("utf-8-sig", "replace")  # the last character may not be whole


def _delimiter(text: str) -> str:
    """Returns the delimiter that divides the first line most often, outside of quotation marks."""
    line = re.split(r"[\r\n]", re.sub(r'"(?:[^"]|"")*"', "", text), maxsplit=1)[0]
    return max(DELIMITERS, key=line.count) if any(d in line for d in DELIMITERS) else ","
