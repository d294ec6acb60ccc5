"""Names of the columns of text files, and the delimiter between them."""

import contextlib
import csv
import io
import itertools
import json
import re
from collections.abc import Iterator

from dataloading.spec.rules import listing
from preproc.sources.column_chunk import SourceChunk
from preproc.sources.contents import check_no_json
from preproc.sources.file_store import FileStore, text_start

DELIMITERS = ("\t", "|", ";", ",")
_COMPARED_LINES = 10  # to find the delimiter
_SAMPLE_ROWS = 1000  # to compare the first line with
NO_HEADER = "--no_header (preproc.transcode, deployment.predict), which names columns c1, c2, ..."
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Names that engines give to the number of a row and of the part that it is in.
RESERVED_NAMES = ("__part", "__row")


def read_header(
    store: FileStore,
    path: str,
    delimiter: str | None,
    quoting: bool = True,
    has_header: bool = True,
) -> tuple[list[str], str]:
    """Returns the names of the columns of a CSV file, and the delimiter.

    Columns without a name have an empty one. A file without a byte has no columns.

    Args:
        delimiter: None: the one of `DELIMITERS` that divides the first lines equally often, and
            then the first line most often.
        has_header: False: columns are called c1, c2 and so on.

    Raises:
        ValueError: the header is not UTF-8, is empty, or looks like a row of values.
    """
    start = text_start(store, path)
    if not start.strip():
        return [], delimiter or ","
    text = _decoded(start, path)
    check_no_json(path, text)
    delimiter = delimiter or _delimiter(text)
    try:
        names = next(_lines(text, delimiter, quoting), [])
    except csv.Error as error:
        raise ValueError(
            f"{path}: expected a header, got a line that is not CSV: {error}"
        ) from None
    if not has_header:
        return [f"c{i + 1}" for i in range(len(names))], delimiter
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
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    if numbers and not _are_counted(names):
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got the numbers "
            f"{listing(numbers)}; possible solutions: add a header, or {NO_HEADER}"
        )
    return names, delimiter


def check_header(store: FileStore, path: str, names: list[str], delimiter: str) -> None:
    """Raises ValueError if the first line has values of the next ones in several columns.

    A column in which the name is the only value, as in exports of answers, does not count.
    """
    values: list[set[str]] = [set() for _ in names]
    lines = _lines(_decoded(text_start(store, path), path), delimiter)
    with contextlib.suppress(csv.Error):
        for line in itertools.islice(lines, 1, _SAMPLE_ROWS):
            if line != names:  # a repeated header
                for own, value in zip(values, line, strict=False):
                    own.add(value)
    repeated = [
        name for name, own in zip(names, values, strict=True) if name in own and len(own - {""}) > 1
    ]
    if len([name for name in repeated if name]) > 1:
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got "
            f"{listing(repeated)}, which are values of these columns in later lines, too; possible "
            f"solutions: add a header, or {NO_HEADER}"
        )


def header_lines(file: str, chunk: SourceChunk) -> int:
    """Returns the number of lines that the names of the columns of a local CSV file take."""
    text = _decoded(text_start(FileStore(), file), file)
    quotes = csv.QUOTE_MINIMAL if chunk.quoting else csv.QUOTE_NONE
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=chunk.delimiter, quoting=quotes)
    next(lines, None)
    return lines.line_num


def _lines(text: str, delimiter: str, quoting: bool = True) -> Iterator[list[str]]:
    """Yields the trimmed fields of each line."""
    quotes = csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
    for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quotes):
        yield [field.strip() for field in line]


def _are_counted(names: list[str]) -> bool:
    """Returns whether names are those that pandas gives to columns without names, 0, 1, 2, ...,
    possibly after its index."""
    own = names[1:] if names[0] == "" else names
    return len(own) > 3 and own == [str(i) for i in range(len(own))]


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
    """Returns the delimiter that divides the first lines, outside of quotation marks, equally
    often, and the first line most often."""
    lines = re.split(r"[\r\n]+", re.sub(r'"(?:[^"]|"")*"', "", text), maxsplit=_COMPARED_LINES)
    lines = [line for line in lines[:_COMPARED_LINES] if line] or [""]

    def rank(delimiter: str) -> tuple[bool, int]:
        counts = [line.count(delimiter) for line in lines]
        return len({*counts}) == 1 and counts[0] > 0, counts[0]

    best = max(DELIMITERS, key=rank)
    return best if lines[0].count(best) else ","
