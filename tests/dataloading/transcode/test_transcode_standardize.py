"""--standardize: mean and standard deviation of train, and the same values for new rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.dataloading.transcode.test_transcode import (
    SPEC,
    changed,
    parquet_spec,
    raw,
    refused,
    run,
    stored,
)
from tests.dataloading.transcode.test_transcode_missing import metadata, split_spec

# price: mean 4, standard deviation sqrt(8 / 3); age: constant.
ROWS = "1,2,0.1,5,0\n0,4,0.1,3,2\n0,6,0.1,0,1\n"
DEVIATION = np.sqrt(8 / 3)


def standardized(values, mean, deviation, dtype="float32"):
    return [float(np.dtype(dtype).type((value - mean) / deviation)) for value in values]


def log(path, prices, labels=None):
    """A CSV or Parquet file of `bought` and `price`."""
    labels = np.arange(len(prices)) % 2 if labels is None else labels
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"bought": labels, "price": prices}), path)
    else:
        lines = [f"{label},{price!r}" for label, price in zip(labels, prices, strict=True)]
        path.write_text("\n".join(["bought,price", *lines]) + "\n")
    return path


def test_values_by_hand(tmp_path, capsys):
    """float16 is rounded once, from float64; a constant feature becomes 0."""
    folder, out = raw(tmp_path, a=ROWS), tmp_path / "out"
    assert run(folder, "--standardize=all") == 0
    assert stored(out, "price") == standardized([2, 4, 6], 4, DEVIATION, "float16")
    assert stored(out, "age") == [0, 0, 0]
    assert stored(out, "user") == [5, 3, 0]
    scales = metadata(out)["standardize"]
    assert scales["price"] == {"mean": 4, "standard_deviation": pytest.approx(DEVIATION, 1e-15)}
    assert scales["age"] == {"mean": 0.1, "standard_deviation": 0}
    output = capsys.readouterr().out
    assert "price: standardized, mean 4, standard deviation 1.63299" in output
    assert "age: standardized, mean 0.1, standard deviation 0" in output


def test_one_of_two_features_of_one_file(tmp_path, capsys):
    spec = changed(feature_spec={"age": {}})  # both float16, in one file
    rows = "1,100000,1,5,0\n0,100001,2049.3,3,2\n0,100002,3,0,1\n"  # float16 holds no 100000
    folder, out = raw(tmp_path, spec, a=rows), tmp_path / "out"
    assert run(folder, "--standardize=price") == 0
    assert stored(out, "price") == standardized([0, 1, 2], 1, np.sqrt(2 / 3), "float16")
    assert stored(out, "age") == [1, float(np.float16(2049.3)), 3]
    assert list(metadata(out)["standardize"]) == ["price"]
    assert "warning: age: the mean or standard deviation" in (output := capsys.readouterr().out)
    assert output.count("--standardize price,age\n") == 1, "keeps the features of this run"


def test_stability_of_streamed_statistics(tmp_path):
    """A small deviation around a large mean, over blocks of 7 rows."""
    prices = [1e9 + i % 3 for i in range(300)]
    path = log(tmp_path / "log.csv", prices)
    flags = ("--label=bought", "--numerical=price", "--chunk_size=7")
    assert run(path, *flags, output=tmp_path / "out") == 0
    scale = metadata(tmp_path / "out")["standardize"]["price"]
    assert scale["mean"] == 1e9 + 1
    assert scale["standard_deviation"] == pytest.approx(np.sqrt(2 / 3), rel=1e-12)


@pytest.mark.parametrize(("how", "filled"), [("mean", 4), ("10", 10)])
def test_missing_values(how, filled, tmp_path):
    """The statistics are those of present values; a fill value is in the units of the feature."""
    rows = ROWS + "1,,0.2,1,1\n"
    folder, out = raw(tmp_path, a=rows), tmp_path / "out"
    flags = (f"--fill_missing={how}", "--missing_indicator", "--standardize=price")
    assert run(folder, *flags) == 0
    assert stored(out, "price") == standardized([2, 4, 6, filled], 4, DEVIATION, "float16")
    assert stored(out, "price_missing") == [0, 0, 0, 1]
    assert metadata(out)["fill_missing"]["price"] == filled


def test_mean_beyond_its_dtype(tmp_path):
    rows = "1,0.1,,5,0\n0,0.2,1,3,2\n0,,3,0,1\n0,0.7,3,0,1\n"
    folder, out = raw(tmp_path / "a", a=rows), tmp_path / "a/out"
    assert run(folder, "--fill_missing=mean", "--standardize=all") == 0
    assert stored(out, "price")[2] == 0 and stored(out, "age")[0] == 0
    assert run(folder, f"--vocabulary={out}", output=tmp_path / "b") == 0
    assert stored(tmp_path / "b", "price") == stored(out, "price")


def test_training_statistics_in_new_rows(tmp_path, capsys):
    folder, out = raw(tmp_path / "a", a=ROWS), tmp_path / "a/out"
    assert run(folder, "--standardize=price") == 0
    later = raw(tmp_path / "b", a="1,6,7,5,0\n0,100,9,3,2\n")
    assert run(later, f"--vocabulary={out}") == 0
    data_set = later / "out"
    assert stored(data_set, "price") == standardized([6, 100], 4, DEVIATION, "float16")
    assert stored(data_set, "age") == [7, 9]
    assert metadata(data_set)["standardize"] == metadata(out)["standardize"]
    assert run(later, f"--vocabulary={data_set}", output=tmp_path / "again") == 0
    assert stored(tmp_path / "again", "price") == stored(data_set, "price")
    capsys.readouterr()
    assert run(later, f"--vocabulary={out}", "--standardize=all", output=tmp_path / "c") == 2
    assert "--standardize and --vocabulary" in capsys.readouterr().err


def test_statistics_without_test_rows(tmp_path):
    chunk = SPEC["source_spec"]["train"][0]
    spec = changed(source_spec={"test": [{**chunk, "files": ["b"]}], "train": [chunk]})
    folder, out = raw(tmp_path, spec, a=ROWS, b="0,1000,7,1,0\n"), tmp_path / "out"
    assert run(folder, "--standardize=price") == 0
    assert metadata(out)["standardize"]["price"]["mean"] == 4
    assert stored(out, "price", "test") == standardized([1000], 4, DEVIATION, "float16")


def test_statistics_of_the_training_part(tmp_path):
    rows = [f"{i % 2},{i},1,{i},0\n" for i in range(200)]
    folder, out = raw(tmp_path, a="".join(rows)), tmp_path / "out"
    assert run(folder, "--standardize=price", "--split=0.5,0,0.5") == 0
    trained = stored(out, "user")
    scale = metadata(out)["standardize"]["price"]
    assert scale["mean"] == pytest.approx(np.mean(trained), rel=1e-14)
    assert scale["standard_deviation"] == pytest.approx(np.std(trained), rel=1e-14)


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_default_for_columns_of_one_file(name, tmp_path, capsys):
    prices = [1000.5, 2000.5, 6000.5]
    path = log(tmp_path / name, prices)
    assert run(path, "--label=bought", output=tmp_path / "a") == 0
    assert stored(tmp_path / "a", "price") == pytest.approx(
        standardized(prices, np.mean(prices), np.std(prices)), rel=1e-6
    )
    assert "warning" not in capsys.readouterr().out
    assert run(path, "--label=bought", "--standardize=none", output=tmp_path / "b") == 0
    assert stored(tmp_path / "b", "price") == prices and "standardize" not in metadata(
        tmp_path / "b"
    )


def test_default_for_a_feature_spec(tmp_path, capsys):
    """A warning names the features of large values in train; test does not count."""
    rows = "1,2,70000,5,0\n0,3,-70000,3,2\n"
    folder = raw(tmp_path, split_spec(), a=rows, b="0,900,1,1,0\n")
    assert run(folder) == 0
    assert stored(tmp_path / "out", "age") == [70000, -70000]
    lines = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(lines) == 1 and "--standardize age" in lines[0] and "price" not in lines[0]
    assert run(folder, f"--vocabulary={tmp_path / 'out'}", output=tmp_path / "new") == 0
    assert "--standardize" not in capsys.readouterr().out, "new rows are encoded as they must be"


def test_lists_of_parquet(tmp_path):
    table = pa.table({"click": [0, 1], "z": [[1.0, 3.0], [5.0, None]]})
    spec = parquet_spec(z={"dtype": "float64", "hotness": 2})
    spec["channel_spec"] = {"label": ["click"], "numerical": ["z"]}
    folder, out = raw(tmp_path, spec, a=table), tmp_path / "out"
    assert run(folder, "--standardize=z", "--fill_missing=mean") == 0
    (low, middle), (high, filled) = stored(out, "z")
    assert (middle, filled) == (0, 0)
    assert high == -low == pytest.approx(2 / DEVIATION, rel=1e-15)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--standardize=prize"], "--standardize names 'prize'; .*did you mean 'price'"),
        (["--standardize=user"], "numerical features of .* are price, age"),
        (["--standardize=price,price"], "--standardize names 'price' twice"),
        (["--standardize="], "--standardize names ''"),
    ],
)
def test_bad_names(flags, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, a=ROWS), *flags)


def test_mean_without_values(tmp_path, capsys):
    folder = raw(tmp_path, a="1,,3,4,0\n")
    flags = ("--fill_missing=0", "--standardize=all")
    refused(capsys, "--standardize price: .* no value in 'train'", folder, *flags)


def test_standardized_value_beyond_its_dtype(tmp_path, capsys):
    folder = raw(tmp_path / "a", a=ROWS)
    assert run(folder, "--standardize=price") == 0
    later = raw(tmp_path / "b", a="1,6,7,5,0\n0,1e9,9,3,2\n")
    message = "'price': .*row 2 of 'train'.* expected .*float16 .*65504"
    refused(capsys, message, later, f"--vocabulary={folder / 'out'}")


def test_damaged_statistics(tmp_path, capsys):
    folder, out = raw(tmp_path, a=ROWS), tmp_path / "out"
    assert run(folder, "--standardize=price") == 0
    file = out / "feature_spec.yaml"
    text = file.read_text()
    for good, bad in (("mean: 4.0", "mean: four"), ("mean: 4.0", "mean: .nan")):
        assert good in text
        file.write_text(text.replace(good, bad))
        assert run(folder, f"--vocabulary={out}", output=tmp_path / "new") == 2
        assert "metadata: 'standardize'" in capsys.readouterr().err
