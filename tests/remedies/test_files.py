"""Messages about input files: absent, cut, empty, of another type, of another encoding."""

import gzip
import io
import sqlite3
import subprocess
import sys
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.remedies.remedy import ROWS, TABLE, Remedy, check, renamed, then, written

GZIP = gzip.compress(ROWS.encode())


def arrow() -> pa.Table:
    return pa_csv.read_csv(io.BytesIO(ROWS.encode()))


def table(name: str, *flags: str) -> tuple[str, ...]:
    return (*TABLE, f"--input={name}", *flags)


def parquet(name: str):
    return lambda folder: pq.write_table(arrow(), folder / name)


def zipped(name: str, inner: str = "rows.csv"):
    def prepare(folder):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(inner, ROWS)

    return prepare


def unzipped(name: str, folder_name: str):
    def apply(folder):
        command = [sys.executable, "-m", "zipfile", "-e", name, folder_name]
        subprocess.run(command, cwd=folder, check=True)
        return table(folder_name)

    return apply


def tarred(name: str):
    def prepare(folder):
        (folder / "rows.csv").write_text(ROWS)
        with tarfile.open(folder / name, "w:gz") as archive:
            archive.add(folder / "rows.csv", "inner/rows.csv")
        (folder / "rows.csv").unlink()

    return prepare


def untarred(name: str):
    def apply(folder):
        subprocess.run(["tar", "xf", name], cwd=folder, check=True)
        return table("inner")

    return apply


def database(folder):
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("CREATE TABLE t (city TEXT, price REAL, click INTEGER)")
        rows = [line.split(",") for line in ROWS.splitlines()[1:]]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.close()


def exported(folder):
    """Writes what `sqlite3 -csv -header` writes, a program that may be absent."""
    with sqlite3.connect(folder / "shop.db") as connection:
        lines = [",".join(map(str, row)) for row in connection.execute("SELECT * FROM t")]
    connection.close()
    (folder / "t.csv").write_text("\n".join(["city,price,click", *lines]) + "\n")
    return table("t.csv")


def folder_of(name: str, content: str = "text"):
    def prepare(folder):
        (folder / "parts").mkdir()
        (folder / "parts" / name).write_text(content)

    return prepare


def linked(folder):
    (folder / "rows.csv").symlink_to("moved/rows.csv")


