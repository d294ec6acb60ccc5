"""--fill_missing, --missing_indicator and --transform: statistics of train, for new rows too."""

import math
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.fitting import continuous
from preproc.transcode.per_feature import parse_fill, parse_transform
from tests.preproc.transcode.test_transcode import (
    SPEC,
    changed,
    parquet_spec,
    raw,
    refused,
    run,
    stored,
)

# price, age: 2 and 4, and 30 have values in train.
HOLES = "1,2,,5,0\n0,,30,3,2\n0,4,,0,1\n"
TEST = "0,,,5,0\n1,90,50,3,2\n"
# price: mean 4, standard deviation sqrt(8 / 3); age: constant.
ROWS = "1,2,0.1,5,0\n0,4,0.1,3,2\n0,6,0.1,0,1\n"
DEVIATION = np.sqrt(8 / 3)


def split_spec():
    chunk = SPEC["source_spec"]["train"][0]
    return changed(source_spec={"train": [chunk], "test": [{**chunk, "files": ["b"]}]})


def encoder_of(out):
    return Encoder.load(out / "encoder")


def standardized(values, mean, deviation, dtype="float16"):
    scaled = ((np.array(values) - mean) / deviation).astype(dtype).astype(float)
    return pytest.approx(scaled.tolist(), rel=1e-7)


@pytest.mark.parametrize(("how", "price", "age"), [("mean", 3, 30), ("mean,age=7", 3, 7)])
def test_fill_values_by_hand(how, price, age, tmp_path, capsys):
    folder, out = raw(tmp_path, split_spec(), a=HOLES, b=TEST), tmp_path / "out"
    assert run(folder, f"--fill_missing={how}") == 0
    assert stored(out, "price") == [2, price, 4]
    assert stored(out, "age") == [age, 30, age]
    assert stored(out, "price", "test") == [price, 90], "the mean is that of train"
    assert stored(out, "age", "test") == [age, 50]
    assert [encoder_of(out)[name].fill for name in ("price", "age")] == [price, age]
    output = capsys.readouterr().out
    assert "  33.33%  " in output


def test_indicators(tmp_path):
    """Only of a feature that misses values in train; in files of several dtypes; in new rows."""
    folder = raw(tmp_path, split_spec(), a="1,2,3,4,0\n0,,3,4,1\n", b=TEST)
    assert run(folder, "--fill_missing=mean", "--missing_indicator") == 0
    out = tmp_path / "out"
    spec = FeatureSpec.from_yaml(out / "feature_spec.yaml")
    assert spec.channel("numerical") == ("price", "price_missing", "age")
    assert stored(out, "price_missing") == [0, 1]
    assert stored(out, "price_missing", "test") == [1, 0]
    assert stored(out, "age", "test") == [3, 50]
    later = raw(tmp_path / "later", a="1,,,5,0\n0,8,9,3,2\n")
    assert run(later, f"--vocabulary={out}") == 0
    assert stored(later / "out", "price") == [2, 8] and stored(later / "out", "age") == [3, 9]
    assert stored(later / "out", "price_missing") == [1, 0]
    data_set = FeatureSpec.from_yaml(later / "out/feature_spec.yaml")
    assert data_set.channel_spec == spec.channel_spec
    assert encoder_of(later / "out").digest == encoder_of(out).digest


