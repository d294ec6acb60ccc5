"""Raw CSV and Parquet files to split binaries: values by hand, every refusal, texts to ids."""

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dataloading.formats.raw_binary import RawBinaryDataset
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.table_input import files as table_files
from dataloading.table_input import lines as transcode_lines
from dataloading.transcode import __main__ as transcode
from dataloading.transcode import rows, stored_files
from dataloading.transcode.encode import vocabulary
from dataloading.transcode.encode.vocabulary import Vocabularies
from dataloading.transcode.raw_spec import RawSpec
from runtime.files.outputs import MARKER

# One label, two numerical, two categorical features; one CSV file.
SPEC = {
    "feature_spec": {"click": {}, "price": {}, "age": {"dtype": "float32"}, "user": {}, "city": {}},
    "source_spec": {
        "train": [
            {"type": "csv", "features": ["click", "price", "age", "user", "city"], "files": ["a"]}
        ]
    },
    "channel_spec": {
        "label": ["click"],
        "numerical": ["price", "age"],
        "categorical": ["user", "city"],
    },
}
EVERY = "--frequency_threshold=0"  # each value has an id
ROWS = "1,2.5,70000,5,0\n0,-1e-3,3,300,2\n0,7,0.5,0,1\n"


def changed(**sections) -> dict:
    """SPEC with other features, chunks or channels."""
    spec = {name: dict(section) for name, section in SPEC.items()}
    for name, content in sections.items():
        spec[name] = content if not isinstance(content, dict) else {**spec.get(name, {}), **content}
    return spec


def chunk_with(**keys) -> dict:
    return changed(source_spec={"train": [{**SPEC["source_spec"]["train"][0], **keys}]})


