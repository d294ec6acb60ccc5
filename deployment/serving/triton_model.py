"""A model of Triton's Python backend; a repository has a copy of this file as `model.py`.

Triton starts a process for each instance, and beside the copy lies one of this package. The
parameter `threads` in config.pbtxt says how many threads work on a batch, at most one for each
core; 0 or none: the cores that there are, divided by the instances.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils  # is there in such a process only

if __name__ != "deployment.serving.triton_model":
    # As model.py: the package beside this file, not one that lies where the server was started,
    # which comes first in Triton's order.
    sys.path.insert(0, str(Path(__file__).absolute().parent))

from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest, check_scores
from deployment.serving.interface import SCORES
from deployment.serving.scorer import Model, all_cores


class TritonPythonModel:
    """What the backend calls: once `initialize`, `execute` for each batch, once `finalize`."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model.

        Args:
          args: `model_repository` (the model's folder), `model_version`, `model_name` and
            `model_config` (JSON).

        Raises:
          ValueError: it cannot be loaded; the server says why and has no such model.
        """
        _refuse_numpy_2()
        folder = Path(args["model_repository"]) / args["model_version"]
        interface = interfaces.read(folder)
        threads = threads_of(json.loads(args["model_config"]), all_cores())
        name = args["model_name"]
        log = pb_utils.Logger
        self._model = Model(
            folder, interface, threads, lambda said: log.log_warn(f"{name}: {said}"), preload=True
        )
        self._names = [tensor.name for tensor in interfaces.received(interface)]
        log.log_info(
            f"{name}: {interface.recipe}, role {interface.role}, {interface.precision}, "
            f"{self._model.threads} threads"
        )

    def execute(self, requests: Sequence) -> list:
        """A response for each request, in their order.

        All of them are one batch, where an answer has rows that belong to one request each. A
        request that breaks a rule gets its own error, and the others of the batch get their scores.
        """
        tensors = [self._tensors(request) for request in requests]
        if not self._model.by_rows:
            return [self._alone(arrays) for arrays in tensors]
        responses: list = [None] * len(requests)
        good = list(range(len(requests)))
        try:
            checked = self._model.check(_joined(tensors))
        except ValueError:  # rare: who is it?
            good = []
            for number, arrays in enumerate(tensors):
                try:
                    tensors[number] = self._model.check(arrays)
                    good.append(number)
                except BadRequest as error:
                    responses[number] = _refusal(error)
            if not good:
                return responses
            checked = _joined([tensors[number] for number in good])
        answer = self._model.answer(checked)
        first_row = 0
        for number in good:
            next_row = first_row + len(next(iter(tensors[number].values())))
            rows = {name: array[first_row:next_row] for name, array in answer.items()}
            responses[number] = _response(rows)
            first_row = next_row
        return responses

    def _alone(self, arrays: Mapping[str, np.ndarray]):
        """The response to a request that is computed by itself."""
        try:
            return _response(self._model.answer(self._model.check(arrays)))
        except BadRequest as error:
            return _refusal(error)

    def _tensors(self, request) -> dict[str, np.ndarray]:
        """A request's tensors; those that it lacks are missed by the checks."""
        found = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self._names}
        return {name: tensor.as_numpy() for name, tensor in found.items() if tensor is not None}

    def finalize(self) -> None:
        """Gives back what the model holds, when it is unloaded."""
        self._model.close()


def threads_of(config: Mapping, num_cores: int) -> int:
    """Threads of one instance by a model's configuration, as JSON has it.

    Raises:
      ValueError: the parameter is no whole number of 0 or more.
    """
    text = config.get("parameters", {}).get("threads", {}).get("string_value", "0")
    if not text.isdecimal():
        raise ValueError(
            f"config.pbtxt: the parameter threads is {text!r}; allowed: a whole number, 0 for all "
            "cores divided by the instances"
        )
    instances = sum(group.get("count", 1) for group in config.get("instance_group", ()))
    return int(text) or max(1, num_cores // max(1, instances))


def _joined(requests: Sequence[Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """The rows of requests as one; a ValueError where they do not go together."""
    if len(requests) == 1:
        return requests[0]
    names = requests[0].keys()
    if any(request.keys() != names for request in requests):
        raise ValueError("requests with different tensors")
    return {name: np.concatenate([request[name] for request in requests]) for name in names}


def _response(rows: Mapping[str, np.ndarray]):
    """The answer to a request; an error where a score is NaN."""
    if SCORES in rows:
        try:
            check_scores(rows[SCORES])
        except BadRequest as error:
            return _refusal(error)
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, rows[name]) for name in rows])


def _refusal(error: BadRequest):
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
    )


def _refuse_numpy_2() -> None:
    if int(np.__version__.split(".")[0]) >= 2:
        raise ValueError(
            f"NumPy {np.__version__} is installed where the model runs; Triton's Python backend "
            "takes arrays of NumPy below 2 only: install 'numpy<2' there"
        )
