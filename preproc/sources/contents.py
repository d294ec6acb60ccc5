"""Recognition of files by their first bytes, for messages about files of another type."""

import contextlib
import os
import zlib

START_BYTES = 4096  # of a file, which the functions here look at
_AS_TABLE = "write its table as Parquet (pandas: DataFrame.to_parquet) or as CSV"
_NO_DATA = "it may be a login or an error: download the file again"
# First bytes, what such a file is, and how to make a file of it that is read: `path` is the file,
# `stem` its path without the endings.
_KINDS = (
    (b"PAR1", "a Parquet file", "rename it to {stem}.parquet"),
    (b"\x1f\x8b", "a gzip file", "rename it to {path}.gz"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "rename it to {path}.zst"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "save the sheet as CSV UTF-8 in Excel"),
    (b"BZh", "a bzip2 file", "unpack it: bzip2 -d {path}"),
    (
        b"SQLite format 3\0",
        "an SQLite database",
        "export the table: sqlite3 -csv -header {path} 'SELECT * FROM TABLE' > TABLE.csv",
    ),
    (b"ARROW1", "a Feather (Arrow) file", _AS_TABLE),
)
_ZIP, _TAR, _TAR_PLACE = b"PK\x03\x04", b"ustar", 257
_WEB_PAGES = (b"<!doctype html", b"<html")
_EXCEL = (".xlsx", ".xlsm")
_COMPRESSED = (".gz", ".zst")


def other_type(path: str, start: bytes) -> str:
    """Returns what a file is and how to make a readable one of it; empty for text and unknown
    content.

    Args:
        start: first bytes of the file.
    """
    stem = _stem(path)
    if start.lstrip()[:20].lower().startswith(_WEB_PAGES):
        return f"a web page: {_NO_DATA}"
    if is_text(start):
        return ""
    if start.startswith(_ZIP):
        if b"xl/" in start or path.lower().endswith(_EXCEL):
            return "an Excel workbook: save the sheet as CSV UTF-8 in Excel"
        return f"a zip archive: unpack it: python -m zipfile -e {path} {stem}"
    if start[_TAR_PLACE:].startswith(_TAR):
        return f"a tar archive: unpack it: tar xf {path}"
    for magic, kind, remedy in _KINDS:
        if start.startswith(magic):
            return f"{kind}: {remedy.format(path=path, stem=stem)}"
    return ""


def is_text(start: bytes) -> bool:
    """Returns whether bytes are UTF-8 text, whose last character may not be whole."""
    try:
        start[:START_BYTES].decode()
    except UnicodeDecodeError as error:
        return error.end >= min(len(start), START_BYTES) and error.reason == _NOT_WHOLE
    return b"\0" not in start[:START_BYTES]


_NOT_WHOLE = "unexpected end of data"  # of UnicodeDecodeError


def check_text(path: str, start: bytes) -> None:
    """Raises ValueError for a file of a known type other than text; start: its first bytes."""
    if content := other_type(path, start):
        raise ValueError(f"{path}: expected text, got {content}")


def check_no_json(path: str, text: str) -> None:
    """Raises ValueError for the content of a CSV file that is JSON; text: its first characters."""
    if text.lstrip().startswith(('{"', "[{")):
        raise ValueError(f"{path}: expected CSV, got JSON: rename it to {_stem(path)}.jsonl")


def not_parquet(path: str, start: bytes, error: object) -> ValueError:
    """Returns the error of a file that cannot be read as Parquet; start: its first bytes."""
    content = other_type(path, start)
    if not start:
        content = "an empty file: write it again"
    elif is_text(start):
        content = f"text: if it is CSV, rename it to {_stem(path)}.csv"
    elif not content or start.startswith(b"PAR1"):
        content = f"a file that is cut or damaged: copy or write it again ({error})"
    return ValueError(f"{path}: expected a Parquet file, got {content}")


def cut_file(path: str, error: object) -> ValueError:
    """Returns the error of compressed data that ends early, or is damaged."""
    return ValueError(
        f"{path}: the compressed file is cut or damaged ({error}): copy or download it again"
    )


def of_no_table(path: str, start: bytes) -> str:
    """Returns what a file is whose name has no known ending, and how to make a readable one of it.

    Args:
        start: first bytes of the file.
    """
    stem, ending = os.path.splitext(path)
    if ending == ".gz" and start.startswith(b"\x1f\x8b"):
        with contextlib.suppress(zlib.error):
            start = zlib.decompressobj(wbits=31).decompress(start, START_BYTES)
    if ending.lower() in _COMPRESSED and ending != ending.lower():
        return f"a name that ends with {ending}: rename it to {stem}{ending.lower()}"
    if content := other_type(path, start):
        return content
    if is_text(start):
        compression = ending if ending in _COMPRESSED else ""
        return f"text: if it is CSV, rename it to {_stem(path)}.csv{compression}"
    return f"unknown content: {_AS_TABLE}"


def _stem(path: str) -> str:
    stem, ending = os.path.splitext(path)
    return os.path.splitext(stem)[0] if ending in _COMPRESSED else stem