def raw(folder: Path, spec: dict = SPEC, **files) -> Path:
    """A folder of raw data: the spec, and files of text, bytes or an Arrow table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    for name, content in files.items():
        if isinstance(content, pa.Table):
            pq.write_table(content, folder / name, row_group_size=2)
        else:
            data = content if isinstance(content, bytes) else content.encode()
            (folder / name).write_bytes(data)
    return folder


def run(folder: Path, *flags, output=None) -> int:
    return transcode.main(
        [f"--input={folder}", f"--output={output or folder / 'out'}", *map(str, flags)]
    )


def stored(folder: Path, feature: str, split: str = "train") -> list:
    """The values of a feature of a prepared data set, row by row."""
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    (chunk,) = (c for c in spec.source_spec[split] if feature in c.features)
    values = np.fromfile(folder / chunk.files[0], spec.dtype(feature))
    widths = [spec.hotness(name) for name in chunk.features]
    end = sum(widths[: chunk.features.index(feature) + 1])
    rows = values.reshape(-1, sum(widths))[:, end - spec.hotness(feature) : end]
    return rows.ravel().tolist() if spec.hotness(feature) == 1 else rows.tolist()


def refused(capsys, message: str, folder: Path, *flags) -> None:
    """The run ends with status 2, one `error:` line that matches, and nothing under the output."""
    capsys.readouterr()
    assert run(folder, *flags) == 2
    report = capsys.readouterr().err
    assert re.search(message, report), report
    assert report.startswith("error: ") and report.count("\n") == 1
    assert [path.name for path in folder.glob("out*")] == []
    assert [path.name for path in folder.glob(".out*")] == []


def test_values_by_hand(tmp_path, capsys):
    folder = raw(tmp_path, a=ROWS)
    assert run(folder) == 0
    assert "train: 3 rows, click rate 0.3333" in capsys.readouterr().out
    out = tmp_path / "out"
    spec = FeatureSpec.from_yaml(out / "feature_spec.yaml")
    assert spec.feature_spec == {
        "click": {"dtype": "bool"},
        "price": {"dtype": "float16"},
        "age": {"dtype": "float32"},
        "user": {"dtype": "int16", "cardinality": 301},
        "city": {"dtype": "int8", "cardinality": 3},
    }
    assert spec.metadata["transcode"]["rows"] == {"train": 3}
    assert stored(out, "click") == [True, False, False]
    assert stored(out, "price") == [2.5, float(np.float16(-1e-3)), 7.0]
    assert stored(out, "age") == [70000.0, 3.0, 0.5]
    assert stored(out, "user") == [5, 300, 0]
    assert stored(out, "city") == [0, 2, 1]
    batch = next(iter(RawBinaryDataset(spec, "train", 3).dataset()))
    assert [ids.numpy()[:, 0].tolist() for ids in batch.inputs.categorical] == [
        [5, 300, 0],
        [0, 2, 1],
    ]


def test_files_of_all_kinds(tmp_path):
    """Several files a chunk, chunks of other columns, types and block sizes, lists, a label that is
    not there, compressed text, columns that are not read, quotes, a byte order mark."""
    features = {"click": {}, "x": {"hotness": 2}, "tags": {"hotness": 3}}
    features["user"] = {"dtype": "int64"}
    train = [
        {"type": "csv", "features": ["tags", "click"], "files": ["a", "empty", "b"]},
        {"type": "parquet", "features": ["user", "x"], "files": ["c", "d"]},
    ]
    csv = {"type": "csv", "header": True}
    test = [
        {**csv, "delimiter": "\t", "features": ["user", "tags"], "files": ["e.gz"]},
        {**csv, "features": ["x"], "files": ["f"]},
    ]
    spec = {
        "feature_spec": features,
        "source_spec": {"train": train, "later": test},
        "channel_spec": {"label": ["click"], "numerical": ["x"], "categorical": ["user", "tags"]},
    }
    x = pa.array([[1.5, 2.5], [0, -1], [3, 4], [5, 6], [7, 8]], pa.list_(pa.float64(), 2))
    user = pa.array([4, 3, 2, 1, 2**40], pa.uint64())
    whole = pa.table({"other": ["a"] * 5, "user": user, "x": x})
    folder = raw(
        tmp_path / "odd [name]*",
        spec,
        a="1;2;3,1\n4;5;6,0\n7;8;9,1\n",
        b='"0; 0;0", 0\r\n1;1;1,1\r\n',
        empty="",
        c=whole.slice(0, 1),
        d=whole.slice(1),
        f='other,x\n"a""b",1;2\n,3;4\n',
    )
    (folder / "e.gz").write_bytes(
        gzip.compress("\ufefftags\tq\tuser\n1;1;2\t?\t8\n0;0;1\t\t9\n".encode())
    )
    assert run(folder, "--chunk_size=2") == 0
    out = folder / "out"
    assert stored(out, "click") == [True, False, True, False, True]
    assert stored(out, "tags") == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0], [1, 1, 1]]
    assert stored(out, "user") == [4, 3, 2, 1, 2**40]
    assert stored(out, "x") == x.to_pylist()
    assert stored(out, "user", "later") == [8, 9]
    assert stored(out, "tags", "later") == [[1, 1, 2], [0, 0, 1]]
    assert stored(out, "x", "later") == [[1, 2], [3, 4]]
    spec = FeatureSpec.from_yaml(out / "feature_spec.yaml")
    assert spec.feature_spec["user"] == {"dtype": "int64", "cardinality": 2**40 + 1}
    assert spec.metadata["transcode"]["click_rate"] == {"train": 0.6}
    assert RawBinaryDataset(spec, "later", 2, with_labels=False).num_samples == 2


def test_rows_of_a_block_boundary(tmp_path, monkeypatch, capsys):
    """The sizes of blocks and chunks change neither the output nor the row of an error."""
    monkeypatch.setattr(transcode_lines, "_BLOCK_BYTES", 64)
    lines = [f"{i % 2},{i},{i},{i},{i % 3}" for i in range(200)]
    spec = changed()
    folder = raw(tmp_path, spec, a="\r\n".join(lines))  # blocks end in the middle of one, too
    assert run(folder, "--chunk_size=3") == 0
    assert stored(tmp_path / "out", "user") == list(range(200))
    for row in (1, 148, 149, 150, 151, 200):
        bad = [*lines]
        bad[row - 1] = "0,1,1,1,x"
        folder = raw(tmp_path / f"bad {row}", spec, a="\n".join(bad))
        refused(capsys, f"'city': found 'x' in row {row} ", folder, "--chunk_size=3")


BAD_ROWS = {
    "1,2,3,4,": "'city': found no value in row 2 .*give it an id of its own",
    "1,2,3,-4,0": "'user': found -4 in row 2 .*; ids are 0 or more; .*--categorify",
    "1,2,3,4.5,0": "'user': found '4.5' in row 2 .*; expected a whole number",
    "1,2,3,0x1f,0": "'user': found '0x1f' in row 2 .*; expected a whole number",
    "1,2,3,9223372036854775808,0": "'user': found '9223372036854775808' in row 2",
    "1,2,3,9223372036854775807,0": "'user': found 9223372036854775807 in row 2 .*; ids lie in",
    "1,2,3,4,berlin": "'city': found 'berlin' in row 2",
    "1,,3,4,0": "'price': found no value in row 2 .*--fill_missing mean",
    "1,two,3,4,0": "'price': found 'two' in row 2 .*; expected a number",
    "1,nan,3,4,0": "'price': found nan in row 2 .*; numerical features are finite",
    "1,-inf,3,4,0": "'price': found -inf in row 2",
    "1,70000,3,4,0": "'price': found 70000 in row 2 .*; float16 holds up to 65504: .*float32'",
    "1,2,1e39,4,0": r"'age': found 1e\+39 in row 2 .*; float32 holds up to 3.40282e\+38: scale",
    "2,2,3,4,0": "'click': found 2 in row 2 .*; labels are 0 or 1",
    ",2,3,4,0": "'click': found no value in row 2 .*can only be predicted",
    "yes,2,3,4,0": "'click': found 'yes' in row 2 .*; expected 0 or 1",
    "1,2,3,4": r"file 'a': row 2 has 4 fields, there are 5 columns .*: '1,2,3,4'",
    "1,2,3,4,0,9": "file 'a': row 2 has 6 fields",
    "": "'click': found no value in row 2",
}


@pytest.mark.parametrize("line", BAD_ROWS)
def test_bad_rows(line, tmp_path, capsys):
    folder = raw(tmp_path, a=f"1,2,3,4,0\n{line}\n1,2,3,4,0\n")
    refused(capsys, "split 'train': .*" + BAD_ROWS[line], folder)


def test_header(tmp_path, capsys):
    header, spec = "click,price,age,user,city\n", chunk_with(header=True)
    refused(capsys, "found 'x' in row 1 ", raw(tmp_path, spec, a=header + "x,2,3,4,0\n"))
    refused(capsys, "row 2 has 1 fields", raw(tmp_path, spec, a=header + ROWS[:16] + "7\n"))
    more = raw(tmp_path, spec, a=header[:-1] + ",day\n1,2,3,4,0\n")  # a column that is not read
    refused(capsys, r"row 1 has 5 fields, there are 6 columns \(click, .*, day\)", more)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('1,2,3,4,0\n1,2,3,4,"0\n1,2,3,4,0\n', "row 2"),
        ('1,2,3,4,0\n1,2,3,4,"0\n1,2,3,4,"0\n', "row 2"),
        ('1,2,3,4,0\r\n1,2,3,4,"0', "row 2"),
        ('"1","2","3",4,"0"\r"1","2","3",4,"0"\r1,"2"5,3,4,0\r', "row 3"),
        ('1,2,3,4,""""\n1,2,3,4,"""\n', "row 2"),
    ],
)
def test_quotes_across_lines(text, row, tmp_path, capsys):
    """Rows after an open quotation mark would otherwise be lost without an error."""
    message = f"file 'a': {row} has a quotation mark that is not closed .*quoting: false"
    refused(capsys, message, raw(tmp_path, a=text))
    header = 'click,price,"age,user,city\n'
    refused(capsys, "the header has a quot", raw(tmp_path, chunk_with(header=True), a=header))


