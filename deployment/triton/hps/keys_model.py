"""Model of Triton's Python backend: checks a request and computes its keys for HPS.

The model's folder has a copy of this file as `model.py`. Requests are not batched: keys are grouped
by table, not by row.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import triton_python_backend_utils as pb_utils  # exists in a process of the server only

if __name__ != "deployment.triton.hps.keys_model":
    sys.path.insert(0, str(Path(__file__).absolute().parent))

from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest, RequestChecker
from deployment.serving.triton_model import error_response, read_tensors, refuse_numpy_2
from deployment.triton.hps import keys


class TritonPythonModel:
    """Implements Triton's model protocol."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the interface of the model; `args` are those of the backend."""
        refuse_numpy_2()
        self._interface = interfaces.read(Path(args["model_repository"]) / args["model_version"])
        self._names = [tensor.name for tensor in interfaces.received(self._interface)]
        self._checker = RequestChecker(self._interface)

    def execute(self, requests: Sequence) -> list:
        """Returns a response per request, in order."""
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        try:
            arrays = self._checker.check(read_tensors(request, self._names))
        except BadRequest as error:
            return error_response(error)
        tensors = keys.answer(self._interface, arrays)
        return pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in tensors.items()])
