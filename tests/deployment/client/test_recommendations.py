"""Items of a model that recommends, as the client prints them."""

import numpy as np
import pytest
from tritonclient.utils import serialize_byte_tensor

from deployment.client.__main__ import _print_items
from deployment.client.client import Client, WrongAnswer
from deployment.client.recommendations import recommendations
from tests.deployment.client.stand_in_server import StandIn, answer_to, serving

SCORES = np.array([[0.9, 0.5], [0.7, 0.0]], np.float32)
INTEGERS = np.array([[30, -10], [20, -1]])
TEXTS = np.array([[b"\xc3\xa9", b"b"], [b"c", b""]], object)


def reply_of(items):
    """A function that answers all requests with two rows."""

    def infer(request, context):
        answer = answer_to(request, SCORES)
        if items is not None:
            is_text = items.dtype == object
            content = serialize_byte_tensor(items).item() if is_text else items.tobytes()
            datatype = "BYTES" if is_text else "INT64"
            answer.outputs.add(name="items", datatype=datatype, shape=items.shape)
            answer.raw_output_contents.append(content)
        return answer

    return infer


def received(items):
    requests = [{"x": np.zeros((2, 1), np.int32)}] * 2
    with serving(StandIn(reply_of(items))) as url, Client(url, "sums") as client:
        return [
            (*item[:-1], round(float(item.score), 4)) for item in recommendations(client, requests)
        ]


@pytest.mark.parametrize(("items", "names"), [(INTEGERS, ("30", "-10", "20")), (TEXTS, "\xe9bc")])
def test_items(items, names):
    """Rows of the second request follow those of the first; what fills a row is left out."""
    first = [(0, 1, names[0], 0.9), (0, 2, names[1], 0.5), (1, 1, names[2], 0.7)]
    assert received(items) == first + [(row + 2, *rest) for row, *rest in first]


def test_other_model():
    with pytest.raises(WrongAnswer, match="the answer has scores, not items and scores"):
        received(None)


def test_refused_request(capsys):
    """An error is printed without the header of a table."""

    def refused():
        raise ValueError("refused")
        yield

    with pytest.raises(ValueError):
        _print_items(refused())
    assert capsys.readouterr().out == ""
    _print_items([])
    assert capsys.readouterr().out == "row,rank,item,score\n"
