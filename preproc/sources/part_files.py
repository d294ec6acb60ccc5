"""Recognition of a table: one file, or a folder of part files."""

import glob
import os
import re
import sys
import urllib.parse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dataloading.spec.rules import listing
from preproc.sources.column_chunk import CSV, JSON, PARQUET, SourceChunk
from preproc.sources.contents import START_BYTES, of_no_table
from preproc.sources.file_store import FileStore
from preproc.sources.header import check_header, check_json_lines, check_names, read_header
from runtime.files.paths import absent

_TYPES = {
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
    ".parquet": PARQUET,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
}
_COMPRESSIONS = (".gz", ".zst")
_EXPECTED = "a file that ends with .csv, .tsv, .txt, .json, .jsonl, .ndjson (then .gz or .zst, or \
nothing) or .parquet"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # of Hive and Spark
LOCAL = FileStore()


def file_type(path: str) -> str | None:
    """Returns the type of a file by the end of its name; None for one of another kind."""
    stem, extension = os.path.splitext(path)
    is_compressed = extension in _COMPRESSIONS
    kind = _TYPES.get((os.path.splitext(stem)[1] if is_compressed else extension).lower())
    return None if is_compressed and kind == PARQUET else kind


def is_table(path: str) -> bool:
    """Returns whether a path names a file of a table."""
    return file_type(path) is not None


def find_table(
    path: str | os.PathLike, store: FileStore = LOCAL, has_header: bool = True
) -> SourceChunk:
    """Returns the table in a file, in the part files of a folder and its subfolders, or in the
    files of a pattern such as `day_*.csv`.

    Files of a folder whose names start with `_` or `.`, and those of unknown types, are left out.
    Parts come in the order of their paths, numbers in them by value. Folders named `column=value`
    add a column of text, unless the files have it.

    Args:
        has_header: False: files are CSV without a header, and their columns c1, c2 and so on.

    Raises:
        ValueError: nothing is there, or files do not agree; the message names the file.
    """
    path, files = os.fspath(path), []
    if "://" not in path:
        if not os.path.exists(path):
            files = [os.path.abspath(file) for file in glob.glob(path) if os.path.exists(file)]
            files.sort(key=_natural_order)
            if not files:
                raise ValueError(absent(path))
        path = os.path.abspath(path)
    is_folder = not files and store.is_folder(path)
    files = files or (_part_files(store, path) if is_folder else [path])
    types = {file: file_type(file) for file in files}
    if other := next((file for file in files if types[file] is None), None):
        start = store.start(other, START_BYTES)
        raise ValueError(f"{other}: expected {_EXPECTED}, got {of_no_table(other, start)}")
    first = files[0]
    if other := next((file for file in files if types[file] != types[first]), None):
        raise ValueError(f"{path}: expected files of one type, got {first} and {other}")
    partitions = _partitions(path, files) if is_folder else ()
    if types[first] == CSV:
        return _csv_chunk(store, files, partitions, has_header)
    if not has_header:
        raise ValueError(
            f"--no_header: expected files of CSV, whose columns have no names, got {first}"
        )
    if types[first] == JSON:
        if not any([check_json_lines(store, file) for file in files]):
            raise _empty(first)
        return SourceChunk(JSON, tuple(files), partitions=partitions)
    return _parquet_chunk(store, files, partitions)


def find_log(path: Path, delimiter: str | None) -> list[SourceChunk]:
    """Returns each file of the table that `find_table` finds; a file of another name is CSV.

    Args:
        delimiter: of CSV files; None: see `header.read_header`.

    Raises:
        ValueError: as `find_table`, or a delimiter is passed for files of another type.
    """
    if path.is_file() and not is_table(str(path)):
        file = str(path.absolute())
        table = SourceChunk(CSV, (file,), delimiter=read_header(LOCAL, file, delimiter)[1])
    else:
        table = find_table(path)
    if delimiter is not None:
        if table.type != CSV:
            raise ValueError(f"--delimiter: expected files of CSV, got {table.files[0]}")
        table = replace(table, delimiter=delimiter)
    return [replace(table, files=(file,), columns=None) for file in table.files]


