import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.sources.column_chunk import SourceChunk
from preproc.sources.part_files import csv_columns, file_type, find_table, partition_values


def write(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", "csv"),
        ("a.tsv.gz", "csv"),
        ("a.jsonl.zst", "json"),
        ("a.parquet", "parquet"),
        ("a.parquet.gz", None),
        ("a", None),
    ],
)
def test_file_type(name, kind):
    assert file_type(name) == kind


@pytest.mark.parametrize(
    ("header", "delimiter", "names"),
    [
        ("a,b", ",", ("a", "b")),
        ("a\tb,c", "\t", ("a", "b,c")),
        ("a|b", "|", ("a", "b")),
        ('"a;b;c",d', ",", ("a;b;c", "d")),
        (' a , "b"', ",", ("a", '"b"')),
        ('"a\nb",c', ",", ("a\nb", "c")),
    ],
)
def test_delimiter(header, delimiter, names, tmp_path):
    write(tmp_path, {"t.csv": f"{header}\n1".encode()})
    chunk = find_table(tmp_path / "t.csv")
    assert chunk == SourceChunk("csv", (str(tmp_path / "t.csv"),), names, delimiter=delimiter)


def test_compressed_header(tmp_path):
    rows = b"a;b\n" + b"".join(b"%d;%d\n" % (i, i * i) for i in range(10_000))
    zstd = pa.compress(rows, codec="zstd", asbytes=True)
    write(tmp_path, {"t.csv.gz": gzip.compress(rows, 1), "u.csv.zst": zstd, "v.csv.gz": rows})
    assert find_table(tmp_path / "t.csv.gz").columns == ("a", "b")
    assert find_table(tmp_path / "u.csv.zst").delimiter == ";"
    with pytest.raises(ValueError, match=r"v.csv.gz: expected compressed text, got plain text"):
        find_table(tmp_path / "v.csv.gz")


def test_folder(tmp_path):
    header = b"x,y\n"
    files = [f"day={d}/hour=a%20b/part-{i}.csv.gz" for d in (9, 10) for i in (2, 10)]
    content = dict.fromkeys(files, gzip.compress(header))
    other = {".hidden.csv": b"", "_temporary/part-0.csv": b"z\n", "README.md": b"", "_SUCCESS": b""}
    chunk = find_table(write(tmp_path / "key=value", content | other))
    assert chunk.files == tuple(f"{tmp_path}/key=value/{file}" for file in files)
    assert chunk.columns == ("x", "y", "day", "hour")
    assert chunk.partitions == ("day", "hour")
    assert partition_values(chunk, "day") == ["9", "9", "10", "10"]
    assert partition_values(chunk, "hour") == ["a b"] * 4


def test_pattern(tmp_path):
    for name in ("day_2.csv", "day_10.csv", "other.csv", "day_[1].csv"):
        (tmp_path / name).write_text("a\n1\n")
    files = find_table(tmp_path / "day_*[0-9].csv").files
    assert files == (str(tmp_path / "day_2.csv"), str(tmp_path / "day_10.csv"))
    assert find_table(tmp_path / "day_[1].csv").files == (str(tmp_path / "day_[1].csv"),)


def test_partition_that_files_have(tmp_path):
    write(tmp_path, {"k=1/a=0/x.csv": b"k,v\n", "k=__HIVE_DEFAULT_PARTITION__/a=0/x.csv": b"k,v\n"})
    chunk = find_table(tmp_path)
    assert chunk.columns == ("k", "v", "a")
    missing = SourceChunk("csv", chunk.files, None, partitions=("k",))
    assert partition_values(missing, "k") == ["1", None]


def test_empty_parts(tmp_path):
    chunk = find_table(write(tmp_path, {"part-0.csv": b"", "part-1.csv": b"a|b\n1|2\n"}))
    assert chunk.columns == ("a", "b")
    assert csv_columns(chunk) == ["a", "b"]


def test_parquet(tmp_path):
    for i in range(2):
        pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / f"part-{i}.parquet")
    assert find_table(tmp_path).columns == ("a", "b")
    pq.write_table(pa.table({"b": ["x"]}), tmp_path / "part-2.parquet")
    with pytest.raises(ValueError, match=r"part-2.parquet: expected the columns of .*part-0"):
        find_table(tmp_path)


def test_unnamed_columns(tmp_path, capsys):
    chunk = find_table(write(tmp_path, {"t.csv": b",a,\n0,1,\n"}))
    assert chunk.columns == ("a",)
    assert "t.csv: column 1, 3 has no name and is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"t.csv": b""}, "t.csv: the file is empty"),
        ({"t.csv": b"\na,b\n"}, "in the first line, got an empty line"),
        ({"t.csv": b"u1,5,2\nu2,7,1\n"}, "in the first line, got the numbers 5, 2; possible"),
        ({"t.csv": b"a,A\n"}, "got 'a' and 'A'; rename one of the columns"),
        ({"t.csv": b"a,__row\n"}, "the column name '__row' is reserved"),
        ({"t.csv": b"\xff\xfea\0,\0"}, "expected UTF-8 text, got UTF-16"),
        ({"t.csv": b"\xe9,b\n"}, "expected UTF-8 text, got the header"),
        ({"a.csv": b"a\n", "b.csv": b"b\n"}, "b.csv: expected the header of .*a.csv, a, got b"),
        ({"a.csv": b"a\n", "b.json": b"{}\n"}, "expected files of one type, got .*a.csv and .*b.j"),
        ({"k=1/a.csv": b"a\n", "b.csv": b"a\n"}, "k=1/a.csv: expected folders none"),
        ({"t.json": b"[\n{}]"}, "got a JSON array; convert it, e.g. with: jq -c"),
        ({"t.json": b'{\n"a": 1}'}, "if an object has several lines, convert the file"),
        ({"t.json": b"5\n"}, "expected JSON lines .one object per line., got '5'"),
        ({"t.md": b""}, "expected a file that ends with .csv, .* got the files .*t.md"),
        ({"t.parquet": b"x"}, "t.parquet: expected a Parquet file"),
    ],
)
def test_errors(files, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        find_table(write(tmp_path, files))
