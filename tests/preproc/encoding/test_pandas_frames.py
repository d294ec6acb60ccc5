"""Rows of a pandas frame are encoded as those of a dictionary."""

import numpy as np
import pytest

from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.encodings import Label
from preproc.encoding.numbers import Number
from preproc.encoding.row_forms import is_single_row, num_rows, part_of
from tests.vocabularies import vocabulary

pytestmark = pytest.mark.engines("pandas")
ENCODER = Encoder(
    (
        vocabulary("city", ["Oslo", "Rome", "7"], hotness=2),
        Number(name="price", column="price", fill=-1.0),
        Label(name="label", column="label"),
    )
)


@pytest.mark.parametrize(
    ("city", "price", "label"),
    [
        (["Rome;7", None], [2.5, np.nan], [True, False]),
        ([["Rome", "7"], []], ["2.5", None], ["1", "0"]),
        ([["Rome", "7"], None], np.array([2.5, np.nan], np.float16), np.array([1, 0], np.int8)),
    ],
)
def test_frames(city, price, label):
    import pandas

    frame = pandas.DataFrame({"city": city, "price": price, "label": label, "x": 0}, index=[9, 3])
    expected = {"city": [[2, 3], [0, 0]], "price": [[2.5], [-1]], "label": [[True], [False]]}
    for rows in (frame, frame.convert_dtypes(), frame.astype({"label": "category"})):
        arrays = ENCODER.encode(rows)
        assert {name: array.tolist() for name, array in arrays.items()} == expected


def test_errors():
    import pandas

    frame = pandas.DataFrame({"city": ["Rome", 7], "price": [1, 2], "label": [0, 3]})
    with pytest.raises(EncodingError, match="values of one type: .*, got 7"):
        ENCODER.encode(frame)
    with pytest.raises(EncodingError, match="0 or 1, got 3"):
        ENCODER.encode(frame, ["label"])
    with pytest.raises(EncodingError, match="a column 'city', got the columns price"):
        ENCODER.encode(frame[["price"]])


def test_parts():
    """The index does not count, and columns may be called as attributes."""
    import pandas

    frame = pandas.DataFrame({"city": list("abc"), "price": [1, 2, 3], "slice": 0, "num_rows": 0})
    frame.index = [2, 0, 1]
    assert not is_single_row(frame, ("city", "price")) and num_rows(frame, ("city", "price")) == 3
    assert part_of(frame, ("city", "price"), 1, 3)["city"].tolist() == ["b", "c"]
    series = {"city": frame["city"], "price": frame["price"]}
    assert num_rows(series, ("city", "price")) == 3
    assert part_of(series, ("city", "price"), 1, 3)["city"].tolist() == ["b", "c"]