def csv_columns(chunk: SourceChunk, store: FileStore = LOCAL) -> list[str]:
    """Returns the names of all columns of CSV files, empty for those without a name.

    Raises:
        ValueError: files differ in their headers, or lack a column of `chunk.columns`.
    """
    if not chunk.header:
        return [name for name in chunk.columns if name not in chunk.partitions]
    headers = {
        file: read_header(store, file, chunk.delimiter, chunk.quoting)[0] for file in chunk.files
    }
    first = next((file for file, names in headers.items() if names), None)
    if first is None:
        raise _empty(chunk.files[0])
    expected = headers[first]
    for file, names in headers.items():
        if names and names != expected:
            raise ValueError(
                f"{file}: expected the header of {first}, {listing(expected)}, got {listing(names)}"
            )
    check_names([name for name in expected if name], first)
    for name in chunk.columns or ():
        if name not in expected and name not in chunk.partitions:
            raise ValueError(f"{first}: expected a column '{name}', got {listing(expected)}")
    return expected


def _empty(file: str) -> ValueError:
    return ValueError(
        f"{file}: the file is empty; expected the names of the columns, then rows: write it again"
    )


def partition_values(chunk: SourceChunk, column: str) -> list[str | None]:
    """Returns the value of a column of `chunk.partitions` for each file; None where missing."""
    values = [dict(_folder_values(file))[column] for file in chunk.files]
    return [None if value == _NO_VALUE else value for value in values]


def _folder_values(path: str) -> list[tuple[str, str]]:
    """Returns the columns and values in the names of the folders of a path."""
    folders = path.rpartition("/")[0].split("/")
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return [(urllib.parse.unquote(name), urllib.parse.unquote(value)) for name, _, value in pairs]


def _part_files(store: FileStore, folder: str) -> list[str]:
    base = len(folder.rstrip("/")) + 1
    files = [
        file
        for file in store.files(folder)
        if not any(name.startswith(("_", ".")) for name in file[base:].split("/"))
    ]
    tables = sorted(filter(is_table, files), key=_natural_order)
    if not tables and not files:
        raise ValueError(f"{folder}: the folder is empty: give the folder that has the table")
    if not tables:
        file = sorted(files)[0]
        raise ValueError(
            f"{folder}: expected {_EXPECTED}, got the files {listing(n[base:] for n in files)}; "
            f"{file} is {of_no_table(file, store.start(file, START_BYTES))}"
        )
    return tables


def _natural_order(path: str) -> list:
    """Returns a key that sorts part-2 before part-10."""
    pieces = re.split(r"(\d+)", path)
    return [*zip(pieces[::2], [*map(int, pieces[1::2]), -1], strict=True), path]


def _partitions(folder: str, files: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that the names of subfolders have."""
    base = len(folder.rstrip("/")) + 1
    names = [tuple(name for name, _ in _folder_values(file[base:])) for file in files]
    for file, other in zip(files, names, strict=True):
        if other != names[0]:
            raise ValueError(
                f"{file}: expected folders {listing(names[0])} (column=value) as in {files[0]}, "
                f"got {listing(other)}"
            )
    return names[0]


def _csv_chunk(
    store: FileStore, files: list[str], partitions: tuple[str, ...], has_header: bool
) -> SourceChunk:
    delimiter = ","
    for file in files:
        is_tsv = ".tsv" in file.rpartition("/")[2]
        names, delimiter = read_header(store, file, "\t" if is_tsv else None, True, has_header)
        if names:
            break
    if not has_header:
        if not names:
            raise ValueError(f"{files[0]}: the file is empty; expected rows: write it again")
        return _chunk(CSV, files, names, partitions, delimiter=delimiter, header=False)
    names = csv_columns(SourceChunk(CSV, tuple(files), delimiter=delimiter), store)
    check_header(store, file, names, delimiter)
    if "" in names:
        unnamed = [str(i + 1) for i, name in enumerate(names) if not name]
        print(
            f"note: {files[0]}: column {', '.join(unnamed)} has no name and is left out",
            file=sys.stderr,
        )
    return _chunk(CSV, files, [name for name in names if name], partitions, delimiter=delimiter)


def _parquet_chunk(store: FileStore, files: list[str], partitions: tuple[str, ...]) -> SourceChunk:
    names = store.schema(files[0]).names
    check_names(names, files[0])
    for file in files[1:]:
        if missing := set(names) - set(store.schema(file).names):
            raise ValueError(f"{file}: expected the columns of {files[0]}, got none of {missing}")
    return _chunk(PARQUET, files, names, partitions)


def _chunk(
    kind: str, files: list[str], names: list[str], partitions: tuple[str, ...], **options
) -> SourceChunk:
    folded = {name.lower() for name in names}
    partitions = tuple(name for name in partitions if name.lower() not in folded)
    check_names([*names, *partitions], files[0])
    return SourceChunk(kind, tuple(files), (*names, *partitions), partitions=partitions, **options)