@pytest.mark.parametrize("header", [True, False])
def test_logs_without_quoting(header, tmp_path, capsys):
    spec = chunk_with(quoting=False, delimiter="\t", header=header)
    names = "click\tprice\tage\tuser\tcity\n" if header else ""
    folder = raw(tmp_path, spec, a=names + '1\t2\t3\t4\t"5" pipe\n1\t2\t3\t4\t"\n')
    assert run(folder, "--categorify=city", EVERY) == 0
    assert (tmp_path / "out/vocabulary/city.tsv").read_text() == '"\t1\n"5" pipe\t1\n'


def test_line_that_is_too_long(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(transcode_lines, "_BLOCK_BYTES", 64)
    refused(capsys, "file 'a': line 4 has 64 bytes or more", raw(tmp_path, a=ROWS + "1" * 128))


def test_files_with_only_a_header(tmp_path):
    """Headers with or without a line end, and compressed empty files."""
    spec = chunk_with(header=True, files=["a", "b", "c"])
    header = "click,price,age,user,city"
    assert run(raw(tmp_path / "1", spec, a=header, b=f"{header}\n{ROWS}", c=f"{header}\n")) == 0
    assert stored(tmp_path / "1/out", "user") == [5, 300, 0]
    files = {"a.gz": gzip.compress(b""), "b": ROWS}
    assert run(raw(tmp_path / "2", chunk_with(files=["a.gz", "b"]), **files)) == 0
    assert stored(tmp_path / "2/out", "user") == [5, 300, 0]


def test_byte_order_marks(tmp_path, monkeypatch):
    """The bytes of a mark in the middle of a file are text, also at the start of a block."""
    monkeypatch.setattr(transcode_lines, "_BLOCK_BYTES", 16)
    spec = chunk_with(features=["city", "click", "price", "age", "user"])
    rows = "".join(f"\ufeff{i},1,2,3,4\n" for i in range(9))
    assert run(raw(tmp_path, spec, a=rows), "--categorify=city", EVERY) == 0
    lines = (tmp_path / "out/vocabulary/city.tsv").read_text().splitlines()
    assert lines == ["0\t1", *(f"\ufeff{i}\t1" for i in range(1, 9))]


@pytest.mark.parametrize("position", [0, 700, 9000])
def test_nul_bytes(position, tmp_path, capsys):
    """PyArrow 25 skips separators after a NUL byte in long blocks, so that rows are joined."""
    lines = ["click,price,age,user,city", *(f"{i % 2},{i},{i},5,t{i}" for i in range(9001))]
    lines[position] += "\0"
    folder = raw(tmp_path, chunk_with(header=True), a="\n".join(lines))
    row = f"row {position}" if position else "the header"
    refused(capsys, f"file 'a': {row}: expected UTF-8 text, got a NUL byte", folder)


def test_joined_rows_of_pyarrow(tmp_path, monkeypatch, capsys):
    def joined(*arguments, read_csv=table_files.pa_csv.read_csv):
        return read_csv(*arguments)[1:]

    monkeypatch.setattr(table_files.pa_csv, "read_csv", joined)
    refused(capsys, "expected 3 rows from row 1 on, one per line, got 2", raw(tmp_path, a=ROWS))


def test_invalid_utf8(tmp_path, capsys):
    folder = raw(tmp_path, a=ROWS.encode() + b"1,2,3,4,\xff\n")
    refused(capsys, r"'city': found b'\\xff' in row 4 .*; expected", folder, "--categorify=city")


def parquet_spec(**features) -> dict:
    """A spec of the label `click`, numerical `n` and other ids, in one Parquet file `a`."""
    names = ["click", *features]
    ids, numerical = [n for n in features if n != "n"], [n for n in features if n == "n"]
    return {
        "feature_spec": {"click": {}, **features},
        "source_spec": {"train": [{"type": "parquet", "features": names, "files": ["a"]}]},
        "channel_spec": {"label": ["click"], "numerical": numerical, "categorical": ids},
    }


@pytest.mark.parametrize(
    ("spec", "columns", "message"),
    [
        ({"c": {}}, {"c": [0, None]}, "'c': found no value in row 2"),
        ({"c": {}}, {"c": [0.0, 1.5]}, "'c': found 1.5 in row 2 .*a double is .*convert the col"),
        ({"c": {}}, {"c": [0.0, None]}, "'c': found no value in row 2"),
        ({"c": {}}, {"c": [0.0, float("nan")]}, "'c': found no value in row 2 "),
        ({"c": {}}, {"c": [2.0**53 + 2, 1]}, "'c': found 9007199254740994 in row 1"),
        ({"c": {}}, {"c": [{"a": 1}] * 2}, "'c': found a struct.*ids are whole numbers: convert"),
        ({"c": {}}, {"c": pa.array([1, 2**63], pa.uint64())}, "'c': found '?9223372036854775808'?"),
        ({"c": {"cardinality": 2}}, {"c": [1, 2]}, r"found 2 in row 2 .*; ids lie in \[0, 2\)"),
        ({"c": {"hotness": 2}}, {"c": [[1, 2], [3]]}, "found 1 values in row 2 .*hotness is 2"),
        ({"c": {"hotness": 2}}, {"c": [[1, 2], None]}, "found 0 values in row 2"),
        ({"c": {"hotness": 2}}, {"c": [[1, 2], [3, -1]]}, "found -1 in row 2"),
        ({"c": {"hotness": 2}}, {"c": [1, 2]}, "found one int64 in row 1 .*use a list"),
        ({"c": {"hotness": 2}}, {"c": [[b"1", b"2"], [b"3", b"\xff"]]}, r"found b'\\xff' in row 2"),
        ({"c": {}}, {"c": [[1], [3, 4]]}, "found 2 values in row 2 .*hotness is 1"),
        ({"n": {}}, {"n": [1.5, float("nan")]}, "'n': found nan in row 2"),
        ({"n": {}}, {"n": [{"a": 1}, {"a": 2}]}, "'n': found a struct.*convert the column"),
        ({"n": {}}, {"n": [1, 2], "click": [{"a": 1}] * 2}, "'click': found a struct.*convert"),
        ({"n": {}}, {"n": [1.5, 2], "click": [0.5, 1]}, "'click': found 0.5 in row 1"),
        ({"c": {}}, {"d": [1, 2]}, "has the column 'c' 0 times; needed: once. It has click, d"),
    ],
)
def test_bad_parquet_columns(spec, columns, message, tmp_path, capsys):
    table = pa.table({"click": [0, 1], **columns})
    refused(capsys, message, raw(tmp_path, parquet_spec(**spec), a=table))


def test_missing_list_of_fixed_size(tmp_path, capsys):
    lists = pa.array([[1, 2], [1, 2], [1, 2], None], pa.list_(pa.int64(), 2))
    table = pa.table({"click": [0] * 4, "c": lists})
    folder = raw(tmp_path, parquet_spec(c={"hotness": 2}), a=table)
    # PyArrow before 26 cannot read such a list; later it is an empty one.
    message = (
        "file 'a': (is not a parquet file .*, after row 2: .* of size=2|.*found 0 values in row 4)"
    )
    refused(capsys, message, folder, "--chunk_size=2")


def test_numeric_types_of_parquet(tmp_path):
    columns = {
        "click": pa.array([True, False]),
        "n": pa.array([1, 2], pa.int8()),
        "c": pa.array(["7", "1"]).dictionary_encode(),
        "d": pa.array([True, False]),
        "e": pa.array([300.0, 0]),  # pandas, where a column had holes
    }
    folder = raw(tmp_path, parquet_spec(n={}, c={}, d={}, e={}), a=pa.table(columns))
    assert run(folder) == 0
    expected = {"click": [True, False], "n": [1, 2], "c": [7, 1], "d": [1, 0], "e": [300, 0]}
    assert {name: stored(folder / "out", name) for name in columns} == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (changed(feature_spec=[1]), r"feature_spec: found \[1\]"),
        (changed(channel_spec={"numeric": []}), "unknown channel 'numeric'.*did you mean"),
        (changed(channel_spec={"label": ["user"]}), "feature 'user' is in two channels"),
        (changed(channel_spec={"numerical": [], "categorical": []}), "neither numerical nor"),
        (
            changed(channel_spec={"label": ["click", "age"], "numerical": []}),
            "click, age; expected one",
        ),
        (changed(feature_spec={"age": {"cardinality": 3}}), "'age': has a cardinality and is in"),
        (changed(feature_spec={"click": {"hotness": 2}}), "'click': hotness is 2; a label is one"),
        (changed(feature_spec={"age": {"dtype": "int8"}}), "'age': dtype int8 in the channel"),
        (changed(feature_spec={"user": {"dtype": "float32"}}), "'user': dtype float32 in the"),
        (changed(feature_spec={"user": {"cardinality": "many"}}), "'user': cardinality is 'many'"),
        (changed(feature_spec={"user": {"dtype": "int8"}}), "'user': dtype int8 holds ids up to"),
        (changed(source_spec={"a/b": SPEC["source_spec"]["train"]}), "split 'a/b'; a split"),
        (changed(source_spec=[]), "source_spec: nothing there; raw data has a split"),
        (changed(feature_spec={"user": {"hotness": 1 << 21}}), "'user': 2097152 values per row"),
        (changed(source_spec=[1]), r"source_spec: found \[1\]"),
        (chunk_with(type="split_binary"), "type is 'split_binary'; raw data is csv or parquet"),
        (chunk_with(type="parquet", header=True), "header: only CSV files have that"),
        (chunk_with(header="yes"), "header is 'yes'; expected true"),
        (chunk_with(quoting=0), "quoting is 0; expected true .* or false"),
        (chunk_with(delimiter="\0"), r"delimiter is '\\x00'; expected one ASCII character"),
        (chunk_with(delimiter=";"), "delimiter is ';'; expected one ASCII character"),
        (chunk_with(files=["b"]), r"file 'b': the file does not exist \("),
        (chunk_with(header=True), "has the column 'click' 0 times; needed: once. It has 1, 2.5"),
        (chunk_with(type="parquet"), "file 'a': is not a parquet file that can be read, after"),
        (changed(metadata={"transcode": 1}), "metadata: 'transcode' is written here; rename"),
        (changed(metadata=[1]), r"metadata: found \[1\]"),
    ],
)
def test_bad_specs(spec, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, spec, a=ROWS))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("1\n", r"chunk 1 \(b\) has 1 rows and chunk 0 \(a\) has more; expected equally many"),
        ("1\n2\n3\n4\n", r"chunk 0 \(a\) has 3 rows and chunk 1 \(b\) has more"),
    ],
)
def test_chunks_of_unequal_length(other, message, tmp_path, capsys):
    channels = {"categorical": ["user", "city", "more"]}
    spec = changed(feature_spec={"more": {}}, channel_spec=channels)
    more = {"type": "csv", "features": ["more"], "files": ["b"]}
    spec["source_spec"] = {"train": [*spec["source_spec"]["train"], more]}
    refused(capsys, message, raw(tmp_path, spec, a=ROWS, b=other))


