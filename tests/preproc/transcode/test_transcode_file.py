"""Tables without a feature spec: inferred channels of their columns, files of all kinds."""

import contextlib
import datetime
import decimal
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from tests.preproc.transcode.test_transcode import run, stored

ROWS = 300
PAID = 3 * np.random.default_rng(1).permutation(ROWS)


def columns():
    """Columns of all kinds, with the channel that each is to be in; None: left out."""
    number = np.arange(ROWS)
    return {
        "bought": (np.random.default_rng(0).integers(0, 2, ROWS), "label"),
        "city": (np.where(number % 9, "Bern", ""), "categorical"),
        "user_id": (number // 2 * 7, "categorical"),
        "shop id": (number // 2, "categorical"),
        "paid": (PAID, "numerical"),
        "grade": (number % 12, "categorical"),
        "points": (number % 41, "numerical"),
        "price": ([f"{i / 7:.3f}" if i % 5 else "NA" for i in number], "numerical"),
        "zip": ([f"0{i % 90 + 10}" for i in number], "categorical"),
        "card": ([f"{10**17 + i // 2}" for i in number], "categorical"),
        "tags": ([f"{'ab'[i % 3 % 2]};{'cd'[i % 2]}" for i in number], "categorical"),
        "ids": ([json.dumps([int(i) % 7, 3][: 1 + i % 2]) for i in number], "categorical"),
        "remark": (["a;b" if i % 250 == 7 else "c" for i in number], "categorical"),
        "empty": (["", "NULL"] * (ROWS // 2), None),
        "rare": (["x"] * (ROWS - 1) + ["7"], "categorical"),
        "": (number, None),
    }


def write(path):
    def line(values):
        return ",".join(f'"{value}"' if "," in value else value for value in map(str, values))

    rows = zip(*(values for values, _ in columns().values()), strict=True)
    path.write_text("\n".join(map(line, [[*columns()], *rows])) + "\n")
    return path


def spec_of(out):
    return FeatureSpec.from_yaml(out / "feature_spec.yaml")


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("file")
    with open(folder / "report", "w") as file, contextlib.redirect_stdout(file):
        assert run(write(folder / "shop.csv"), "--label=bought", output=folder / "out") == 0
    return folder


def test_channels_by_hand(data_set):
    spec = spec_of(data_set / "out")
    channels = {name: channel for channel, names in spec.channel_spec.items() for name in names}
    expected = {name: channel for name, (_, channel) in columns().items() if channel}
    assert channels == expected | {"price_missing": "numerical"}
    assert [spec.hotness(name) for name in ("tags", "ids", "remark")] == [2, 2, 1]
    assert stored(data_set / "out", "ids")[:3] == [[2, 0], [3, 1], [4, 0]]
    assert spec.feature_spec["paid"]["dtype"] == "float32"
    expected = (PAID - PAID.mean()) / PAID.std()
    assert stored(data_set / "out", "paid") == pytest.approx(expected, rel=1e-6)


def test_dates_of_all_formats(tmp_path, capsys):
    day = datetime.date(2024, 1, 1)
    days = [day + datetime.timedelta(i % 90) for i in range(ROWS)]
    table = pa.table({"y": [i % 2 for i in range(ROWS)], "city": ["Bern", "Bern", "Oslo"] * 100})
    typed = table.append_column("day", pa.array(days))
    typed = typed.append_column("at", pa.array(days).cast(pa.timestamp("ns")))
    pq.write_table(typed, tmp_path / "dates.parquet")
    with open(tmp_path / "dates.csv", "w") as file:
        print("y,city,day,at", file=file)
        for y, city, own in zip(*typed.drop(["at"]).to_pydict().values(), strict=True):
            print(f"{y},{city},{own},{own} 00:00:00", file=file)
    for kind in ("parquet", "csv"):
        assert run(tmp_path / f"dates.{kind}", "--label=y", output=tmp_path / kind) == 0
        assert spec_of(tmp_path / kind).channel_spec["categorical"] == ("city",)
        printed = capsys.readouterr().out
        assert ("write them as text" in printed) == (kind == "parquet")
        assert printed.count("has dates: it is left out") == 2


def test_parts_of_several_types(tmp_path, capsys):
    """The types of the first file do not decide: pandas writes those of the values of each."""
    columns = {"y": [0, 1], "x": [1, 2], "city": ["Bern", "Oslo"]}
    others = {"x": [1.5, None], "city": [None, None]}
    for order in (1, -1):
        folder = tmp_path / str(order)
        folder.mkdir()
        for i, own in enumerate([columns, columns | others, columns, columns | others][::order]):
            pq.write_table(pa.table(own), folder / f"{i}.parquet")
        flags = "--label=y", "--transform=none", "--fill_missing=9", "--numerical=x"
        out = tmp_path / f"out{order}"
        assert run(folder, *flags, "--no_missing_indicator", output=out) == 0
        expected = [[1, 2], [1.5, 9], [1, 2], [1.5, 9]][::order]
        assert stored(out, "x") == [x for part in expected for x in part]
        assert sorted(stored(out, "city")) == [0, 0, 0, 0, 1, 1, 2, 2]
    pq.write_table(pa.table(columns | {"city": [["Bern"], []]}), folder / "4.parquet")
    assert run(folder, "--label=y", output=tmp_path / "lists") == 2
    assert "4.parquet: column 'city' holds list" in capsys.readouterr().err


TABLE = pa.table(
    {"y": [1, 0, 1, 0], "city": ["Bern", "Oslo", "Bern", None], "x": [1.5, 2.0, None, 4.0]}
)


def write_lines(path):
    """JSON, in which missing values are spelled, and lines without a field mean nothing."""
    missing = {"x": "NULL", "city": "?"}
    rows = [
        {n: missing[n] if v is None else v for n, v in row.items()} for row in TABLE.to_pylist()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + " \n\t\n")


def write_partitions(path):
    for i, city in enumerate(["a=Bern", "b=Oslo", "c=Bern", "d=__HIVE_DEFAULT_PARTITION__"]):
        folder = path / city.replace(city[0], f"day={i}/city", 1)
        folder.mkdir(parents=True)
        pq.write_table(TABLE.drop_columns("city").slice(i, 1), folder / "part-0.parquet")


@pytest.mark.parametrize(
    ("name", "write_table", "flag"),
    [
        ("a.jsonl", write_lines, "--missing_values=?"),
        ("partitions", write_partitions, "--drop=day"),
    ],
)
def test_equal_output_of_all_files(name, write_table, flag, tmp_path):
    write_table(tmp_path / name)
    flags = ("--label=y", "--frequency_threshold=0", flag)
    assert run(tmp_path / name, *flags, output=tmp_path / "out") == 0
    channels = {"label": ("y",), "numerical": ("x", "x_missing"), "categorical": ("city",)}
    assert spec_of(tmp_path / "out").channel_spec == channels
    assert stored(tmp_path / "out", "x_missing") == [0, 0, 1, 0]
    assert stored(tmp_path / "out", "y") == [1, 0, 1, 0]
    assert stored(tmp_path / "out", "city") == [1, 2, 1, 0]
    values = np.array([1.5, 2, 4])
    expected = (np.array([1.5, 2, 2.5, 4]) - 2.5) / values.std()
    assert stored(tmp_path / "out", "x") == pytest.approx(expected, rel=1e-6)


def test_table_of_columns(data_set):
    output = (data_set / "report").read_text()
    assert re.search("price +numerical +numbers, 240 different +20.00% ", output)
    table = [line for line in output.splitlines() if re.search(" (label|numerical|categor)", line)]
    assert max(map(len, table)) <= 100
    assert re.search("user_id .*ids .*, by name", output)
    assert re.search("ids +categorical +lists of up to 2, 7 different", output)
    assert "\nleft out: empty (no value)\n" in output


def test_choices_of_the_user(data_set, capsys):
    path = data_set / "shop.csv"
    roles = ("--categorical=points,paid", "--numerical=grade,user_id", "--drop=card,zip")
    assert run(path, "--label=bought", *roles, "--fill_missing=0", output=data_set / "own") == 0
    spec = spec_of(data_set / "own")
    assert {"points", "paid"} <= set(spec.channel("categorical"))
    assert {"grade", "user_id"} <= set(spec.channel("numerical"))
    assert not {"card", "zip"} & set(spec.feature_spec)
    assert "\nleft out: card (--drop)\n" in capsys.readouterr().out


def test_more_rows_without_a_feature_spec(data_set, tmp_path, capsys):
    names = ["user_id", "price", "ids", "tags", "city", "zip"]  # any order; no label
    names += [name for name, (_, channel) in columns().items() if channel not in (None, "label")]
    names = [*dict.fromkeys(names)]
    table = pa.table({name: [str(v) for v in columns()[name][0][:5]] for name in names})
    pq.write_table(table, tmp_path / "new.parquet")
    known = f"--vocabulary={data_set / 'out'}"
    assert run(tmp_path / "new.parquet", known, output=tmp_path / "out") == 0
    for name in ("city", "tags", "ids", "price", "user_id"):
        assert stored(tmp_path / "out", name, "test") == stored(data_set / "out", name)[:5]
    assert not (tmp_path / "out/test/label.bin").exists()
    pq.write_table(table.rename_columns(["userid", *names[1:]]), tmp_path / "new.parquet")
    assert run(tmp_path / "new.parquet", known, output=tmp_path / "b") == 2
    assert re.search("'user_id' is missing, .*did you mean 'userid'", capsys.readouterr().err)
    pq.write_table(table.slice(0, 0), tmp_path / "new.parquet")
    assert run(tmp_path / "new.parquet", known, output=tmp_path / "b") == 2
    assert "no rows: add rows, or export the table again" in capsys.readouterr().err


def decimals(*texts, scale=0):
    return pa.array(map(decimal.Decimal, texts), pa.decimal128(38, scale))


# Columns of 40 rows; their channel, or the type of a column that is left out.
TYPES = {
    "grade": (decimals(*[*"1234"] * 10), "categorical"),
    "half_grade": (decimals(*["1.0", "2.0"] * 20, scale=1), "categorical"),
    "big_id": (decimals(*(10**30 + i for i in range(40))), "categorical"),
    "price_id": (decimals(*(f"{i}.5" for i in range(40)), scale=1), "numerical"),
    "user_id": ([float("nan") if i % 5 == 0 else float(i) for i in range(40)], "categorical"),
    "far_id": ([1e20 * (1 + i) for i in range(40)], "numerical"),
    "amount": ([10**15 - 1 - i for i in range(40)], "numerical"),
    # As in text files, numbers of 16 digits are ids.
    "hashed": (pa.array([(1 << 64) - 1 - i for i in range(40)], pa.uint64()), "categorical"),
    "below": ([i - (1 << 63) for i in range(40)], "categorical"),
    "float": ([None, *(1e15 + i for i in range(39))], "categorical"),
    "half": (pa.array(np.arange(40).astype(np.float16) / 2), "numerical"),
    "half_id": (pa.array(np.arange(40).astype(np.float16)), "categorical"),
    "view": (pa.array([*"ab"] * 20, pa.string_view()), "categorical"),
    "bytes": (pa.array([b"a", b"b"] * 20, pa.binary_view()), "categorical"),
    "yes": (pa.array([True, False] * 20), "categorical"),
    "dictionary": (pa.array([*"ab"] * 20).dictionary_encode(), "categorical"),
    "pair": ([[1.0, float("nan")]] * 40, "categorical"),
    "days": ([[datetime.date(2026, 1, 1)]] * 40, "lists of date"),
    "deep": ([[[1, 2], [3]]] * 40, "lists of array<"),
    "structs": ([[{"a": 1}]] * 40, "lists of struct<"),
    "struct": ([{"a": 1}] * 40, "struct<"),
    "day": ([datetime.date(2026, 1, 1)] * 40, "date"),
    "fractions": ([[1.5, 2.0]] * 40, "lists of float64"),
    "words": ([["a"], ["b", "c"]] * 20, "categorical"),
    "numbers": ([[1, 2], [3]] * 20, "categorical"),
    "small": (pa.array([*range(39), None], pa.uint8()), "numerical"),
    "nothing": (pa.nulls(40, pa.int32()), "no value"),
}


def test_inferred_parquet_types(tmp_path, capsys):
    """Inferred columns can be encoded, and other columns are left out."""
    table = pa.table(
        {"label": [0, 1] * 20, **{name: values for name, (values, _) in TYPES.items()}}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert run(tmp_path / "a.parquet", "--label=label", output=tmp_path / "out") == 0
    assert spec_of(tmp_path / "out").hotness("pair") == 2
    channels = spec_of(tmp_path / "out").channel_spec
    channel_of = {name: channel for channel, names in channels.items() for name in names}
    output = capsys.readouterr().out
    left_out = dict(re.findall(r"left out: (\w+) \((.*)\)", output))
    for name, (_, expected) in TYPES.items():
        if name in channel_of:
            assert channel_of[name] == expected, name
        else:
            assert left_out[name].startswith(expected), name


def test_invalid_texts_of_parquet(tmp_path, capsys):
    table = pa.table({"label": [0, 1, 0], "city": [b"a", b"b", b"\xff"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert run(tmp_path / "a.parquet", "--label=label", output=tmp_path / "out") == 2
    assert re.search("error: expected UTF-8 text: .*a.parquet.*xFF", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label=bought", "--numerical=rare"], "row 1 .*'rare': expected a number, got 'x'"),
        (["--label=bought", "--numerical=empty"], "'empty': expected a number in train, .*--drop"),
        (["--user=user_id"], "give both, and no --label"),
        (["--label=bought", "--feature_spec_in=a.yaml"], "--feature_spec_in: expected a folder"),
        (["--label=bought", "--vocabulary={out}"], "--label and --vocabulary"),
    ],
)
def test_errors_of_the_user(flags, message, data_set, tmp_path, capsys):
    flags = [flag.format(out=data_set / "out") for flag in flags]
    capsys.readouterr()
    assert run(data_set / "shop.csv", *flags, output=tmp_path / "new") == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not (tmp_path / "new").exists()


def test_folders_of_other_files(data_set, tmp_path, capsys):
    (tmp_path / "feature_spec.yaml").write_text("{}")
    assert run(tmp_path, "--label=y", output=tmp_path / "out") == 2
    assert "--label describes a column of a table without" in capsys.readouterr().err
    assert run(data_set / "shop.csv", "--label=bought", "--overwrite", output=data_set) == 2
    assert "expected a folder apart from the input" in capsys.readouterr().err


def test_remedies_of_near_numbers(tmp_path, capsys):
    """The error names the texts that are not numbers; each of its solutions works."""
    rows = [f"{i / 7:.3f},{i % 2}" for i in range(100)] + ["?,0"]
    path = tmp_path / "shop.csv"
    path.write_text("\n".join(["price,bought", *rows]) + "\n")
    assert run(path, "--label=bought", output=tmp_path / "x") == 2
    error = capsys.readouterr().err
    assert "row 101 (" in error and "but not '?'" in error
    for number, (remedy, channel, names) in enumerate(
        (
            ("--missing_values=?", "numerical", ("price", "price_missing")),
            ("--categorical=price", "categorical", ("price",)),
        )
    ):
        assert remedy.partition("=")[0] in error
        assert run(path, "--label=bought", remedy, output=tmp_path / str(number)) == 0
        assert spec_of(tmp_path / str(number)).channel_spec[channel] == names


def test_rows_sorted_by_label(tmp_path, capsys):
    """A warning names the flag that divides the rows, which helps."""
    path = tmp_path / "a.csv"
    rows = [f"{number % 7 / 3:.2f},{int(number >= 380)}" for number in range(400)]
    path.write_text("\n".join(["price,bought", *rows]) + "\n")
    assert run(path, "--label=bought", output=tmp_path / "sorted") == 0
    text = capsys.readouterr().out
    assert "warning: share of bought=1 in the last tenth of the rows 0.5000, before 0.0000" in text
    flags = re.search(r"--split \S+", text)[0].split()
    assert run(path, "--label=bought", *flags, output=tmp_path / "divided") == 0
    assert "warning" not in capsys.readouterr().out