def test_indicators_of_a_table(tmp_path, capsys):
    """By default, but not next to a column of that name; `--no_missing_indicator` has none."""
    path = tmp_path / "a.csv"
    rows = "1,1.5,,1.5\n0,,2.5,0.5\n0,2.5,,1.5\n1,,3.5,0.5\n"
    path.write_text("y,x,z,z_missing\n" + rows * 25)
    assert run(path, "--label=y", output=tmp_path / "out") == 0
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert spec.channel("numerical") == ("x", "x_missing", "z", "z_missing")
    assert stored(tmp_path / "out", "x_missing") == [0, 1, 0, 1] * 25
    profile = encoder_of(tmp_path / "out").profile
    assert profile["x"].values == (1.5, 2.5) and profile["z_missing"].values == (0.5, 1.5)
    flags = ("--label=y", "--no_missing_indicator")
    assert run(path, *flags, output=tmp_path / "none") == 0
    spec = FeatureSpec.from_yaml(tmp_path / "none/feature_spec.yaml")
    assert spec.channel("numerical") == ("x", "z", "z_missing")
    assert run(path, *flags, "--missing_indicator", output=tmp_path / "x") == 2
    assert "--no_missing_indicator marks" in capsys.readouterr().err


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
    folder, out = raw(tmp_path, spec, a=table), tmp_path / "out"
    assert run(folder, "--fill_missing=mean", "--missing_indicator") == 0
    assert stored(out, "x") == [1, 1, 1] and stored(out, "y") == [4, 4, 4]
    assert stored(out, "z") == [[1, 4], [3, 5], [4, 7]]
    assert stored(out, "z_missing") == [[0, 1], [0, 0], [1, 0]]
    again = ("--fill_missing=mean", "--transform=z=standardize")
    assert run(folder, *again, output=tmp_path / "scaled") == 0
    scaled = np.array([[1, 4], [3, 5], [4, 7]]) - 4
    np.testing.assert_allclose(stored(tmp_path / "scaled", "z"), scaled / math.sqrt(5), rtol=1e-8)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fill_missing=age=0"], "'price': expected a value: .*got no value"),
        (["--fill_missing=price=1e9,age=0"], "'price': expected a number that float16 holds"),
        (["--transform=log", "--vocabulary=d"], "--transform and --vocabulary: the encoding is"),
        (["--missing_indicator"], "marks filled values: expected --fill_missing"),
        (["--fill_missing=median"], "expected 'mean' or a finite number, got 'median'"),
        (["--transform=logs"], "--transform is 'logs': expected auto, .*did you mean 'log'"),
    ],
)
def test_bad_flags(flags, message, tmp_path, capsys):
    refused(capsys, message, raw(tmp_path, a=HOLES), *flags)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_fill, "prize=0", "has 'prize=0'; .*did you mean 'price'"),
        (parse_fill, "price=0,price=1", "has 'price=1'; .*each feature once"),
        (parse_fill, "user=0", "numerical features of raw are price, age"),
        (parse_fill, "nan", "got 'nan'"),
        (parse_fill, "", "got ''"),
        (parse_transform, "prize=log", "--transform has 'prize=log'; .*did you mean 'price'"),
        (parse_transform, "price=log,price=bins", "each feature once"),
        (parse_transform, "log,bins", "has 'bins'; expected one value for all"),
        (parse_transform, "price=", "got ''"),
    ],
)
def test_bad_settings_of_features(parse, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, ("price", "age"), "raw")


def test_columns_without_values_and_names_of_indicators(tmp_path, capsys):
    folder = raw(tmp_path / "a", a="1,,3,4,0\n0,,3,4,0\n")
    for flag in ("--fill_missing=mean", "--transform=standardize"):
        refused(capsys, "'price': expected a number in train, got missing", folder, flag)
    spec = changed(feature_spec={"price_missing": {}})
    chunk = spec["source_spec"]["train"][0]
    chunk = {**chunk, "features": [*chunk["features"], "price_missing"]}
    spec["source_spec"] = {"train": [chunk]}
    folder = raw(tmp_path / "b", spec, a="1,,3,4,0,1\n0,5,3,4,0,1\n")
    refused(
        *(capsys, "is called 'price_missing', but .* has a feature of that name", folder),
        *("--fill_missing=mean", "--missing_indicator"),
    )


def test_standardized_values_by_hand(tmp_path):
    """float16 is rounded once, from float64; a constant feature becomes 0; a fill value is in the
    units of the feature; large values do not matter."""
    rows = ROWS + "1,,0.1,1,1\n"
    folder, out = raw(tmp_path, a=rows), tmp_path / "out"
    flags = ("--transform=standardize", "--fill_missing=10", "--missing_indicator")
    assert run(folder, *flags) == 0
    assert stored(out, "price") == standardized([2, 4, 6, 10], 4, DEVIATION)
    assert stored(out, "price_missing") == [0, 0, 0, 1]
    assert stored(out, "age") == [0] * 4
    assert stored(out, "user") == [5, 3, 0, 1]
    price, age = (encoder_of(out)[name] for name in ("price", "age"))
    assert (price.mean, age.mean, age.deviation) == (4, 0.1, 0)
    assert price.deviation == pytest.approx(DEVIATION, rel=1e-8)


def test_one_of_two_features_of_one_file(tmp_path, capsys):
    spec = changed(feature_spec={"age": {}})  # both float16, in one file
    rows = "1,100000,1,5,0\n0,100001,2049.3,3,2\n0,100002,3,0,1\n"  # float16 holds no 100000
    folder, out = raw(tmp_path, spec, a=rows), tmp_path / "out"
    assert run(folder, "--transform=price=standardize") == 0
    assert stored(out, "price") == standardized([0, 1, 2], 1, np.sqrt(2 / 3))
    assert stored(out, "age") == [1, float(np.float16(2049.3)), 3]
    assert encoder_of(out)["age"].transformation == "none"
    assert "warning: 'age': mean or standard deviation above 100" in capsys.readouterr().out