def test_files_without_rows_and_damaged_files(tmp_path, capsys):
    refused(capsys, "split 'train' has no rows", raw(tmp_path, a=""))
    cut = gzip.compress(ROWS.encode() * 1000)[:-9]
    folder = raw(tmp_path / "cut", chunk_with(files=["a.gz"]), **{"a.gz": cut})
    refused(capsys, "file 'a.gz': is not a csv file that can be read, after row", folder)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--feature_spec_out=a/b.yaml"], "--feature_spec_out is 'a/b.yaml'; expected a file name"),
        (["--feature_spec_out="], "--feature_spec_out is ''; expected a file name"),
        (["--feature_spec_out=.."], "--feature_spec_out is '..'; expected a file name"),
        (["--feature_spec_out=train"], "--feature_spec_out is 'train', the name of a folder"),
        (["--feature_spec_in=no.yaml"], "no.yaml: the file does not exist"),
        (["--chunk_size=0"], "--chunk_size is 0; expected 1 or more"),
        (["--categorify=citi"], "--categorify names 'citi'; .*did you mean 'city'"),
        (["--categorify=city,city"], "--categorify names 'city' twice"),
        (["--hash_buckets=price=3"], "--hash_buckets names 'price'"),
        (["--hash_buckets=city"], "--hash_buckets has 'city'; expected feature=N"),
        (["--hash_buckets=city=0"], "--hash_buckets has 'city=0'"),
        (["--hash_buckets=city=9223372036854775808"], "N from 1 to 2.63 - 1"),
        (["--hash_buckets=city=2,city=2"], "each feature once"),
        (["--hash_buckets=city=2", "--categorify=city"], "both name 'city'"),
        (["--frequency_threshold=2"], "--frequency_threshold is only read with --categorify"),
        (["--categorify=city", "--frequency_threshold=-1"], "--frequency_threshold is '-1'"),
        (["--memory_limit=1GB"], "--memory_limit is for counting"),
        (["--categorify=city", "--memory_limit=much"], "--memory_limit is 'much'; expected a size"),
        (["--categorify=city", "--memory_limit=1MB"], "--memory_limit is '1MB'"),
        (["--categorify=city", "--memory_limit=9999999999GB"], "from 128MiB to 1048576GiB"),
        (["--categorify=city", f"--memory_limit={'9' * 400}GB"], "from 128MiB to 1048576GiB"),
        (["--categorify=city", f"--frequency_threshold={1 << 63}"], "--frequency_threshold is"),
        (["--categorify=city", "--vocabulary=d"], "--categorify and --vocabulary: the encoding is"),
    ],
)
def test_bad_flags(flags, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, a=ROWS), *flags)


