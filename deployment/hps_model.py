"""The model in front of HPS, for Triton's Python backend: checks a request and asks for its keys.

Copied as `model.py` into the version folder, beside the package that it imports.
"""

import sys
from pathlib import Path

import triton_python_backend_utils as triton  # the server has it

if __name__ != "deployment.hps_model":
    # As model.py: the package beside this file, not one that lies where the server was started,
    # which comes first in Triton's order.
    sys.path.insert(0, str(Path(__file__).absolute().parent))

from deployment.hps_keys import KEYS, NUM_KEYS, keys_of
from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest, Checks


class TritonPythonModel:
    """Request tensors -> KEYS, NUMKEYS and those tensors that the dense part reads, checked."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the interface."""
        folder = Path(args["model_repository"]) / args["model_version"]
        self._interface = interfaces.read(folder)
        self._checks = Checks(self._interface)

    def execute(self, requests: list) -> list:
        """One response for each request: a bad one gets an error, the others do not notice."""
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        try:
            checked = self._checks.check(arrays)
        except BadRequest as error:
            return triton.InferenceResponse(
                error=triton.TritonError(str(error), triton.TritonError.INVALID_ARG)
            )
        keys, counts = keys_of(self._interface, checked)
        found = {KEYS: keys, NUM_KEYS: counts}
        found |= {name: checked[name] for name in self._interface.dense_inputs}
        return triton.InferenceResponse([triton.Tensor(*item) for item in found.items()])
