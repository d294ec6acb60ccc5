"""Client of a served model over gRPC: several requests in flight, answers in order.

with Client("127.0.0.1:8001", "dlrm", in_flight=4) as client:
    for scores in client.scores(requests):  # each a dict of arrays [batch, ...]
        ...
"""

import collections
import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping

import grpc
import numpy as np
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from config.flag import Rules
from deployment.client.served_tensors import NATIVE, ServedTensors
from deployment.serving.interface import ENCODED, LOGITS, SCORES
from deployment.serving.scorer import sigmoid

_RETRY_INTERVAL_S = 0.1

# One connection per client, which reconnects soon after it broke.
_CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),  # limit of one attempt, on a busy machine
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", -1),
)
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\]):\d+")
_URL = re.compile(r"[^/\s]+:\d+")
_URL_ADVICE = (
    "is the server running (python -m deployment.serve), and is --url host:port of its gRPC, not "
    "of its HTTP?"
)
_NOT_READY = "the model is not ready"

_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
# A process of the model has ended, after which the server still reports ready.
_NO_PROCESS = "is not healthy"
# Other messages about the server, not the request: it loads its models or ends; the connection
# broke in the middle of an answer.
_LOST_MESSAGES = ("has no available versions", "Stream removed", _NO_PROCESS)


class RequestRefused(ValueError):
    """The server refused a request."""


class ServerLost(ConnectionError):
    """There is no server, it ended or is loading its models, a process of the model ended, or it
    did not answer in time."""


class WrongAnswer(RuntimeError):
    """An answer does not match its request: a defect."""