def test_cardinality_given_by_an_encoding(tmp_path, capsys):
    spec = changed(feature_spec={"city": {"cardinality": 9}})
    folder = raw(tmp_path, spec, a=ROWS)
    refused(capsys, "--categorify city: .* gives it the", folder, "--categorify=all", EVERY)
    refused(capsys, "--hash_buckets city=8: .*the cardinality 9", folder, "--hash_buckets=city=8")
    spec = changed(source_spec={"later": SPEC["source_spec"]["train"]})
    del spec["source_spec"]["train"]
    folder = raw(tmp_path, spec, a=ROWS)
    refused(capsys, "counts values in the split 'train'; .* has later", folder, "--categorify=all")


def test_output_after_a_failure(tmp_path, capsys):
    folder = raw(tmp_path / "raw", a=ROWS)
    out = tmp_path / "data" / "made"
    assert run(folder, output=out) == 0
    first = (out / "train/cat_0.bin").read_bytes()
    assert run(folder, output=out) == 2
    assert "made exists and is not an empty folder" in capsys.readouterr().err
    raw(folder, a="1,2,3,7,0\n")
    assert run(folder, "--overwrite", output=out) == 0
    assert (out / "train/cat_0.bin").read_bytes() != first
    raw(folder, a="1,2,3,7,x\n")
    assert run(folder, "--overwrite", output=out) == 2
    assert stored(out, "user") == [7]
    assert [path.name for path in out.parent.iterdir()] == ["made"]
    (tmp_path / "a").touch()
    assert run(folder, "--overwrite", output=tmp_path / "a") == 2
    assert "got a file" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").touch()
    assert run(folder, "--overwrite", output=tmp_path / "mine") == 2
    assert "mine: --overwrite replaces a data set" in capsys.readouterr().err


