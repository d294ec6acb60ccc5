"""A gRPC server in this process that computes a deployment with NVIDIA's tensors.

It reads the repository as Triton does: the configuration of the ensemble, and its models `sparse`
and `dense`. TensorFlow and onnxruntime take the place of GPU backends, `HpsStandIn` that of HPS.
"""

import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from tritonclient.grpc import service_pb2, service_pb2_grpc

from deployment.serving.dense import open_session
from tests.deployment.triton.hps_stand_in import HpsStandIn
from tests.deployment.triton.written_config import read_config

_DTYPES = {"FP32": np.float32, "INT32": np.int32, "INT64": np.int64}


class RepositoryStandIn(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Server of a repository with one ensemble of `sparse` and `dense`."""

    def __init__(self, repository: Path):
        self._repository = repository
        self._is_hps = read_config(repository / "sparse/config.pbtxt").backend == "hps"
        if self._is_hps:
            self._tables = HpsStandIn(repository / "sparse/sparse.json", "sparse")
        else:
            self._tables = tf.saved_model.load(str(repository / "sparse/1/model.savedmodel"))
        self._dense = open_session(repository / "dense/1/model.onnx")
        self.batches: list[int] = []
        self._seconds = 0.0

    def ModelConfig(self, request, context):
        config = read_config(self._repository / request.name / "config.pbtxt")
        return service_pb2.ModelConfigResponse(config=config)

    def ModelStatistics(self, request, context):
        reply = service_pb2.ModelStatisticsResponse()
        count = len(self.batches)
        stats = reply.model_stats.add(inference_count=sum(self.batches), execution_count=count)
        stats.inference_stats.success.count = count
        stats.inference_stats.compute_infer.ns = round(1e9 * self._seconds)
        return reply

    def ModelInfer(self, request, context):
        started = time.perf_counter()
        arrays = {
            tensor.name: np.frombuffer(content, _DTYPES[tensor.datatype]).reshape(tensor.shape)
            for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        if self._is_hps:
            assert {len(array) for array in arrays.values()} == {1}, "one row of Triton's batching"
            vectors = self._tables.lookup(arrays["EMB_KEY"], arrays["EMB_N_KEY"])
            numerical = arrays["numerical_features"].ravel()
            inputs = {"OUTPUT0": vectors, "numerical_features": numerical}
        else:
            assert arrays["categorical_features"].dtype == np.int32
            look_up = self._tables.signatures["serving_default"]
            answer = look_up(categorical_features=tf.constant(arrays["categorical_features"]))
            inputs = {
                "embeddings": answer["embeddings"].numpy(),
                "numerical_features": arrays["numerical_features"],
            }
        (logits,) = self._dense.run(["DENSE_OUTPUT"], inputs)
        self._seconds += time.perf_counter() - started
        self.batches.append(len(logits))
        reply = service_pb2.ModelInferResponse(id=request.id)
        reply.outputs.add(name="DENSE_OUTPUT", datatype="FP32", shape=logits.shape)
        reply.raw_output_contents.append(logits.tobytes())
        return reply
