"""Edges of bins for models, in units of the data set."""

import numpy as np
import pytest

from preproc.encoding import encoder_folder
from preproc.encoding.encoder import Encoder
from preproc.encoding.numbers import NUM_BINS, Number, bin_edges
from preproc.encoding.profile import ColumnProfile
from tests.vocabularies import vocabulary

SCALE = {"transformation": "standardize", "mean": 10.0, "deviation": 2.0}


def edges(tmp_path, number, profile, features=("x",), hotnesses=(1,)):
    Encoder((number, vocabulary("item", ["a"])), profile=profile).save(tmp_path / "encoder")
    content = encoder_folder.read(tmp_path / "encoder", has_values=False)
    return bin_edges(content.features, content.profile, features, hotnesses)


def test_one_bin_between_two_values(tmp_path):
    number = Number(name="x", column="raw", fill=10.0, indicator="x_missing", **SCALE)
    profile = {"raw": ColumnProfile(9, 2, quantiles=(6.0, 10.0, 14.0), values=(6.0, 10.0, 14.0))}
    result = edges(tmp_path, number, profile, ("x", "x_missing"), (2, 1))
    assert [array.tolist() for array in result] == [[-2, 0, 2], [-2, 0, 2], [0, 1]]
    assert all(array.dtype == np.float32 for array in result)


def test_quantiles(tmp_path):
    steps = tuple(float(step) for step in range(101))
    result = edges(
        tmp_path, Number(name="x", column="x"), {"x": ColumnProfile(999, 0, quantiles=steps)}
    )
    np.testing.assert_allclose(result[0], np.linspace(0, 100, NUM_BINS + 1))
    assert result[0][1] == 3.125, "between quantiles 3 and 4 of 100"


def test_equal_quantiles_and_rounded_ones_are_one_edge(tmp_path):
    steps = (0.0,) * 60 + (5.0,) * 41
    number = Number(name="x", column="x", dtype="float16")
    profile = {"x": ColumnProfile(999, 0, quantiles=steps)}
    assert edges(tmp_path / "a", number, profile)[0].tolist()[::2] == [0, 5]
    near = {"x": ColumnProfile(9, 0, values=(1000.0, 1000.1, 1002.0))}
    assert edges(tmp_path / "b", number, near)[0].tolist() == [1000, 1002]
    one = {"x": ColumnProfile(9, 0, values=(7.0,))}
    assert edges(tmp_path / "c", number, one)[0].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("features", "profile"),
    [
        (("x",), {"x": ColumnProfile(9, 0)}),
        (("other",), {"x": ColumnProfile(9, 0, values=(1.0, 2.0))}),
        (("item",), {"x": ColumnProfile(9, 0, values=(1.0, 2.0))}),
    ],
)
def test_no_bins(features, profile, tmp_path):
    assert edges(tmp_path, Number(name="x", column="x"), profile, features) is None