def test_overwrite_of_data_sets(tmp_path, capsys):
    """Raw data, unknown files, and the folder that is being read are not replaced, and a data set
    of an earlier version, without a marker, is not either."""
    folder = raw(tmp_path / "raw", a=ROWS)
    out = tmp_path / "made"
    assert run(folder, output=out) == 0
    before = sorted(tmp_path.rglob("*"))

    def kept(message, *flags, output=out):
        capsys.readouterr()
        assert run(folder, "--overwrite", *flags, output=output) == 2
        assert re.search(message, report := capsys.readouterr().err), report

    kept("made holds notes.txt, .*not part of the data set", output=with_file(out, "notes.txt"))
    (out / "notes.txt").unlink()
    kept("made holds train/x, ", output=with_file(out, "train/x"))
    (out / "train/x").unlink()
    for read in (folder, tmp_path, tmp_path / "made/../raw"):
        kept("apart from the input, .*raw, which is read", output=read)
    kept("apart from the input, .*made/feature_spec.yaml", f"--vocabulary={out}")
    marker = (out / MARKER).read_bytes()
    (out / MARKER).unlink()
    kept(r"made: --overwrite .*\.output\.json .*earlier version.*remove it")
    (out / MARKER).write_bytes(marker)
    assert sorted(tmp_path.rglob("*")) == before
    assert run(folder, "--overwrite", "--categorify=all", output=out) == 0
    assert run(folder, "--overwrite", "--categorify=all", output=out) == 0  # with vocabularies


def with_file(folder: Path, name: str) -> Path:
    (folder / name).touch()
    return folder


def test_another_name_of_the_spec(tmp_path, capsys):
    """A data set whose spec has another name is replaced, and read as a vocabulary."""
    folder = raw(tmp_path / "raw", a=ROWS)
    out = tmp_path / "made"
    flags = ["--feature_spec_out=mine.yaml", "--categorify=city", EVERY]
    assert run(folder, *flags, output=out) == 0
    assert run(folder, *flags, "--overwrite", output=out) == 0
    assert run(folder, f"--vocabulary={out / 'mine.yaml'}", output=tmp_path / "more") == 0
    assert stored(tmp_path / "more", "city") == [1, 3, 2]
    capsys.readouterr()
    assert run(folder, f"--vocabulary={out}", output=tmp_path / "again") == 2
    assert "feature_spec.yaml: the file does not exist" in capsys.readouterr().err


def test_full_disk(tmp_path):
    with (
        open("/dev/full", "wb") as stream,
        pytest.raises(OSError, match="/dev/full could not be written: .*Is the disk full"),
    ):
        stored_files.put(stream, np.zeros(100_000))


# Transcodes, and is killed when its first file has rows, or before the folder takes its name.
KILLED = """
import os, signal, sys
from dataloading.transcode import __main__ as transcode
from dataloading.transcode import stored_files
from runtime.files import staging

put = stored_files.put

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def put_and_be_killed(*arguments):
    put(*arguments)
    killed()

if sys.argv.pop(1) == "amid its files":
    stored_files.put = put_and_be_killed
staging.publish_folder = killed
transcode.main()
"""


@pytest.mark.parametrize(("moment", "num_files"), [("amid its files", 1), ("at the end", 5)])
def test_output_of_a_killed_run(tmp_path, root, moment, num_files):
    command = [sys.executable, "-c", KILLED, moment, "--input", raw(tmp_path, a=ROWS)]
    command += ["--output", tmp_path / "out"]
    assert subprocess.run(command, cwd=root, check=False).returncode == -9
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".out.*")
    written = [path for path in left.glob("*/train/*.bin") if path.stat().st_size]
    assert len(written) == num_files


def test_interrupt(tmp_path, monkeypatch, capsys):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(rows.DuckDBEngine, "transcode", interrupt)
    assert run(raw(tmp_path, a=ROWS)) == 130
    assert "interrupted" in capsys.readouterr().err


def test_warnings_about_sparse_ids_and_unused_columns(tmp_path, capsys):
    spec = changed(channel_spec={"categorical": ["user"]})
    assert run(raw(tmp_path, spec, a="1,2,3,123456789012,0\n")) == 0
    report = capsys.readouterr().out
    assert "note: 'user' has few rows for its largest id, 123,456,789,012" in report
    assert "left out, in no channel: city" in report


# Texts


CITIES = ["Rome", "Oslo", "Oslo", "", "Bern", "Rome", "Oslo", "a\tb\\", "Ärö", "zz"]
TEXT_ROWS = "".join(f"1,2,3,{i},{city}\n" for i, city in enumerate(CITIES))
TEST_ROWS = "0,2,3,4, Oslo \n0,2,3,4,Paris\n0,2,3,4,\n"


def text_spec() -> dict:
    spec = changed(feature_spec={"city": {"cardinality": "auto"}})
    chunk = spec["source_spec"]["train"][0]
    spec["source_spec"] = {"test": [{**chunk, "files": ["b"]}], "train": [chunk]}
    return spec


