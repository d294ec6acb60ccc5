"""One CSV or Parquet file without a feature spec: inferred channels of its columns."""

import datetime
import decimal
import gzip
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dataloading.spec.feature_spec import FeatureSpec
from tests.dataloading.transcode.test_transcode import run, stored

ROWS = 400


def columns():
    """Columns of all kinds, with the channel that each is to be in; None: left out."""
    number = np.arange(ROWS)
    return {
        "bought": (number % 2, "label"),
        "city": (np.where(number % 9, "Bern", ""), "categorical"),
        "user_id": (number * 7, "categorical"),
        "shop id": (number, "categorical"),
        "paid": (number * 3, "numerical"),
        "grade": (number % 40, "categorical"),
        "points": (number % 41, "numerical"),
        "price": ([f"{i / 7:.3f}" if i % 5 else "" for i in number], "numerical"),
        "zip": ([f"0{i % 90 + 10}" for i in number], "categorical"),
        "card": ([f"{10**17 + i}" for i in number], "categorical"),
        "tags": ([f"new;{'red' if i % 2 else 'blue'}" for i in number], "categorical"),
        "remark": (["a;b" if i % 2 else "c" for i in number], "categorical"),
        "empty": ([""] * ROWS, None),
        "rare": (["x"] * (ROWS - 1) + ["7"], "categorical"),
        "": (number, None),
    }


def write(path, header=None, delimiter=","):
    data_set = columns()
    lines = [delimiter.join(header or data_set)]
    for values in zip(*(values for values, _ in data_set.values()), strict=True):
        lines.append(delimiter.join(map(str, values)))
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def spec_of(out):
    return FeatureSpec.from_yaml(out / "feature_spec.yaml")


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("file")
    path = write(folder / "shop.csv")
    assert run(path, "--label=bought", "--fill_missing=mean", output=folder / "out") == 0
    return folder


def test_channels_by_hand(data_set):
    spec = spec_of(data_set / "out")
    channels = {name: channel for channel, names in spec.channel_spec.items() for name in names}
    assert channels == {name: channel for name, (_, channel) in columns().items() if channel}
    assert spec.hotness("tags") == 2 and spec.hotness("remark") == 1
    assert spec.feature_spec["paid"]["dtype"] == "float32"
    paid = 3 * np.arange(ROWS)
    expected = (paid - paid.mean()) / paid.std()
    assert stored(data_set / "out", "paid") == expected.astype(np.float32).tolist()


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv.gz", ","), ("a.tsv", "\t")])
def test_equal_output_of_other_files(name, delimiter, data_set, tmp_path):
    path = write(tmp_path / name, delimiter=delimiter)
    flags = ("--label=bought", "--fill_missing=mean", "--chunk_size=7")
    assert run(path, *flags, output=data_set / name) == 0
    assert spec_of(data_set / name).channel_spec == spec_of(data_set / "out").channel_spec
    assert stored(data_set / name, "tags") == stored(data_set / "out", "tags")


def test_printed_spec(data_set, tmp_path, capsys):
    path = write(tmp_path / "shop.csv")
    flags = ("--fill_missing=mean", "--categorify=all")
    assert run(path, "--label=bought", *flags, output=tmp_path / "a") == 0
    output = capsys.readouterr().out
    assert re.search("price: {dtype: float32}.*numbers, 320 different, 20.00% missing", output)
    assert "# left out: empty (no value)" in output
    text = output[: output.index("\n\n")]
    assert set(yaml.safe_load(text)) == {"feature_spec", "source_spec", "channel_spec"}
    (tmp_path / "feature_spec.yaml").write_text(text)
    assert run(tmp_path, *flags, "--standardize=all", output=tmp_path / "b") == 0
    for name in ("city", "tags", "price"):
        assert stored(tmp_path / "a", name) == stored(tmp_path / "b", name)