def test_statistics_of_the_training_part(tmp_path):
    rows = [f"{i % 2},{i},1,{i},0\n" for i in range(200)]
    folder, out = raw(tmp_path, a="".join(rows)), tmp_path / "out"
    assert run(folder, "--transform=price=standardize", "--split=0.5,0,0.5") == 0
    trained, price = stored(out, "user"), encoder_of(out)["price"]
    assert 60 < len(trained) < 140
    assert price.mean == pytest.approx(np.mean(trained), rel=1e-7)
    assert price.deviation == pytest.approx(np.std(trained), rel=1e-7)


def test_log_quantiles_and_bins(tmp_path):
    """One column by each transformation; missing values are 0 in bins and the mean elsewhere."""
    values = [*range(100), 900]
    names = ("log", "quantile", "bins")
    rows = [f"{i % 2},{v},{v},{v}" for i, v in enumerate(values)] + ["1,,,"]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([f"y,{','.join(names)}", *rows]) + "\n")
    flags = [f"--numerical={','.join(names)}", "--label=y"]
    flags.append(f"--transform={','.join(f'{name}={name}' for name in names)}")
    assert run(path, *flags, output=tmp_path / "out") == 0
    out, mean = tmp_path / "out", np.mean(values)
    logs = np.log1p(values)
    expected = (np.log1p([*values, mean]) - logs.mean()) / logs.std()
    assert stored(out, "log") == pytest.approx(expected, rel=1e-6)
    scores = stored(out, "quantile")
    assert scores[50] == pytest.approx(0, abs=1e-6)
    assert scores[75] == pytest.approx(NormalDist().inv_cdf(0.75), rel=1e-6)
    assert scores[0] == -scores[100] == pytest.approx(NormalDist().inv_cdf(0.5 / 101), rel=1e-6)
    assert scores[57] < scores[101] < scores[58], "the mean, 57.92"
    bins = stored(out, "bins")
    assert bins[-1] == 0 and bins[0] == 1 and bins[:-1] == sorted(bins[:-1])
    assert max(bins) == 64 and set(bins) == {*range(65)}
    spec = FeatureSpec.from_yaml(out / "feature_spec.yaml")
    assert spec.channel("numerical") == ("log", "log_missing", "quantile", "quantile_missing")
    assert spec.channel("categorical") == ("bins",) and spec.cardinality("bins") == 65
    assert run(path, f"--vocabulary={out}", output=tmp_path / "new") == 0
    assert stored(tmp_path / "new", "bins", "test") == bins


def test_numbers_without_train(tmp_path, capsys):
    """Fill values do not need it, statistics do."""
    spec = changed(source_spec={"test": SPEC["source_spec"]["train"]})
    del spec["source_spec"]["train"]
    folder = raw(tmp_path, spec, a=HOLES)
    for flag in ("--fill_missing=mean", "--transform=log"):
        refused(capsys, "follows from the values of the split 'train'; .* has test", folder, flag)
    assert run(folder, "--fill_missing=7") == 0
    assert stored(tmp_path / "out", "price", "test") == [2, 7, 4]


def test_large_tables_of_fractions(tmp_path, monkeypatch):
    """Mean and deviation are those of all rows, quantiles those of a sample."""
    monkeypatch.setattr(continuous, "SAMPLE_ROWS", 500)
    prices, ages = np.random.default_rng(0).lognormal(1, 1, (2, 2000))
    lines = zip(prices.tolist(), ["", *ages.tolist()[1:]], strict=True)
    rows = "".join(
        f"{i % 2},{price!r},{age!r},5,0\n".replace("''", "") for i, (price, age) in enumerate(lines)
    )
    folder, out = raw(tmp_path, split_spec(), a=rows, b=TEST), tmp_path / "out"
    flags = ("--fill_missing=mean", "--transform=price=standardize,age=quantile")
    assert run(folder, *flags) == 0
    assert stored(out, "price") == standardized(prices, prices.mean(), prices.std())
    encoder = encoder_of(out)
    assert encoder["age"].fill == pytest.approx(ages[1:].mean(), rel=1e-9)
    assert encoder["age"].quantiles[-1] == ages[4::4].max()  # every fourth row
    assert encoder.profile["age"].missing == 1 and encoder.profile["price"].missing == 0
    order = np.argsort(ages[1:])
    assert np.all(np.diff(np.array(stored(out, "age"))[1:][order]) >= 0)