def test_ids_of_texts_by_count(tmp_path, capsys):
    folder = raw(tmp_path, text_spec(), a=TEXT_ROWS, b=TEST_ROWS)
    assert run(folder, "--categorify=city", EVERY) == 0
    report = capsys.readouterr().out
    assert "city: cardinality 7, vocabulary; id 0 " in report
    assert "unknown): 66.67% of test, 10.00% of train\n" in report
    # Oslo 3, Rome 2, then bytewise: Bern, "a<tab>b\", zz, "Ärö" (its first byte is 0xc3).
    out = tmp_path / "out"
    assert (out / "vocabulary/city.tsv").read_text() == (
        "Oslo\t3\nRome\t2\nBern\t1\na\\tb\\\\\t1\nzz\t1\nÄrö\t1\n"
    )
    assert stored(out, "city") == [2, 1, 1, 0, 3, 2, 1, 4, 6, 5]
    assert stored(out, "city", "test") == [1, 0, 0]
    assert FeatureSpec.from_yaml(out / "feature_spec.yaml").cardinality("city") == 7
    flags = ("--categorify=city", "--frequency_threshold=2")
    assert run(folder, *flags, output=tmp_path / "rare") == 0
    assert "66.67% of test, 50.00% of train\n" in capsys.readouterr().out
    assert stored(tmp_path / "rare", "city") == [2, 1, 1, 0, 0, 2, 1, 0, 0, 0]
    assert run(folder, flags[0], "--frequency_threshold=9", output=tmp_path / "none") == 0
    assert stored(tmp_path / "none", "city") == [0] * 10


def test_ids_of_sparse_ids_and_lists(tmp_path):
    table = pa.table(
        {
            "click": [0, 1, 0],
            "c/d": [[2**60, -5], [2**60, 7], [None, 2**60]],
            "e": ["x", " ", None],
            "f": [7.0, None, 2.0**40],
        }
    )
    spec = parquet_spec(**{"c/d": {"hotness": 2}, "e": {}, "f": {}})
    assert run(raw(tmp_path, spec, a=table), "--categorify=all", EVERY) == 0
    out = tmp_path / "out"
    assert (out / "vocabulary/c%2Fd.tsv").read_text() == f"{2**60}\t3\n-5\t1\n7\t1\n"
    assert stored(out, "c/d") == [[1, 2], [1, 3], [0, 1]]
    assert stored(out, "e") == [1, 0, 0]
    assert stored(out, "f") == [2, 0, 1]


def test_columns_without_texts(tmp_path, capsys):
    folder = raw(tmp_path, parquet_spec(c={}), a=pa.table({"click": [0], "c": [0.5]}))
    refused(capsys, "'c': found 0.5 in row 1 .*a double is taken for an", folder, "--categorify=c")
    folder = raw(tmp_path, parquet_spec(c={}), a=pa.table({"click": [0], "c": [{"a": 1}]}))
    refused(capsys, "'c': found a struct.*take text and whole", folder, "--categorify=c", EVERY)
    folder = raw(tmp_path, parquet_spec(c={}), a=pa.table({"click": [0], "c": pa.nulls(1)}))
    assert run(folder, "--categorify=c", EVERY) == 0
    assert stored(tmp_path / "out", "c") == [0]


def test_more_rows_of_an_earlier_data_set(tmp_path, capsys):
    """Later rows get the ids, cardinalities and dtypes of the rows that a model was trained on."""
    first = raw(tmp_path / "first", text_spec(), a=TEXT_ROWS, b=TEST_ROWS)
    known = first / "out"
    assert run(first, "--categorify=city", EVERY, "--hash_buckets=user=100") == 0
    new = changed(channel_spec={"label": []})
    new["source_spec"]["train"] = [
        {"type": "csv", "features": ["city", "user", "age", "price"], "files": ["a"]}
    ]
    new["source_spec"]["test"] = new["source_spec"].pop("train")
    del new["feature_spec"]["click"]
    later = raw(tmp_path / "later", new, a="Ärö,3,1,2\nOslo,77,1,2\nParis,3,1,2\na\tb\\,3,1,2\n")
    capsys.readouterr()
    assert run(later, f"--vocabulary={known}") == 0
    report = capsys.readouterr().out
    assert "city: cardinality 7, vocabulary; id 0" in report and "25.00% of test" in report
    out = later / "out"
    assert stored(out, "city", "test") == [6, 1, 0, 4]
    assert stored(out, "user", "test")[0] == stored(known, "user")[3]
    old, data_set = (FeatureSpec.from_yaml(f / "feature_spec.yaml") for f in (known, out))
    assert data_set.channel("categorical") == old.channel("categorical")
    assert data_set.cardinalities("categorical") == old.cardinalities("categorical") == [100, 7]
    # Encoded again with what was made, the result is the same.
    assert run(later, f"--vocabulary={out}", output=later / "again") == 0
    assert stored(later / "again", "city", "test") == [6, 1, 0, 4]

    (known / "vocabulary/city.tsv").write_text("Oslo\t3\n")
    refused_again(capsys, "city.tsv: has 1 lines; the", later, known)
    (known / "vocabulary/city.tsv").write_text("a\t3\nOslo\t2\nb\t2\nOslo\t1\nc\t1\nd\t1\n")
    refused_again(capsys, "city.tsv: has the value 'Oslo' on more than one line", later, known)
    (known / "vocabulary/city.tsv").write_text("Oslo\n")
    refused_again(capsys, "is not a vocabulary; its lines are value, tab, count", later, known)
    (known / "vocabulary/city.tsv").unlink()
    refused_again(capsys, "city.tsv: the file does not exist; it is part of the", later, known)


FLOAT_FILES = {
    "train": ("7\n12\n7\n-3\n", [1, 3, 1, 2]),
    "test": ("7.0\n \n-3.0\n12.0 \n", [1, 0, 2, 3]),
}


