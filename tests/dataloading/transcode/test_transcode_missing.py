"""--fill_missing and --missing_indicator: statistics of train, and the same values for new rows."""

import numpy as np
import pyarrow as pa
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from tests.dataloading.transcode.test_transcode import (
    SPEC,
    changed,
    parquet_spec,
    raw,
    refused,
    run,
    stored,
)

# price, age: 2 and 4, and 30 have values in train.
ROWS = "1,2,,5,0\n0,,30,3,2\n0,4,,0,1\n"
TEST = "0,,,5,0\n1,90,50,3,2\n"


def split_spec():
    chunk = SPEC["source_spec"]["train"][0]
    return changed(source_spec={"train": [chunk], "test": [{**chunk, "files": ["b"]}]})


def metadata(out):
    return FeatureSpec.from_yaml(out / "feature_spec.yaml").metadata["transcode"]


@pytest.mark.parametrize(
    ("how", "price", "age"),
    [
        ("mean", 3, 30),
        ("0", 0, 0),
        ("-1.5", -1.5, -1.5),
        ("price=mean,age=7", 3, 7),
        ("mean,age=7", 3, 7),
    ],
)
def test_values_by_hand(how, price, age, tmp_path, capsys):
    folder, out = raw(tmp_path, split_spec(), a=ROWS, b=TEST), tmp_path / "out"
    assert run(folder, f"--fill_missing={how}") == 0
    assert stored(out, "price") == [2, price, 4]
    assert stored(out, "age") == [age, 30, age]
    assert stored(out, "price", "test") == [price, 90], "the mean is that of train"
    assert stored(out, "age", "test") == [age, 50]
    assert metadata(out)["fill_missing"] == {"price": price, "age": age}
    output = capsys.readouterr().out
    assert f"price: {price:g} replaces missing values, 33.33% of train, 50.00% of test" in output


def test_order_of_indicators(tmp_path):
    """Only of a feature that misses values in train; in files of several dtypes."""
    lines = "1,2,3,4,0\n0,,3,4,1\n"
    folder = raw(tmp_path, split_spec(), a=lines, b=TEST)
    assert run(folder, "--fill_missing=mean", "--missing_indicator") == 0
    out = tmp_path / "out"
    spec = FeatureSpec.from_yaml(out / "feature_spec.yaml")
    assert spec.channel("numerical") == ("price", "price_missing", "age")
    assert stored(out, "price_missing") == [0, 1]
    assert stored(out, "price_missing", "test") == [1, 0]
    assert stored(out, "age", "test") == [3, 50]


def test_training_values_in_new_rows(tmp_path, capsys):
    folder = raw(tmp_path / "a", split_spec(), a=ROWS, b=TEST)
    assert run(folder, "--fill_missing=mean", "--missing_indicator") == 0
    later = raw(tmp_path / "b", a="1,,,5,0\n0,8,9,3,2\n")
    assert run(later, f"--vocabulary={folder / 'out'}") == 0
    out = later / "out"
    assert stored(out, "price") == [3, 8] and stored(out, "age") == [30, 9]
    assert stored(out, "price_missing") == [1, 0] and stored(out, "age_missing") == [1, 0]
    known, data_set = (
        FeatureSpec.from_yaml(f / "feature_spec.yaml") for f in (folder / "out", out)
    )
    assert data_set.channel_spec == known.channel_spec
    assert metadata(out)["fill_missing"] == metadata(folder / "out")["fill_missing"]
    assert run(later, f"--vocabulary={out}", output=tmp_path / "again") == 0
    assert stored(tmp_path / "again", "price_missing") == [1, 0]
    for flag in ("--fill_missing=0", "--missing_indicator"):
        capsys.readouterr()
        assert run(later, f"--vocabulary={out}", flag, output=tmp_path / "new") == 2
        assert "--vocabulary" in capsys.readouterr().err


def test_parquet_with_nan_null_and_lists(tmp_path):
    table = pa.table(
        {
            "click": [0, 1, 0],
            "x": pa.array([1.0, np.nan, None]),
            "y": pa.array([None, None, 4], pa.int32()),
            "z": [[1.0, None], [3.0, 5.0], [np.nan, 7.0]],
        }
    )
    numericals = {"x": {"dtype": "float32"}, "y": {"dtype": "float32"}}
    spec = parquet_spec(**numericals, z={"dtype": "float64", "hotness": 2})
    spec["channel_spec"] = {"label": ["click"], "numerical": ["x", "y", "z"]}
    folder = raw(tmp_path, spec, a=table)
    assert run(folder, "--fill_missing=mean", "--missing_indicator") == 0
    out = tmp_path / "out"
    assert stored(out, "x") == [1, 1, 1] and stored(out, "y") == [4, 4, 4]
    assert stored(out, "z") == [[1, 4], [3, 5], [4, 7]]
    assert stored(out, "z_missing") == [[0, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "'price': found no value in row 2 .*--fill_missing mean"),
        (["--fill_missing=age=0"], "'price': found no value in row 2"),
        (["--fill_missing=median"], "expected 'mean' or a finite number, got 'median'"),
        (["--fill_missing=prize=0"], "has 'prize=0'; .*did you mean 'price'"),
        (["--fill_missing=price=0,price=1"], "has 'price=1'; .*each feature once"),
        (["--fill_missing=user=0"], "numerical features of .* are price, age"),
        (["--fill_missing=nan"], "got 'nan'"),
        (["--fill_missing=price=1e9,age=0"], "expected a value that float16 holds"),
        (["--missing_indicator"], "expected both flags"),
    ],
)
def test_bad_fills(flags, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, a=ROWS), *flags)


def test_mean_without_values(tmp_path, capsys):
    folder = raw(tmp_path, a="1,,3,4,0\n")
    refused(capsys, "price=mean: the feature has no value in", folder, "--fill_missing=mean")


def test_numbers_beyond_float32(tmp_path, capsys):
    """A standardized feature is read as float64, but a model gets float32."""
    message = r"'price': found 1e\+39 in row 1 .*; float32 holds up to 3.40282e\+38"
    refused(capsys, message, raw(tmp_path, a="1,1e39,3,4,0\n"), "--standardize=price")


def test_name_of_an_indicator(tmp_path, capsys):
    spec = changed(feature_spec={"price_missing": {}})
    chunk = spec["source_spec"]["train"][0]
    chunk = {**chunk, "features": [*chunk["features"], "price_missing"]}
    spec["source_spec"] = {"train": [chunk]}
    folder = raw(tmp_path, spec, a="1,,3,4,0,1\n1,5,3,4,0,1\n")
    refused(
        *(capsys, "is called 'price_missing', but .* has a feature of that name", folder),
        *("--fill_missing=mean", "--missing_indicator"),
    )
