"""Requests as JSON over HTTP, as `curl` and other languages send them."""

import json
import re
import urllib.error
import urllib.request

import pytest

from tests.serving.test_bad_requests import IDS, NUMBERS

DATATYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "bool": "BOOL"}
DATATYPES["object"] = "BYTES"


def asked(server, model, arrays, changed=()):
    """(status, answer) of a request; `changed` has other values in JSON, by tensor."""
    inputs = [
        {
            "name": name,
            "datatype": DATATYPES[str(array.dtype)],
            "shape": array.shape,
            "data": dict(changed).get(name, array.ravel().tolist()),
        }
        for name, array in arrays.items()
    ]
    url = f"http://127.0.0.1:{server.http}/v2/models/{model}/infer"
    try:
        body = json.dumps({"inputs": inputs}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


# Replacement of a valid id, and the error of the server.
BAD_IDS = {
    "2^32 more": (lambda good: good + 2**32, r"row 0 .*: {}; ids lie in \[0, "),
    "2^32 less": (lambda good: good - 2**32, r"row 0 .*: {}; ids lie in \[0, "),
    "the largest": (lambda good: 2**63 - 1, r"row 0 .*: {}; ids lie in \[0, "),
    "2^64 more": (lambda good: good + 2**64, "Unable to parse 'data'"),
    "2^64 less": (lambda good: good - 2**64, "Unable to parse 'data'"),
    "with a point": (float, "Unable to parse 'data'"),
    "a text": (str, "Unable to parse 'data'"),
    "a truth": (lambda good: True, "Unable to parse 'data'"),
}


@pytest.mark.parametrize("case", BAD_IDS)
@pytest.mark.parametrize(
    ("model", "tensor"),
    [("dlrm", IDS), ("dlrm_mono", IDS), ("sim", "positive_history"), ("ncf", "item")],
)
def test_invalid_ids(server, served, model, tensor, case):
    """The server does not truncate or round an invalid id to a valid one."""
    make_bad, message = BAD_IDS[case]
    arrays = served[model.removesuffix("_mono")].rows(0, 1)
    *others, good = arrays[tensor].ravel().tolist()
    bad = make_bad(good)
    status, answer = asked(server, model, arrays, {tensor: [*others, bad]})
    assert status >= 400 and re.search(message.format(bad), answer), answer


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1e39, r"row 0 \(counted from 0\): inf; numerical features are"),  # above float32's largest
        (float("nan"), r"row 0 \(counted from 0\): nan; numerical features are finite"),
        ("1", "Unable to parse 'data'"),
    ],
)
def test_invalid_numerical_features(server, served, value, message):
    arrays = served["dlrm"].rows(0, 1)
    assert asked(server, "dlrm", arrays, {NUMBERS: [1, 2, 3]})[0] == 200
    status, answer = asked(server, "dlrm", arrays, {NUMBERS: [1, value, 3]})
    assert status >= 400 and re.search(message, answer), answer
