"""Raw CSV and Parquet files to split binaries: values by hand, every refusal, texts to ids."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.transcode import __main__ as transcode
from preproc.transcode.raw.spec import RawSpec
from tests.conftest import run_forked

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
    assert "train: 3 rows, share of click=1 0.3333, of click=0 0.6667" in capsys.readouterr().out
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
    assert run(folder) == 0
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
    assert StoredDataset(spec, "later", 2, with_labels=False).num_samples == 2


def test_logs_without_quoting(tmp_path):
    spec = chunk_with(quoting=False, delimiter="\t", header=True)
    names = "click\tprice\tage\tuser\tcity\n"
    folder = raw(tmp_path, spec, a=names + '1\t2\t3\t4\t"5" pipe\n0\t2\t3\t4\t"\n')
    assert run(folder, "--categorify=city", EVERY) == 0
    assert vocabulary(tmp_path / "out", "city") == {'"': 1, '"5" pipe': 1}


def vocabulary(folder: Path, feature: str) -> dict[str, int]:
    """Value -> count of the vocabulary of a prepared data set, in the order of the ids."""
    encoding = Encoder.load(folder / "encoder")[feature]
    return dict(zip(encoding.values.to_pylist(), encoding.counts.to_pylist(), strict=True))


def test_rows_with_too_few_fields(tmp_path, capsys):
    folder = raw(tmp_path, a="1,2,3,4,0\n1,2,3,4\n")
    refused(capsys, "/a, line 2: expected 5 fields .*, got 4", folder)
    refused(capsys, "split 'train' has no rows", raw(tmp_path, a=""))
    rows = "1,2,3,4,0\n0,2,3,4,0\n" * 50 + "1,2\n"
    assert run(raw(tmp_path, a=rows), "--on_bad_line=skip") == 0
    assert len(stored(tmp_path / "out", "user")) == 100


def test_absent_column_of_parquet(tmp_path, capsys):
    table = pa.table({"click": [0, 1], "d": [1, 2]})
    message = "expected the columns c, got click, d"
    refused(capsys, message, raw(tmp_path, parquet_spec(c={}), a=table))


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
    ("spec", "message"),
    [
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
        (changed(source_spec={"a/b": SPEC["source_spec"]["train"]}), "split 'a/b'; a split"),
        (changed(source_spec=[]), "source_spec: nothing there; raw data has a split"),
        (chunk_with(type="split_binary"), "type is 'split_binary'; raw data is csv or parquet"),
        (chunk_with(type="parquet", header=True), "header: only CSV files have that"),
        (chunk_with(header="yes"), "header is 'yes'; expected true"),
        (chunk_with(quoting=0), "quoting is 0; expected true or false"),
        (chunk_with(delimiter="\0"), r"delimiter is '\\x00'; expected one ASCII character"),
        (chunk_with(delimiter=";"), "delimiter is ';'; expected one ASCII character"),
        (changed(metadata={"transcode": 1}), "metadata: 'transcode' is written here; rename"),
        (changed(metadata=[1]), r"metadata: found \[1\]"),
    ],
)
def test_bad_specs(spec, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, spec, a=ROWS))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--feature_spec_out=a/b.yaml"], "--feature_spec_out is 'a/b.yaml'; expected a file name"),
        (["--feature_spec_out=train"], "is 'train'; expected a file name .* than train"),
        (["--feature_spec_in=no.yaml"], "no.yaml: the file does not exist"),
        (["--categorify=citi"], "--categorify names 'citi'; .*did you mean 'city'"),
        (["--categorify=city,city"], "--categorify names 'city' twice"),
        (["--hash_buckets=price=3"], "--hash_buckets names 'price'"),
        (["--hash_buckets=city"], "--hash_buckets has 'city'; expected feature=N"),
        (["--hash_buckets=city=9223372036854775808"], "N from 1 to 2.63 - 1"),
        (["--hash_buckets=city=2,city=2"], "each feature once"),
        (["--hash_buckets=city=2", "--categorify=city"], "both name 'city'"),
        (["--frequency_threshold=2"], "--frequency_threshold is only read with --categorify"),
        (["--categorify=city", "--frequency_threshold=-1"], "--frequency_threshold is '-1'"),
        (["--categorify=city", "--vocabulary=d"], "--categorify and --vocabulary: the encoding is"),
    ],
)
def test_bad_flags(flags, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, a=ROWS), *flags)


def test_cardinality_given_by_an_encoding(tmp_path, capsys):
    folder = raw(tmp_path, changed(feature_spec={"city": {"cardinality": 9}}), a=ROWS)
    refused(capsys, "--categorify city: .* gives it the", folder, "--categorify=all", EVERY)
    refused(capsys, "--hash_buckets city=8: .*the cardinality 9", folder, "--hash_buckets=city=8")
    spec = {**SPEC, "source_spec": {"later": SPEC["source_spec"]["train"]}}
    folder = raw(tmp_path, spec, a=ROWS)
    refused(capsys, "counts values in the split 'train'; .* has later", folder, "--categorify=all")


def test_outputs_that_are_read(tmp_path, capsys):
    folder = raw(tmp_path / "raw", a=ROWS)
    out = tmp_path / "made"
    assert run(folder, output=out) == 0
    before = sorted(tmp_path.rglob("*"))
    for output, read in ((tmp_path, "raw"), (out / "../raw", "raw"), (out, "made")):
        flags = [f"--vocabulary={out}"] if output == out else []
        assert run(folder, "--overwrite", *flags, output=output) == 2
        assert re.search(rf"apart from the input, .*{read}, which", capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == before


def test_another_name_of_the_spec(tmp_path, capsys):
    """A data set whose spec has another name is replaced, and read as a vocabulary."""
    folder = raw(tmp_path / "raw", a=ROWS)
    out = tmp_path / "made"
    flags = ["--feature_spec_out=mine.yaml", "--categorify=city", EVERY]
    for more in ([], ["--overwrite"]):
        assert run(folder, *flags, *more, output=out) == 0
    assert run(folder, f"--vocabulary={out / 'mine.yaml'}", output=tmp_path / "more") == 0
    assert stored(tmp_path / "more", "city") == [1, 3, 2]
    capsys.readouterr()
    assert run(folder, f"--vocabulary={out}", output=tmp_path / "again") == 2
    assert "has another name: give " in capsys.readouterr().err


# Transcodes, and is killed when its first file has rows, or before the folder takes its name.
KILLED = """
import os, signal, sys
from preproc.transcode import __main__ as transcode
from preproc.transcode.write import RowWriter
from runtime.files import staging

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv.pop(1) == "amid its files":
    RowWriter._count = killed