def test_choices_of_the_user(data_set, capsys):
    path = data_set / "shop.csv"
    roles = ("--categorical=points,paid", "--numerical=grade,user_id", "--drop=card,zip")
    assert run(path, "--label=bought", *roles, "--fill_missing=0", output=data_set / "own") == 0
    spec = spec_of(data_set / "own")
    assert {"points", "paid"} <= set(spec.channel("categorical"))
    assert {"grade", "user_id"} <= set(spec.channel("numerical"))
    assert not {"card", "zip"} & set(spec.feature_spec)
    assert "# left out: card (--drop)" in capsys.readouterr().out


def test_more_rows_without_a_feature_spec(data_set, tmp_path):
    header, *lines = write(tmp_path / "all.csv").read_text().splitlines()
    names = header.split(",")
    keep = [i for i, name in reversed(list(enumerate(names))) if name != "bought"]  # any order
    new = "\n".join(",".join(line.split(",")[i] for i in keep) for line in [header, *lines[:5]])
    (tmp_path / "new.csv").write_text(new)
    known = f"--vocabulary={data_set / 'out'}"
    assert run(tmp_path / "new.csv", known, output=tmp_path / "out") == 0
    for name in ("city", "tags", "price", "user_id"):
        assert stored(tmp_path / "out", name, "test") == stored(data_set / "out", name)[:5]
    assert not (tmp_path / "out/test/label.bin").exists()


def test_types_of_parquet(tmp_path):
    number = np.arange(ROWS)
    holes = [None if i % 7 == 0 else float(i % 20) for i in number]  # integers in pandas
    table = pa.table(
        {
            "click": number % 2 == 0,
            "yes": number % 3 == 0,
            "code": pa.array(holes),
            "price": pa.array(number / 3, pa.float32()),
            "text": pa.array([f"t{i % 3}" for i in number]).dictionary_encode(),
            "two": [[int(i % 5), 1] for i in number],
            "when": pa.array(number, pa.timestamp("s")),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    flags = ("--label=click", "--split_by_time=when", "--standardize=none")
    assert run(tmp_path / "log.parquet", *flags, output=tmp_path / "out") == 0
    spec = spec_of(tmp_path / "out")
    assert spec.channel("numerical") == ("price",)
    assert spec.channel("categorical") == ("yes", "code", "text", "two")
    assert spec.hotness("two") == 2
    assert stored(tmp_path / "out", "price", "train") == pytest.approx(number[:320] / 3, rel=1e-6)


def decimals(*texts, scale=0):
    return pa.array(map(decimal.Decimal, texts), pa.decimal128(38, scale))


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("grade", decimals(*[*"1234"] * 10), "categorical"),
        ("grade", decimals(*["1.0", "2.0"] * 20, scale=1), "categorical"),
        ("big_id", decimals(*(10**30 + i for i in range(40))), "categorical"),
        ("price_id", decimals(*(f"{i}.5" for i in range(40)), scale=1), "numerical"),
        ("user_id", [float("nan") if i % 5 == 0 else float(i) for i in range(40)], "categorical"),
        ("far_id", [1e20 + i for i in range(40)], "numerical"),
        ("half", pa.array(np.arange(40).astype(np.float16) / 2), "numerical"),
        ("half_id", pa.array(np.arange(40).astype(np.float16)), "categorical"),
        ("view", pa.array([*"ab"] * 20, pa.string_view()), "categorical"),
        ("bytes", pa.array([b"a", b"b"] * 20, pa.binary_view()), "categorical"),
        ("pair", [[1.0, float("nan")]] * 40, "categorical"),
        ("pair", [[1.5, 2.0]] * 40, "lists of double"),
        ("days", [[datetime.date(2026, 1, 1)]] * 40, "lists of date32[day]"),
        ("deep", [[[1, 2], [3]]] * 40, "lists of list<"),
        ("structs", [[{"a": 1}]] * 40, "lists of struct<"),
    ],
)
def test_inferred_parquet_types(name, values, expected, tmp_path, capsys):
    """Inferred columns can be encoded, and other columns are left out."""
    table = pa.table({"label": [0, 1] * 20, "city": [*"ab"] * 20, name: values})
    pq.write_table(table, tmp_path / "a.parquet")
    assert run(tmp_path / "a.parquet", "--label=label", output=tmp_path / "out") == 0
    channels = spec_of(tmp_path / "out").channel_spec
    channel = next((key for key, names in channels.items() if name in names), None)
    if channel is None:
        assert f"# left out: {name} ({expected}" in capsys.readouterr().out
    else:
        assert channel == expected


