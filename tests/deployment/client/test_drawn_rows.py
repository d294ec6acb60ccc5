"""Random raw rows: valid values of the encoder."""

import numpy as np

from deployment.client.drawn_rows import drawn_rows
from deployment.serving.raw.encoded_rows import RawRows
from deployment.serving.raw.requests import RawRequests
from tests.deployment.serving.made_models import CATEGORICAL, NUMERICAL
from tests.deployment.serving.made_raw_model import RAW, write


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
