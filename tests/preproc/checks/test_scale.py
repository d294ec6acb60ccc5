"""Checks of scales and of constant columns, and that their remedies help."""

import numpy as np

from dataloading.spec.data_checks import read_findings
from preproc.checks.report import NOTE, PASSED, WARNING
from preproc.checks.scale import scales
from preproc.encoding.encoder import Encoder
from preproc.encoding.profile import ColumnProfile
from preproc.fitting.transformation import Scale
from tests.preproc.transcode.test_transcode import changed, raw, run
from tests.preproc.transcode.test_transcode_file import spec_of

NUM_ROWS = 400


def test_levels_and_texts():
    fitted = {
        "few": Scale("standardize", 0.1, 0.004, 12.3, 9e9),
        "even": Scale("log", 0.5, 1.0, 12.3),
        "equal": Scale("standardize", None, 0.0, 33.3, 7),
        "tail": Scale("log", 0.6, 1.0, 2.0, is_chosen=True),
        "normal": Scale("standardize", 0.9, 1.0, 2.0, is_chosen=True),
        "large": Scale("none", 0.9, 1.0, 2.0),
        "small": Scale("none", 0.9, 1.0, 2.0),
    }
    profile = {"large": ColumnProfile(9, 0, mean=-101.0), "small": ColumnProfile(9, 0, mean=100.0)}
    checks = scales(fitted, profile)
    assert [(check.level, check.columns) for check in checks] == [
        (NOTE, ("tail",)),
        (WARNING, ("few",)),
        (PASSED, ("even",)),
        (PASSED, ("equal",)),
        (WARNING, ("large",)),
    ]
    assert "the farthest, 9e+09, is 12 from the mean" in checks[1].seen
    assert scales({"normal": fitted["normal"]}, {})[0].level == PASSED


def write(path):
    rng = np.random.default_rng(0)
    price = rng.gamma(2, 10, NUM_ROWS).round(2)
    views = np.floor(10 * rng.pareto(0.8, NUM_ROWS)) + 0.5
    price[7] = 999_999_999_999
    rows = [
        f"{rng.integers(2)},{p},{v},{rng.normal():.3f},CH,1.5,{'x' * (i % 3 == 0)}"
        for i, (p, v) in enumerate(zip(price, views, strict=True))
    ]
    path.write_text("\n".join(["y,price,views,age,country,rate,flag", *rows]) + "\n")
    return path


def test_long_tails_and_constant_columns(tmp_path, capsys):
    path, out = write(tmp_path / "a.csv"), tmp_path / "out"
    assert run(path, "--label=y", "--strict", output=out) == 0
    output = capsys.readouterr().out
    encoder = Encoder.load(out / "encoder")
    chosen = {name: encoder[name].transformation for name in ("price", "views", "age")}
    assert chosen == {"price": "quantile", "views": "log", "age": "standardize"}
    notes = {f.check: f for f in read_findings(out) if f.level == NOTE}
    assert notes["chosen_scales"].columns == ("price", "views")
    # A column that is empty or x differs between rows.
    assert spec_of(out).channel("categorical") == ("flag",)
    assert "left out: country (constant_column" in output and "left out: rate" in output
    keep = "--keep=country,rate"
    remedy = notes["chosen_scales"].remedy.removesuffix(" overrides it")
    flags = (keep, remedy.replace(" ", "="), "--overwrite")
    assert run(path, "--label=y", *flags, output=out) == 0
    assert {"country", "flag"} == set(spec_of(out).channel("categorical"))
    assert "rate" in spec_of(out).channel("numerical")
    assert Encoder.load(out / "encoder")["price"].transformation == "standardize"
    # Features that the flag does not name keep the default.
    flags = ("--transform=age=log", "--drop=views,country,rate,flag", "--overwrite")
    assert run(path, "--label=y", *flags, output=out) == 0
    transformations = [Encoder.load(out / "encoder")[n].transformation for n in ("age", "price")]
    assert transformations == ["log", "quantile"]


def test_requested_scales(tmp_path, capsys):
    """The remedies that are printed take the warnings away."""
    path = write(tmp_path / "a.csv")
    for how, remedy in (("standardize", "standardize,price=auto"), ("none", "auto")):
        flags = ["--label=y", "--drop=views,age,rate,flag", "--strict", "--categorical=country"]
        assert run(path, *flags, f"--transform={how}", output=tmp_path / how) == 2
        error = capsys.readouterr().err
        assert "'price'" in error and f"use --transform {remedy}\n" in error
        assert run(path, *flags, f"--transform={remedy}", output=tmp_path / how) == 0
        assert "country" in spec_of(tmp_path / how).feature_spec, "constant, but named by a flag"


def test_constant_columns_of_feature_specs(tmp_path):
    """They stay: the file lists them."""
    rows = "".join(f"{i % 2},2.5,{i},5,{i % 3}\n" for i in range(50))
    folder = raw(tmp_path, changed(), a=rows)
    assert run(folder) == 0
    assert "price" in spec_of(folder / "out").feature_spec
