"""A gRPC server in this process that answers as a test wants, in place of Triton's."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc


def answer_to(request, scores=None, *, name="scores", datatype="FP32"):
    """An answer; scores default to sums of the rows of the first tensor, int32 [rows, n]."""
    if scores is None:
        shape = tuple(request.inputs[0].shape)
        rows = np.frombuffer(request.raw_input_contents[0], np.int32).reshape(shape)
        scores = rows.sum(axis=1, keepdims=True).astype(np.float32)
    answer = service_pb2.ModelInferResponse(id=request.id)
    answer.outputs.add(name=name, datatype=datatype, shape=scores.shape)
    answer.raw_output_contents.append(scores.tobytes())
    return answer


class StandIn(service_pb2_grpc.GRPCInferenceServiceServicer):
    """One model, `sums`; `infer(request, context)` gives the answer."""

    def __init__(
        self,
        infer: Callable = lambda request, context: answer_to(request),
        dynamic=False,
        loads=True,
    ):
        self._infer, self._dynamic, self._loads = infer, dynamic, loads
        self.loaded = []
        self.rows = self.executions = 0

    def ModelInfer(self, request, context):
        answer = self._infer(request, context)
        self.rows += request.inputs[0].shape[0]
        self.executions += 1
        return answer

    def RepositoryModelLoad(self, request, context):
        if not self._loads:
            context.abort(grpc.StatusCode.UNAVAILABLE, "explicit model load is not allowed")
        self.loaded.append(request.model_name)
        return service_pb2.RepositoryModelLoadResponse()

    def ModelReady(self, request, context):
        return service_pb2.ModelReadyResponse(ready=request.name == "sums")

    def ModelConfig(self, request, context):
        if request.name != "sums":
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model '{request.name}'")
        reply = service_pb2.ModelConfigResponse()
        reply.config.max_batch_size = 64
        if self._dynamic:
            reply.config.dynamic_batching.SetInParent()
        return reply

    def ModelStatistics(self, request, context):
        reply = service_pb2.ModelStatisticsResponse()
        reply.model_stats.add(inference_count=self.rows, execution_count=self.executions)
        return reply


@contextlib.contextmanager
def serving(stand_in: StandIn, port: int = 0) -> Iterator[str]:
    """Serves the stand-in; yields host:port."""
    server = grpc.server(futures.ThreadPoolExecutor(16))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(stand_in, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
