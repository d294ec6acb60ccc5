"""Rows of a pandas frame are encoded as those of a dictionary."""

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.encodings import Label
from preproc.encoding.numbers import Number
from preproc.encoding.vocabulary import Vocabulary

pytestmark = pytest.mark.engines("pandas")
ENCODER = Encoder(
    (
        Vocabulary(
            name="city",
            column="city",
            values=pa.array(["Oslo", "Rome", "7"]),
            counts=pa.array([1, 1, 1], pa.int64()),
            hotness=2,
        ),
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
