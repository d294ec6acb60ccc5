"""Lines of CSV files in a Spark task; no Spark here."""

import pyarrow as pa
import pytest

from deployment.predict.csv_lines import CsvLines, column_names

NAMES = ("key", "x", "y")


def rows(*batches, names=NAMES, used=("key", "y")):
    """Returns the rows of batches of (line, file or None)."""
    split = CsvLines("--input a.csv", names, used)
    arrays = (
        pa.RecordBatch.from_arrays(
            [
                pa.array([line for line, _ in batch], pa.binary()),
                pa.array([file for _, file in batch], pa.string()),
            ],
            names=["line", "file"],
        )
        for batch in batches
    )
    return [
        row
        for columns in split.columns(arrays)
        for row in zip(*(columns[name].to_pylist() for name in used), strict=True)
    ]


def lines(*texts, file="f.csv"):
    return [(text, file) for text in (b"key,x,y", *texts)]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"a,1,2", ("a", "2")),
        (b'"a""b",1,2', ('a"b', "2")),
        (b'"a,b",1,', ("a,b", None)),
        (b'" a ",1,2', (" a ", "2")),
        (b" a ,1,2", (" a ", "2")),
        (b'"c:\\d\\",1,2', ("c:\\d\\", "2")),
        (b'"",1,2', ("", "2")),
        (b",1,2", (None, "2")),
        ("é,1,2".encode(), ("é", "2")),
        (b"\xef\xbb\xbfa,1,2", ("\ufeffa", "2")),
    ],
)
def test_fields(line, row):
    assert rows(lines(line)) == [row]


def test_headers():
    """Each file has one, also within and at the start of a batch; later blocks have none."""
    later = [(b"d,4,4", None), (b"e,5,5", None)]
    first = [*lines(b"a,1,1"), *lines(b"b,2,2", file="g.csv")]
    more = [(b"c,3,3", "g.csv")]
    assert rows(first, more, later) == [(key, str(i)) for i, key in enumerate("abcde", 1)]
    assert rows(lines()) == []


def test_partition_columns():
    batch = pa.RecordBatch.from_pydict(
        {"line": [b"key,x,y", b"a,1,2"], "file": ["f.csv"] * 2, "day": ["01", "01"]}
    )
    (columns,) = CsvLines("a", NAMES, ("key",)).columns(iter([batch]))
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "key": ["a"],
        "day": ["01"],
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a,1", r"f.csv: expected 3 fields on each line, as in the header, got 2: b'a,1'"),
        (b"a,1,2,3", r"expected 3 fields on each line, as in the header, got 4: b'a,1,2,3'"),
        (b"", "expected 3 fields on each line, as in the header, got 1: b''"),
        (b'"a,1,2', "with quotation marks inside them written twice, got b'\"a,1,2'"),
        (b'a,1,"2', "got b'a,1,\"2'; fix the file, or give --input as Parquet"),
        (b"Z\xfc,1,2", r"f.csv: expected UTF-8, got b'Z\\xfc,1,2'; convert the file"),
    ],
)
def test_faults(line, message):
    with pytest.raises(ValueError, match=message):
        rows(lines(b"a,1,2", line, b"b,1,2"))


def test_other_columns():
    with pytest.raises(ValueError, match="g.csv: expected the columns of the other files, in"):
        rows([*lines(b"a,1,1"), (b"key,y,x", "g.csv"), (b"b,2,2", "g.csv")])


def test_names():
    assert column_names(b'\xef\xbb\xbfkey,"a,b",key', "a") == ("key", "a,b", "key")
    with pytest.raises(ValueError, match="a: expected UTF-8"):
        column_names(b"\xff", "a")