class Client(contextlib.AbstractContextManager):
    """Connection to one model.

    Args:
        url: host:port of the server's gRPC.
        in_flight: requests that are sent before the client waits for the first answer.
        timeout_s: limit per request.
        patience_s: time to wait for a lost server; its requests are sent again, which is safe: the
            same request has the same scores.
        version: version of the model; empty: the server's choice, the newest.
        tensors: tensors of the model, to which requests are converted.

    Attributes:
        resent: number of requests that were sent again.
        latencies_s: seconds from sending to receiving, of each answer of `scores`. With several
            requests in flight they include the time in which the server computes earlier ones.

    Raises:
        ValueError: in_flight is below 1, or the url is invalid.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        *,
        in_flight: int = 4,
        timeout_s: float = 60.0,
        patience_s: float = 0.0,
        version: str = "",
        tensors: ServedTensors = NATIVE,
    ):
        Rules(at_least=1).check_value("in_flight", in_flight)
        if not _URL.fullmatch(url):
            raise ValueError(
                f"--url: expected host:port of the server's gRPC, like 127.0.0.1:8001, got {url}"
            )
        self._url, self._model = url, model_name
        self._in_flight, self._timeout_s, self._patience_s = in_flight, timeout_s, patience_s
        self._version, self.tensors = version, tensors
        self.resent = 0
        self.latencies_s: list[float] = []
        # A proxy (http_proxy in the environment) does not reach a server on this machine.
        use_proxy = ("grpc.enable_http_proxy", int(not _LOOPBACK.fullmatch(url)))
        self._channel = grpc.insecure_channel(url, (*_CHANNEL, use_proxy))
        self._server = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __exit__(self, *exception):
        self.close()

    def close(self) -> None:
        """Closes the connection; requests in flight are dropped."""
        self._channel.close()

    def prepare(self, arrays: Mapping[str, np.ndarray], name: str) -> service_pb2.ModelInferRequest:
        """Returns a request message of tensors [batch, ...]; the answer repeats its name.

        Raises:
            ValueError: Triton does not support a dtype, or an id does not fit the model's.
        """
        message = service_pb2.ModelInferRequest(
            model_name=self._model, model_version=self._version, id=name
        )
        if self.tensors.are_encoded:
            message.parameters[ENCODED].bool_param = True
        for tensor, array in self.tensors.request(arrays).items():
            datatype = np_to_triton_dtype(array.dtype)
            if datatype is None:
                raise ValueError(f"request {name}: {tensor} is {array.dtype}, unknown to Triton")
            message.inputs.add(name=tensor, datatype=datatype, shape=array.shape)
            is_text = array.dtype == object
            content = serialize_byte_tensor(array).item() if is_text else array.tobytes()
            message.raw_input_contents.append(content)
        return message

    def ask(self, message: service_pb2.ModelInferRequest) -> np.ndarray:
        """Sends a message and returns its scores, float32 [batch, 1]; raises as `receive`."""
        return self.receive(message, self.send(message))

    def send(self, message: service_pb2.ModelInferRequest):
        """Sends a message; returns the future for `receive`."""
        return self._server.ModelInfer.future(message, timeout=self._timeout_s)

    def receive(self, message: service_pb2.ModelInferRequest, answer) -> np.ndarray:
        """Waits for the future of `send`; returns the scores of the message, float32 [batch, 1].

        Raises:
            RequestRefused, ServerLost, WrongAnswer: see there.
        """
        reply = self._reply(message, answer)
        return _checked(message, reply, self.tensors.num_rows(message))

    def outputs(self, message: service_pb2.ModelInferRequest) -> dict[str, np.ndarray]:
        """Sends a message and returns all tensors of the answer; raises as `receive`."""
        return _arrays(self._reply(message, self.send(message)))

    def _reply(
        self, message: service_pb2.ModelInferRequest, answer
    ) -> service_pb2.ModelInferResponse:
        deadline = None
        while True:
            try:
                return answer.result()
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise ServerLost(
                        f"{self._url} did not answer within {self._timeout_s:g} s"
                    ) from None
                if not _is_lost(error):
                    raise RequestRefused(
                        f"{self._model} at {self._url} refused it: {error.details()}"
                    ) from None
                if deadline is None:
                    deadline = time.monotonic() + self._patience_s
                if time.monotonic() >= deadline:
                    raise ServerLost(f"{self._url} is lost: {error.details()}") from None
                self.wait_until_ready(deadline - time.monotonic())
                if _NO_PROCESS in (error.details() or ""):
                    time.sleep(_RETRY_INTERVAL_S)  # the server was ready at once
                self.resent += 1
                answer = self.send(message)

    def scores(self, requests: Iterable[Mapping[str, np.ndarray]]) -> Iterator[np.ndarray]:
        """Yields the scores of each request, float32 [batch, 1], in their order.

        Args:
            requests: tensors by name; read `in_flight` ahead.

        Raises:
            RequestRefused, ServerLost, WrongAnswer: see there; names the request and its rows,
                counted from 0.
        """
        pending: collections.deque[tuple] = collections.deque()
        first_row = 0
        try:
            for number, arrays in enumerate(requests):
                message = self.prepare(arrays, str(number))
                pending.append((message, first_row, time.perf_counter(), self.send(message)))
                first_row += self.tensors.num_rows(message)
                if len(pending) == self._in_flight:
                    yield self._finish(*pending.popleft())
            while pending:
                yield self._finish(*pending.popleft())
        finally:
            for *_, answer in pending:
                answer.cancel()

    def statistics(self) -> service_pb2.ModelStatistics:
        """Returns the statistics of the model since it was loaded.

        `inference_count` is the number of scored rows, `execution_count` of the batches that ran.
        """
        request = service_pb2.ModelStatisticsRequest(name=self._model, version=self._version)
        return self._call(self._server.ModelStatistics, request).model_stats[0]

    def config(self) -> model_config_pb2.ModelConfig:
        """Returns the model's configuration, as completed by the server."""
        request = service_pb2.ModelConfigRequest(name=self._model, version=self._version)
        return self._call(self._server.ModelConfig, request).config

    def ready_models(self) -> list[str]:
        """Returns the names of the models that the server has ready."""
        request = service_pb2.RepositoryIndexRequest(ready=True)
        index = self._call(self._server.RepositoryIndex, request)
        return sorted({model.name for model in index.models})

    def load(self) -> None:
        """Lets the server load the model, or load it again, from its repository.

        Raises:
            ServerLost: no server answers at the URL, or not in time.
            RequestRefused: the server refuses, for example because it polls its repository.
        """
        request = service_pb2.RepositoryModelLoadRequest(model_name=self._model)
        self._call(self._server.RepositoryModelLoad, request)

    def unload(self) -> None:
        """Lets the server unload the model; raises as `load`."""
        request = service_pb2.RepositoryModelUnloadRequest(model_name=self._model)
        self._call(self._server.RepositoryModelUnload, request)

    def wait_until_ready(self, patience_s: float) -> None:
        """Waits for the server and the model; raises ServerLost after `patience_s`."""
        deadline = time.monotonic() + patience_s
        request = service_pb2.ModelReadyRequest(name=self._model)
        while True:
            try:
                if self._server.ModelReady(request, timeout=self._timeout_s).ready:
                    return
                problem = _NOT_READY
            except grpc.RpcError as error:
                problem = error.details()
            if time.monotonic() > deadline:
                advice = self._served() if problem == _NOT_READY else f": {_URL_ADVICE}"
                raise ServerLost(
                    f"{self._model} at {self._url} was not ready within {patience_s:g} s "
                    f"({problem}){advice}"
                )
            time.sleep(_RETRY_INTERVAL_S)

    def _finish(
        self, message: service_pb2.ModelInferRequest, first_row: int, sent: float, answer
    ) -> np.ndarray:
        try:
            scores = self.receive(message, answer)
            self.latencies_s.append(time.perf_counter() - sent)
            return scores
        except (RequestRefused, ServerLost, WrongAnswer) as error:
            last_row = first_row + self.tensors.num_rows(message) - 1
            place = f"request {message.id} (rows {first_row:,} to {last_row:,})"
            raise type(error)(f"{place}: {error}") from error

    def _call(self, method, request):
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            text = f"{self._model or 'a server'} at {self._url}: {error.details()}"
            if _is_lost(error) or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ServerLost(f"{text}: {_URL_ADVICE}") from None
            if error.code() is grpc.StatusCode.NOT_FOUND:
                text += self._served()
            raise RequestRefused(text) from None

    def _served(self) -> str:
        """Returns the end of an error message about a missing model: a list of the others."""
        try:
            names = ", ".join(self.ready_models()) or "none"
        except (RequestRefused, ServerLost) as error:
            return f"; the list of models is not available ({error})"
        return f"; served are {names}: name one with --model_name"