def test_whole_decimals_and_nan_as_text(tmp_path):
    columns = {
        "label": [0, 1] * 20,
        "grade": decimals(*["7.00", "12345678901234567890.00"] * 20, scale=2),
        "shop_id": [float("nan"), 3.0] * 20,
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert run(tmp_path / "a.parquet", "--label=label", output=tmp_path / "out") == 0
    lines = (tmp_path / "out/vocabulary/grade.tsv").read_text().splitlines()
    assert lines == ["12345678901234567890\t20", "7\t20"]
    assert (tmp_path / "out/vocabulary/shop_id.tsv").read_text() == "3\t20\n"
    assert stored(tmp_path / "out", "shop_id")[:4] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"label,city\n1,Bern\n0,Z\xfcrich\n", r"column 'city': found b'Z\xfcrich' in"),
        ("a.csv", b"label,\xe9t\xe9\n1,2\n", r"the header: expected UTF-8 text, got"),
        ("a.csv", "label,city\n1,Bern\n".encode("utf-16-le"), "the header: .* got a NUL byte"),
        ("a.parquet", [b"a", b"b", b"\xff"], r"column 'city': found b'\xff' in row 3 .*UTF-8"),
        ("a.parquet", [[b"a"], [b"b"], [b"\xff"]], r"'city': found b'\xff' in row 3"),
    ],
)
def test_text_that_is_not_utf8(name, content, message, tmp_path, capsys):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(pa.table({"label": [0, 1, 0], "city": content}), path)
    assert run(path, "--label=label", output=tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and re.search(message.replace("\\x", "\\\\x"), error), error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--label is missing: expected the column .* to predict, one of bought, city"),
        (["--label=bougt"], "--label bougt: expected a column of .*did you mean 'bought'"),
        (["--label=bought", "--drop=bought"], "--label and --drop both name 'bought'"),
        (["--label=bought"], "'price': found no value in row 1 .*--fill_missing"),
        (["--label=paid", "--fill_missing=0"], "labels are 0 or 1"),
        (["--label=bought", "--numerical=city", "--fill_missing=0"], "'city': found 'Bern' in"),
        (["--user=user_id"], "give both, and no --label"),
        (["--label=bought", "--feature_spec_in=a.yaml"], "--feature_spec_in is for a folder"),
        (["--label=bought", "--vocabulary={out}"], "--label and --vocabulary"),
    ],
)
def test_errors_of_the_user(flags, message, data_set, tmp_path, capsys):
    flags = [flag.format(out=data_set / "out") for flag in flags]
    capsys.readouterr()
    assert run(data_set / "shop.csv", *flags, output=tmp_path / "new") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "new").exists()


def test_invalid_files(data_set, tmp_path, capsys):
    for name, text, message in (
        ("a.txt", "a,b\n", "expected a folder with a feature spec, or a file that ends in .csv"),
        ("a.csv", "", "expected a first line that names the columns"),
        ("b.csv", "y,y\n1,2\n", "expected columns with different names, got y twice"),
        ("c.csv", "y,x\n", "has no rows"),
    ):
        (tmp_path / name).write_text(text)
        assert run(tmp_path / name, "--label=y", output=tmp_path / "out") == 2
        assert message in capsys.readouterr().err
    assert run(tmp_path, "--label=y", output=tmp_path / "out") == 2
    assert "--label describes a column of a file" in capsys.readouterr().err
    assert run(data_set / "shop.csv", "--label=bought", "--overwrite", output=data_set) == 2
    capsys.readouterr()