PATHS = [
    Remedy(
        "a name that is nearly right", written("orders.csv", ROWS), table("ordres.csv"),
        "ordres.csv: the file does not exist", "did you mean 'orders.csv'?",
        then(*table("orders.csv")),
    ),
    Remedy(
        "a path of which only the folder is nearly right", written("input/orders.csv", ROWS),
        table("inputs/old/orders.csv"), "the folder inputs does not exist",
        "did you mean 'input'?", then(*table("input/orders.csv")),
    ),
    Remedy(
        "a pattern without a match", written("day-1.csv", ROWS), table("part-*.csv"),
        "no file has a name of this pattern", " has day-1.csv", then(*table("day-*.csv")),
    ),
    Remedy(
        "a link without its file", linked, table("rows.csv"),
        "is a symbolic link to moved/rows.csv", "restore moved/rows.csv",
        written("moved/rows.csv", ROWS),
    ),
    Remedy(
        "a file used as a folder", written("rows.csv", ROWS), table("rows.csv/part.csv"),
        "rows.csv is a file", "give rows.csv alone", then(*table("rows.csv")),
    ),
    Remedy(
        "an output below a file", written("rows.csv", ROWS),
        ("transcode", "--label=click", "--input=rows.csv", "--output=rows.csv/data"),
        "rows.csv is a file", "not a folder: choose another output", then(*table("rows.csv")),
    ),
    Remedy(
        "an output that exists", folder_of("notes"),
        ("transcode", "--label=click", "--input=rows.csv", "--output=parts"),
        "exists and is not an empty folder", "remove it or choose another output",
        written("rows.csv", ROWS, *table("rows.csv")),
    ),
]  # fmt: skip
CONTENTS = [
    Remedy(
        "names of columns alone", written("rows.csv", ROWS.splitlines()[0] + "\n"),
        table("rows.csv"), "no rows", "add rows, or export the table again",
        written("rows.csv", ROWS),
    ),
    Remedy(
        "an empty Parquet file", written("rows.parquet", ""), table("rows.parquet"),
        "expected a Parquet file", "got an empty file: write it again", parquet("rows.parquet"),
    ),
    Remedy(
        "an empty folder", lambda folder: (folder / "parts").mkdir(), table("parts"),
        "the folder is empty", "give the folder that has the table",
        written("other/rows.csv", ROWS, *table("other")),
    ),
    Remedy(
        "a folder without a table", folder_of("rows", ROWS), table("parts"),
        "parts: expected a file that ends with .csv", "parts/rows is text: if it is CSV, rename it",
        renamed("parts/rows", "parts/rows.csv", *table("parts")),
    ),
    Remedy(
        "a row with too many fields", written("rows.csv", ROWS + "Bern, CH,3,1\n"),
        table("rows.csv"), "line 62: expected 3 fields",
        "put a field with ',' in it between quotation marks",
        written("rows.csv", ROWS + '"Bern, CH",3,1\n'),
    ),
    Remedy(
        "a row that is not needed", written("rows.csv", ROWS * 1 + ROWS[17:] + "total\n"),
        table("rows.csv"), "line 122: expected 3 fields",
        "leave such lines out, at most 1% of all, with --on_bad_line skip",
        then(*table("rows.csv", "--on_bad_line=skip")),
    ),
    Remedy(
        "a quotation mark in a field",
        written("rows.csv", ROWS + '"7" screen",3,1\n'), table("rows.csv"), "quotation marks",
        "write one inside of a quoted field twice",
        written("rows.csv", ROWS + '"7"" screen",3,1\n'),
    ),
]  # fmt: skip
TYPES = [
    Remedy(
        "Parquet named .csv", parquet("rows.csv"), table("rows.csv"), "got a Parquet file",
        "rename it to ", renamed("rows.csv", "rows.parquet"),
    ),
    Remedy(
        "gzip named .csv", written("rows.csv", GZIP), table("rows.csv"), "got a gzip file",
        "rows.csv.gz", renamed("rows.csv", "rows.csv.gz"),
    ),
    Remedy(
        "CSV named .parquet", written("t.parquet", ROWS), table("t.parquet"), "got text",
        "/t.csv", renamed("t.parquet", "t.csv"),
    ),
    Remedy(
        "CSV named .csv.gz", written("u.csv.gz", ROWS), table("u.csv.gz"), "got plain text",
        "/u.csv", renamed("u.csv.gz", "u.csv"),
    ),
    Remedy(
        "CSV without an ending", written("v", ROWS), table("v"), "got text", "/v.csv",
        renamed("v", "v.csv"),
    ),
    Remedy(
        "an ending in capitals", written("W.CSV.GZ", GZIP), table("W.CSV.GZ"), "ends with .GZ",
        "/W.CSV.gz", renamed("W.CSV.GZ", "W.CSV.gz"),
    ),
    Remedy(
        "a zip archive", zipped("a.zip"), table("a.zip"), "got a zip archive", "/a.zip ",
        unzipped("a.zip", "a"),
    ),
    Remedy(
        "a tar archive", tarred("c.tar.gz"), table("c.tar.gz"), "got a tar archive",
        "unpack it: tar xf", untarred("c.tar.gz"),
    ),
    Remedy(
        "an Excel workbook", zipped("d.xlsx", "xl/workbook.xml"), table("d.xlsx"),
        "an Excel workbook", "save the sheet as CSV UTF-8",
        written("d.csv", "\ufeff" + ROWS.replace("\n", "\r\n"), *table("d.csv")),
    ),
    Remedy(
        "an SQLite database", database, table("shop.db"), "an SQLite database",
        "sqlite3 -csv -header", exported,
    ),
    Remedy(
        "a web page", written("g.csv", "<!DOCTYPE html>\n<html>404</html>\n"), table("g.csv"),
        "a web page", "it may be a login or an error: download the file again",
        written("g.csv", ROWS),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", [*PATHS, *CONTENTS, *TYPES], ids=lambda case: case.cause)
def test_remedies(case, tmp_path, monkeypatch):
    check(case, tmp_path, monkeypatch)