def one_column(folder, **files):
    """Raw data of one feature without labels, `c`, a file `NAME.csv` per split."""
    source = {
        name: [{"type": "csv", "header": True, "features": ["c"], "files": [f"{name}.csv"]}]
        for name in files
    }
    spec = {"feature_spec": {"c": {}}, "source_spec": source}
    spec["channel_spec"] = {"label": [], "numerical": [], "categorical": ["c"]}
    texts = {f"{name}.csv": "c,d\n" + text.replace("\n", ",\n") for name, text in files.items()}
    return raw(folder, spec, **texts)


def test_integers_with_a_decimal_point(tmp_path):
    """`test` has a gap, so that pandas wrote 7.0 there; 7 and 7.0 are one value."""
    folder = one_column(tmp_path, **{name: text for name, (text, _) in FLOAT_FILES.items()})
    assert run(folder, "--categorify=c", EVERY) == 0
    for name, (_, ids) in FLOAT_FILES.items():
        assert stored(folder / "out", "c", name) == ids
    assert (folder / "out/vocabulary/c.tsv").read_text() == "7\t2\n-3\t1\n12\t1\n"
    assert run(folder, "--hash_buckets=c=1000", output=tmp_path / "hashed") == 0
    seven, _, _, three = stored(tmp_path / "hashed", "c")
    assert stored(tmp_path / "hashed", "c", "test")[0::2] == [seven, three]
    later = one_column(tmp_path / "later", test=FLOAT_FILES["test"][0])
    assert run(later, f"--vocabulary={folder / 'out'}") == 0
    assert stored(later / "out", "c", "test") == FLOAT_FILES["test"][1]


@pytest.mark.parametrize("train", ["1.1\n1.0\n", "a\n1.0\n", "1\n1.0\n"])
def test_texts_with_a_decimal_point(tmp_path, train):
    """Versions such as 1.0 stay text in a file that happens to have no other."""
    folder = one_column(tmp_path, train=train, test="1.0\n")
    assert run(folder, "--categorify=c", EVERY) == 0
    _, second = stored(folder / "out", "c")
    assert stored(folder / "out", "c", "test") == [second]
    later = one_column(tmp_path / "later", test="1.0\n")
    assert run(later, f"--vocabulary={folder / 'out'}") == 0
    assert stored(later / "out", "c", "test") == [second]


def refused_again(capsys, message, folder, known):
    capsys.readouterr()
    assert run(folder, f"--vocabulary={known}", output=folder / "new") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (folder / "new").exists()


def test_rows_of_another_data_set(tmp_path, capsys):
    first = raw(tmp_path / "first", a=ROWS)
    known = first / "out"
    assert run(first) == 0
    for spec, message in (
        (
            changed(feature_spec={"x": {}}, channel_spec={"categorical": ["user", "city", "x"]}),
            "'categorical' has user, city, x; .* has user, city; expected the same",
        ),
        (changed(feature_spec={"user": {"hotness": 2}}), "'user': hotness is 2; it is 1 in"),
        (changed(feature_spec={"user": {"cardinality": 5}}), "'user': cardinality is 5; it is"),
    ):
        if "x" in spec["feature_spec"]:
            spec["source_spec"]["train"] = [
                {"type": "csv", "features": list(spec["feature_spec"]), "files": ["a"]}
            ]
        refused_again(capsys, message, raw(tmp_path / "new", spec, a=ROWS), known)
    again = raw(tmp_path / "new", a=ROWS.replace("300", "301"))
    refused_again(capsys, r"found 301 in row 2 .*; ids lie in \[0, 301\)", again, known)
    content = yaml.safe_load((known / "feature_spec.yaml").read_text())
    del content["metadata"]["transcode"]["vocabulary"]
    (known / "feature_spec.yaml").write_text(yaml.safe_dump(content))
    refused_again(capsys, "is not a data set of dataloading.transcode", first, known)


def test_errors_of_duckdb(tmp_path):
    """Errors of DuckDB become errors with a solution."""
    import duckdb

    too_small = pytest.raises(ValueError, match="--memory_limit 200 MiB is too small.*solutions")
    with too_small, Vocabularies(tmp_path, 200 << 20):
        raise duckdb.OutOfMemoryException("no")
    failed = pytest.raises(OSError, match="reading or writing failed: full")
    with failed, Vocabularies(tmp_path, 200 << 20):
        raise duckdb.IOException("full")


def test_lookup_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "_ROWS", 3)
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 3)
    folder = raw(tmp_path, text_spec(), a=TEXT_ROWS, b=TEST_ROWS)
    assert run(folder, "--categorify=city", EVERY) == 0
    assert stored(tmp_path / "out", "city") == [2, 1, 1, 0, 3, 2, 1, 4, 6, 5]
    assert stored(tmp_path / "out", "user") == list(range(10))


def test_dimensions_as_hotness(tmp_path):
    spec = changed(feature_spec={"user": {"dimensions": [2, 1]}})
    folder = raw(tmp_path, spec, a="1,2,3,4;5,0\n")
    assert RawSpec.from_yaml(folder / "feature_spec.yaml").hotness("user") == 2
    assert run(folder) == 0
    assert stored(tmp_path / "out", "user") == [[4, 5]]


def test_progress_on_a_terminal(tmp_path, capsys, monkeypatch):
    folder = raw(tmp_path, a=ROWS)
    assert run(folder) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run(folder, output=tmp_path / "again") == 0
    captured = capsys.readouterr()
    assert "reading train:" in captured.err and "encoding ids:" in captured.err
    assert "\r" not in captured.out