staging.publish_folder = killed
transcode.main()
"""


@pytest.mark.quick("amid*")
@pytest.mark.parametrize("moment", ["amid its files", "at the end"])
def test_output_of_a_killed_run(tmp_path, root, forked_python, moment):
    folder = raw(tmp_path, a=ROWS)
    words = ["-c", KILLED, moment, f"--input={folder}", f"--output={tmp_path / 'out'}"]
    assert run_forked(forked_python, words, str(root), dict(os.environ), 60).returncode == -9
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".out.*")
    assert [*left.glob("*/train/*.bin")]
    assert run(tmp_path) == 0


def test_warnings_about_sparse_ids_and_unused_columns(tmp_path, capsys):
    spec = changed(channel_spec={"categorical": ["user"]})
    assert run(raw(tmp_path, spec, a="1,2,3,123456789012,0\n0,2,3,4,0\n")) == 0
    report = capsys.readouterr().out
    assert "note: 'user' has few rows for its largest id, 123,456,789,012" in report
    assert "left out, in no channel: city" in report


CITIES = ["Rome", "Oslo", "Oslo", "", "Bern", "Rome", "Oslo", "a\tb\\", "Ärö", "zz"]
TEXT_ROWS = "".join(f"{i % 2},2,3,{i},{city}\n" for i, city in enumerate(CITIES))
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
    assert re.search(r"\ncity .* 66.67%, 10.00% +7 ids\n", report)
    # Oslo 3, Rome 2, then bytewise: Bern, "a<tab>b\", zz, "Ärö" (its first byte is 0xc3).
    out = tmp_path / "out"
    counts = {"Oslo": 3, "Rome": 2, "Bern": 1, "a\tb\\": 1, "zz": 1, "Ärö": 1}
    assert list(vocabulary(out, "city").items()) == list(counts.items())
    profile = Encoder.load(out / "encoder").profile["city"]
    assert (profile.count, profile.missing, profile.unknown) == (10, 1, 0.1)
    assert profile.frequent[:2] == (("Oslo", 3), ("Rome", 2))
    assert stored(out, "city") == [2, 1, 1, 0, 3, 2, 1, 4, 6, 5]
    assert stored(out, "city", "test") == [1, 0, 0]
    assert FeatureSpec.from_yaml(out / "feature_spec.yaml").cardinality("city") == 7
    flags = ("--categorify=city", "--frequency_threshold=2")
    assert run(folder, *flags, output=tmp_path / "rare") == 0
    assert " 66.67%, 50.00% " in capsys.readouterr().out
    assert stored(tmp_path / "rare", "city") == [2, 1, 1, 0, 0, 2, 1, 0, 0, 0]


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
    assert vocabulary(out, "c/d") == {str(2**60): 3, "-5": 1, "7": 1}
    assert stored(out, "c/d") == [[1, 2], [1, 3], [0, 1]]
    assert stored(out, "e") == [1, 0, 0]
    assert stored(out, "f") == [2, 0, 1]


def test_columns_without_values(tmp_path):
    folder = raw(tmp_path, parquet_spec(c={}), a=pa.table({"click": [0, 1], "c": pa.nulls(2)}))
    assert run(folder, "--categorify=c", EVERY) == 0
    assert stored(tmp_path / "out", "c") == [0, 0]


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
    assert re.search(r"\ncity .* 25.00% +7 ids\n(.*\n)+unknown: .* of test;", report)
    out = later / "out"
    assert stored(out, "city", "test") == [6, 1, 0, 4]
    assert stored(out, "user", "test")[0] == stored(known, "user")[3]
    old, data_set = (FeatureSpec.from_yaml(f / "feature_spec.yaml") for f in (known, out))
    assert data_set.channel("categorical") == old.channel("categorical")
    assert data_set.cardinalities("categorical") == old.cardinalities("categorical") == [100, 7]
    (known / "encoder/vocabulary/city.parquet").unlink()
    refused_again(capsys, "encoder: expected the complete folder of an encoder", later, known)


FLOAT_FILES = {
    "train": ("7\n12\n7.0\n-3\n", [1, 3, 1, 2]),
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
    assert vocabulary(folder / "out", "c") == {"7": 2, "-3": 1, "12": 1}
    assert run(folder, "--hash_buckets=c=1000", output=tmp_path / "hashed") == 0
    seven, _, _, three = stored(tmp_path / "hashed", "c")
    assert stored(tmp_path / "hashed", "c", "test")[0::2] == [seven, three]
    later = one_column(tmp_path / "later", test=FLOAT_FILES["test"][0])
    assert run(later, f"--vocabulary={folder / 'out'}") == 0
    assert stored(later / "out", "c", "test") == FLOAT_FILES["test"][1]


def test_texts_with_a_decimal_point(tmp_path):
    """Versions such as 1.0 stay text."""
    folder = one_column(tmp_path, train="1.1\n1.0\n", test="1\n1.0\n")
    assert run(folder, "--categorify=c", EVERY) == 0
    _, second = stored(folder / "out", "c")
    assert stored(folder / "out", "c", "test") == [0, second]


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
    refused_again(capsys, r"row 2 .*expected an id in \[0, 301\).*, got '301'", again, known)
    content = yaml.safe_load((known / "feature_spec.yaml").read_text())
    del content["metadata"]["transcode"]
    (known / "feature_spec.yaml").write_text(yaml.safe_dump(content))
    refused_again(capsys, "expected a data set that preproc.transcode wrote", first, known)


def test_dimensions_as_hotness(tmp_path):
    spec = changed(feature_spec={"user": {"dimensions": [2, 1]}})
    folder = raw(tmp_path, spec, a="1,2,3,4;5,0\n0,2,3,4,0\n")
    assert RawSpec.from_yaml(folder / "feature_spec.yaml").hotness("user") == 2
    assert run(folder) == 0
    assert stored(tmp_path / "out", "user") == [[4, 5], [4, 0]]