def _is_lost(error: grpc.RpcError) -> bool:
    details = error.details() or ""
    return error.code() in _LOST or any(text in details for text in _LOST_MESSAGES)


def _arrays(reply) -> dict[str, np.ndarray]:
    """Returns the tensors of an answer: numbers, or bytes as objects."""
    arrays = {}
    for output, content in zip(reply.outputs, reply.raw_output_contents, strict=True):
        if output.datatype == "BYTES":
            values = deserialize_bytes_tensor(content)
        else:
            values = np.frombuffer(content, triton_to_np_dtype(output.datatype))
        arrays[output.name] = values.reshape(output.shape)
    return arrays


def _checked(message, reply, rows: int) -> np.ndarray:
    """Returns the scores of an answer, float32 [rows, 1], after a check of shape and dtype."""
    arrays = {name: a for name, a in _arrays(reply).items() if a.dtype == np.float32}
    if SCORES in arrays and arrays[SCORES].shape == (rows, 1):
        return arrays[SCORES]
    if LOGITS in arrays and arrays[LOGITS].shape in ((rows, 1), (rows,)):
        return sigmoid(arrays[LOGITS]).reshape(rows, 1)
    outputs = ", ".join(f"{o.name} {o.datatype} {[*o.shape]}" for o in reply.outputs)
    raise WrongAnswer(
        f"the answer to request {message.id} has {outputs}, not {SCORES} FP32 {[rows, 1]}"
    )
