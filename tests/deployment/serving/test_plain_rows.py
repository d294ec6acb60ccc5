"""Rows of a model without an encoder: its ids and numbers."""

import numpy as np
import pyarrow as pa

from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.serving.raw.encoded_rows import RawRows
from tests.deployment.serving.made_models import NUMERICAL


def test_alignment_of_histories(tmp_path):
    """The latest id comes last; a shorter sequence starts with zeros, a longer one is cut there."""
    interface = Interface(
        "sim",
        (
            ServedTensor(NUMERICAL, "float32", (2,)),
            ServedTensor("target", "int64", (1,)),
            ServedTensor("history", "int64", (1, 2)),
        ),
        (
            ServedFeature("a", NUMERICAL, 0, 2, None),
            ServedFeature("target", "target", 0, 1, 9),
            ServedFeature("items", "history", 0, 2, 9),
        ),
        (ServedLookup("item", "target", 0, 1, None), ServedLookup("item", "history", 0, 2, None)),
        (ServedTable("item", 9, 2, "float32", "item.npy"),),
        (NUMERICAL,),
        6,
        histories=("history",),
    )
    table = {"a": [[1.0, 2.0]] * 4, "target": [3, 4, 8, 8], "items": [[7, 2], [5], [], [8, 1, 2]]}
    request = RawRows(tmp_path, interface).encode(pa.table(table))
    assert request["history"].tolist() == [[[7, 2]], [[0, 5]], [[0, 0]], [[1, 2]]]
    assert request["target"].tolist() == [[3], [4], [8], [8]]
    assert request["history"].dtype == np.int64
    assert request[NUMERICAL].tolist() == [[1, 2]] * 4
