"""The client of a served model, with a server whose faults the test chooses."""

import threading
import time

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from deployment.client.client import Client, RequestRefused, ServerLost, WrongAnswer
from tests.deployment.client.stand_in_server import StandIn, answer_to, serving


def request(number, rows=2):
    return {"x": np.full((rows, 3), number, np.int32)}


def asked(infer, count=6, **options):
    """The scores of requests 0, 1, ... of two rows each, as lists, and the client."""
    with serving(StandIn(infer)) as url, Client(url, "sums", **options) as client:
        return [s.tolist() for s in client.scores(request(n) for n in range(count))], client


def test_order_of_answers():
    """Later ones are answered sooner; in_flight are sent before the first answer, and no more."""
    sent, sent_before_an_answer, all_there = [], [], threading.Event()

    def infer(message, context):
        sent.append(message.id)
        if len(sent) == 3:
            all_there.set()
        if message.id == "0":
            assert all_there.wait(60)
            time.sleep(0.2)  # so that one too many would be there
            sent_before_an_answer.extend(sent)
        time.sleep(0.02 if int(message.id) % 3 == 0 else 0)
        return answer_to(message)

    result, _ = asked(infer, 20, in_flight=3)
    assert result == [[[3 * n], [3 * n]] for n in range(20)]
    assert sorted(sent_before_an_answer) == ["0", "1", "2"]


def test_request_message():
    seen = []

    def infer(message, context):
        seen.append(message)
        return answer_to(message)

    arrays = {"x": np.arange(6, dtype=np.int32).reshape(3, 2).T, "f": np.zeros((2, 1), np.float32)}
    with serving(StandIn(infer)) as url, Client(url, "sums") as client:
        assert client.ask(client.prepare(arrays, "seven")).tolist() == [[6], [9]]
    (message,) = seen
    assert (message.id, message.model_name) == ("seven", "sums")
    assert [(t.name, t.datatype, [*t.shape]) for t in message.inputs] == [
        ("x", "INT32", [2, 3]),
        ("f", "FP32", [2, 1]),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"scores": np.zeros((3, 1), np.float32)},
            r"^request 3 \(rows 6 to 7\): .* has scores FP32 \[3, 1\], not scores FP32 \[2",
        ),
        ({"scores": np.zeros((2, 1)), "datatype": "FP64"}, "has scores FP64"),
    ],
)
def test_invalid_answers(change, expected):
    def infer(message, context):
        return answer_to(message, **(change if message.id == "3" else {}))

    with pytest.raises(WrongAnswer, match=expected):
        asked(infer)


def failing(code, text, times=1):
    """Refuses request 3 `times` times."""
    left = [times]

    def infer(message, context):
        if message.id == "3" and left[0]:
            left[0] -= 1
            context.abort(code, text)
        return answer_to(message)

    return infer


def test_refused_request():
    with pytest.raises(
        RequestRefused, match=r"^request 3 \(rows 6 to 7\): sums at .* id 7 of city"
    ):
        asked(failing(grpc.StatusCode.INVALID_ARGUMENT, "id 7 of city"))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.UNAVAILABLE, "recvmsg: connection reset"),
        (grpc.StatusCode.NOT_FOUND, "unknown model: 'sums' has no available versions"),
        (grpc.StatusCode.INTERNAL, "Stub process 'sums_0_0' is not healthy."),
    ],
)
def test_lost_server(code, text):
    with pytest.raises(ServerLost, match=r"^request 3 \(rows 6 to 7\): 127.* is lost: " + text):
        asked(failing(code, text))
    result, client = asked(failing(code, text, times=2), patience_s=20)
    assert result == [[[3 * n], [3 * n]] for n in range(6)]
    assert client.resent == 2


def test_restarted_server():
    port, second = [0], []

    def again():
        time.sleep(0.3)
        with serving(StandIn(), port[0]):
            second.append(True)
            done.wait(30)

    done, thread = threading.Event(), threading.Thread(target=again)
    with serving(StandIn()) as url:
        port[0] = int(url.partition(":")[2])
        client = Client(url, "sums", patience_s=20)
        assert client.ask(client.prepare(request(1), "a")).tolist() == [[3], [3]]
    thread.start()
    assert client.ask(client.prepare(request(2), "b")).tolist() == [[6], [6]]
    assert second and client.resent >= 1
    done.set()
    thread.join()
    client.close()


def test_expired_patience():
    with serving(StandIn()) as url:
        pass
    with (
        Client(url, "sums", patience_s=1) as client,
        # The time that remains after the first request is known to be lost.
        pytest.raises(ServerLost, match=r"sums at .* was not ready within (1|0\.\d+) s"),
    ):
        client.ask(client.prepare(request(1), "a"))
    with (
        serving(StandIn()) as url,
        Client(url, "other") as client,
        pytest.raises(RequestRefused, match="unknown model 'other'; the list of models is not av"),
    ):
        client.config()
    with (
        Client(url, "sums") as client,
        pytest.raises(
            ServerLost, match=r"sums at 127.*--url host:port of its gRPC, not of its HTTP"
        ),
    ):
        client.statistics()


def test_unknown_model_name():
    class Listing(StandIn):
        def RepositoryIndex(self, request, context):
            assert request.ready
            reply = service_pb2.RepositoryIndexResponse()
            for name in ("sums", "another"):
                reply.models.add(name=name)
            return reply

    expected = "served are another, sums: name one with --model_name"
    with serving(Listing()) as url, Client(url, "other") as client:
        with pytest.raises(RequestRefused, match=f"unknown model 'other'; {expected}"):
            client.config()
        with pytest.raises(ServerLost, match=f"the model is not ready\\); {expected}"):
            client.wait_until_ready(0)


def test_silent_server():
    given_up = threading.Event()

    def infer(message, context):
        assert given_up.wait(60)
        return answer_to(message)

    with serving(StandIn(infer)) as url, Client(url, "sums", timeout_s=0.1) as client:
        with pytest.raises(ServerLost, match="request 0 .* did not answer within 0.1 s"):
            list(client.scores(request(n) for n in range(6)))
        given_up.set()


def test_invalid_arguments():
    with pytest.raises(ValueError, match="--in_flight: expected at least 1, got 0"):
        Client("127.0.0.1:1", "sums", in_flight=0)
    for url in ("http://127.0.0.1:1", "127.0.0.1"):
        with pytest.raises(ValueError, match=f"--url: expected host:port of the .* got {url}"):
            Client(url, "sums")
    with Client("127.0.0.1:1", "sums") as client:
        arrays = {"x": np.zeros((1, 1), np.complex64)}
        with pytest.raises(ValueError, match="request a: x is complex64, unknown to Triton"):
            client.prepare(arrays, "a")


def test_proxy_in_environment(monkeypatch):
    """A server on this machine is reached directly, whatever proxy is set for other hosts."""
    for name in ("http_proxy", "grpc_proxy", "https_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    scores, _ = asked(answer_to_all, 2, timeout_s=20.0)
    assert scores == [[[0], [0]], [[3], [3]]]


def answer_to_all(message, context):
    return answer_to(message)
