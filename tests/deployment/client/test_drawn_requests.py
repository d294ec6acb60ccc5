"""Random requests keep every rule, and have what is rare in them, too."""

import numpy as np

from deployment.client.drawn_requests import drawn_request, drawn_rows
from deployment.serving.checks import RequestChecker
from deployment.serving.interface import Interface, ServedFeature, ServedTensor
from deployment.serving.raw.encoded_rows import RawRows
from deployment.serving.raw.requests import RawRequests
from tests.deployment.serving.made_models import CATEGORICAL, NUMERICAL
from tests.deployment.serving.made_raw_model import RAW, write

MODEL = Interface(
    recipe="sim",
    inputs=(
        ServedTensor("n", "float32", (2,)),
        ServedTensor("c", "int64", (2, 2)),
        ServedTensor("h", "int32", (2, 5)),
        ServedTensor("g", "int32", (2, 3)),
    ),
    features=(
        ServedFeature("n", "n", 0, 2, None),
        ServedFeature("few", "c", 0, 1, 2),
        ServedFeature("many", "c", 1, 3, 1000),
        ServedFeature("item", "h", 0, 5, 300),
        ServedFeature("category", "h", 5, 5, 2),
        ServedFeature("some", "g", 0, 3, 9),
        ServedFeature("none", "g", 3, 3, 1),
    ),
    lookups=(),
    tables=(),
    dense_inputs=(),
    histories=("h", "g"),
)


def test_allowed_values():
    drawn = drawn_request(MODEL, 500, np.random.default_rng(0))
    assert {name: (v.dtype.name, v.shape) for name, v in drawn.items()} == {
        "n": ("float32", (500, 2)),
        "c": ("int64", (500, 2, 2)),
        "h": ("int32", (500, 2, 5)),
        "g": ("int32", (500, 2, 3)),
    }
    RequestChecker(MODEL).check(drawn)
    ids = drawn["c"].reshape(500, 4)
    assert set(ids[:, 0]) == {0, 1}
    assert ids.min() == 0 and (ids[:, 1:].max(axis=0) > 900).all()
    assert abs(drawn["n"].std() - 1) < 0.1


def test_history_lengths():
    drawn = drawn_request(MODEL, 500, np.random.default_rng(0))["h"]
    lengths = np.count_nonzero(drawn, axis=2)
    assert set(lengths[:, 0]) == {0, 1, 2, 3, 4, 5}
    assert lengths[0].tolist() == [0, 0]
    assert drawn[:, 0].max() > 290 and set(drawn[:, 1].flat) == {0, 1}


def test_drawn_rows(tmp_path):
    folder = write(tmp_path / "1")
    drawn = drawn_rows(folder, RAW, 200, np.random.default_rng(0))
    assert {name: array.shape for name, array in drawn.items()} == {
        "price": (200, 1),
        "age": (200, 1),
        "city": (200, 1),
        "tags": (200, 2),
        "words": (200, 3),
    }
    assert set(drawn["price"].ravel()) == {1, 12.5, 20}, "quantiles of the training"
    encoded = RawRequests(RawRows(folder, RAW), RAW).check(drawn)
    assert set(encoded[NUMERICAL][:, 0]) == {0.5, 6.25, 10}
    ids = [set(column) for column in encoded[CATEGORICAL].T]
    assert ids == [{1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4}, *[{0, 1, 2, 3, 4, 5}] * 3]
