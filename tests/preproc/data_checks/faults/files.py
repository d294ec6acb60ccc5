"""Files: empty lines, line ends, headers, delimiters, compression and names."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.preproc.data_checks import tables
from tests.preproc.data_checks.cell import Cell
from tests.preproc.data_checks.expected import Refused, Right, Write, of_table
from tests.preproc.data_checks.faults.groups import LOG_FILES, NEW_ROWS, clean
from tests.preproc.data_checks.places import PLACES, Place

TEXT_PLACES = ("csv", "jsonl", *NEW_ROWS, *LOG_FILES, "criteo", "criteo_encode_only")
ENDS: dict[str, Callable[[bytes], bytes]] = {
    "line": lambda content: content + b"\n",
    "lines": lambda content: content + b"\n\n\n",
    "carriage": lambda content: content + b"\r\n",
    "crlf": lambda content: content.replace(b"\n", b"\r\n") + b"\r\n",
    "none": lambda content: content.removesuffix(b"\n"),
}


def _edited(edit: Callable[[bytes], bytes]) -> Write:
    """Returns the function that writes clean rows and changes the bytes of the file."""

    def write(place: Place, folder: Path) -> Path:
        path = place.write(folder, clean(place.name))
        path.write_bytes(edit(path.read_bytes()))
        return path

    return write


def last_lines() -> Iterator[Cell]:
    for place in (*TEXT_PLACES, "csv_spark"):
        for member, edit in ENDS.items():
            expected = Right(of_table(clean(place)))
            yield Cell("last_line", member, place, _edited(edit), expected)


def byte_order_marks() -> Iterator[Cell]:
    for place in ("csv", *NEW_ROWS, *LOG_FILES):
        write = _edited(lambda content: b"\xef\xbb\xbf" + content)
        yield Cell("byte_order_mark", "utf8", place, write, Right(of_table(clean(place))))


def delimiters() -> Iterator[Cell]:
    for place in ("csv", *NEW_ROWS, "interactions"):
        for member, character in {"semicolon": b";", "pipe": b"|", "tab": b"\t"}.items():
            write = _edited(lambda content, own=character: content.replace(b",", own))
            yield Cell("delimiter", member, place, write, Right(of_table(clean(place))))


def headers() -> Iterator[Cell]:
    def without(place: Place, folder: Path) -> Path:
        folder.mkdir()
        return tables.write_csv(folder / place.file, clean(place.name), header=False)

    for place in ("csv", *NEW_ROWS, *LOG_FILES):
        words = ("header",) if place == "csv" else ("column",)
        expected = Refused(words, fixed=of_table(clean(place)))
        yield Cell("no_header", "refused", place, without, expected)
    right = Right(of_table(clean("csv")), rows_only=True)
    flags = ("--no_header", "--label=c4")
    yield Cell("no_header_flag", "right", "csv", without, right, flags)


def _gzip_cut(bytes_lost: int | None) -> Write:
    def write(place: Place, folder: Path) -> Path:
        path = tables.gzipped(place.write(folder, clean(place.name)))
        content = path.read_bytes()
        keep = len(content) // 2 if bytes_lost is None else len(content) - bytes_lost
        path.write_bytes(content[:keep])
        return path

    return write


def compressed() -> Iterator[Cell]:
    def whole(place: Place, folder: Path) -> Path:
        return tables.gzipped(place.write(folder, clean(place.name)))

    for place in (*TEXT_PLACES, "csv_spark"):
        yield Cell("gzip", "whole", place, whole, Right(of_table(clean(place))))
        for member, lost in {"half": None, "end": 8}.items():
            expected = Refused(("log" if PLACES[place].file[0] == "l" else "rows",), fixed=whole)
            yield Cell("gzip_cut", member, place, _gzip_cut(lost), expected)


def cells() -> Iterator[Cell]:
    """Yields the cells of all kinds of this module."""
    yield from last_lines()
    yield from byte_order_marks()
    yield from delimiters()
    yield from headers()
    yield from compressed()
