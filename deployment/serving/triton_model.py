"""A model of Triton's Python backend; a repository has a copy of this file as `model.py`.

Triton starts a process per instance, with a copy of this package next to that file. The parameter
`threads` in config.pbtxt is the number of threads per batch, limited to the number of cores; 0, the
default, divides the cores among the instances.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils  # exists in a process of the server only

if __name__ != "deployment.serving.triton_model":
    # As model.py: import the package next to this file, not one in the server's working directory,
    # which comes first in Triton's order.
    sys.path.insert(0, str(Path(__file__).absolute().parent))
    from deployment.serving import checksums

    checksums.verify(sys.path[0], "*.py")  # before other modules are imported

from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest, check_scores
from deployment.serving.interface import DENSE, ENCODED, KEYS, LOGITS, RECOMMENDER, SCORES
from deployment.serving.scorer import ServedModel, all_cores

_NO_VALUES = np.empty((0, 1))


class _EncodedTensors(dict[str, np.ndarray]):
    """Tensors of a request to a model of raw rows, with the parameter `ENCODED`."""


class TritonPythonModel:
    """Implements Triton's model protocol: `initialize`, `execute` per batch, `finalize`."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model; after a ValueError the server logs its message and lacks the model.

        Args:
            args: `model_repository` (the model's folder), `model_version`, `model_name` and
                `model_config` (JSON).
        """
        if int(np.__version__.split(".")[0]) >= 2:
            raise ValueError(
                f"NumPy {np.__version__} is installed in the model's environment; Triton's Python "
                "backend supports arrays of NumPy below 2 only: install 'numpy<2' there"
            )
        folder = Path(args["model_repository"]) / args["model_version"]
        interface = interfaces.read(folder)
        if interface.columns and interface.role != DENSE:
            _pack_texts()
        threads = threads_of(json.loads(args["model_config"]), all_cores())
        name, log = args["model_name"], pb_utils.Logger
        self._model = ServedModel(
            folder,
            interface,
            threads,
            lambda message: log.log_warn(f"{name}: {message}"),
            preload=True,
        )
        self._model.warm_up()
        log.log_info(
            f"{name}: {interface.recipe}, role {interface.role}, "
            f"{interface.precision}, {self._model.threads} threads"
        )

    def execute(self, requests: Sequence) -> list:
        """Returns a response per request, in order.

        All requests are computed as one batch, except for keys of HPS, which are ordered by table,
        not by row, and recommendations, which exclude different numbers of items. A request that
        breaks a rule gets its own error, and the others of the batch get their scores.
        """
        interface = self._model.interface
        takes_rows = bool(interface.columns) and interface.role != DENSE
        tensors = [_read_tensors(request, takes_rows) for request in requests]
        if interface.role in (KEYS, RECOMMENDER):
            return [response for arrays in tensors for response in self._respond([arrays])]
        return self._respond(tensors)

    def _respond(self, tensors: list[dict[str, np.ndarray]]) -> list:
        """Computes requests as one batch; returns a response per request."""
        responses: list = [None] * len(tensors)
        good = list(range(len(tensors)))
        try:
            checked = self._check(_joined(tensors))
        except ValueError:  # rare: find the bad requests
            good = []
            for number, arrays in enumerate(tensors):
                try:
                    tensors[number] = self._check(arrays)
                    good.append(number)
                except BadRequest as error:
                    responses[number] = _error_response(error)
            if not good:
                return responses
            checked = _joined([tensors[number] for number in good])
        answer = self._model.answer(checked)
        first_row = 0
        for number in good:
            next_row = first_row + len(next(iter(tensors[number].values())))
            rows = answer
            if len(good) > 1:
                rows = {name: array[first_row:next_row] for name, array in answer.items()}
            responses[number] = _response(rows)
            first_row = next_row
        return responses

    def _check(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._model.check(arrays, is_encoded=isinstance(arrays, _EncodedTensors))

    def finalize(self) -> None:
        self._model.close()


def _pack_texts() -> None:
    """Replaces the backend's function that makes texts of a tensor's bytes, one after the other:
    17 ms for 26 columns of 2,048 rows. They stay together until all columns are read, in 2 ms."""
    from preproc.encoding.joint import PackedTexts

    class TextTensor(np.ndarray):
        """Bytes of a tensor, to which the backend gives its shape."""

        def reshape(self, shape):
            texts = np.empty(shape, object)
            if texts.size:
                texts.ravel()[0] = PackedTexts(self.tobytes(), texts.size)
            return texts

    def read(encoded: np.ndarray) -> np.ndarray:
        content = encoded.tobytes()
        if int.from_bytes(content[:4], "little") != len(content) - 4:
            return encoded.view(TextTensor)
        single = np.empty(1, object)  # one text: a request of one row
        single[0] = content[4:]
        return single

    pb_utils.deserialize_bytes_tensor = read


def _read_tensors(request, takes_rows: bool) -> dict[str, np.ndarray]:
    tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    if takes_rows:
        parameters = json.loads(request.parameters())
        if parameters == {ENCODED: True}:
            return _EncodedTensors(tensors)
        # `/generate` makes parameters of other names than those of inputs: an unknown column, which
        # the checks refuse, would be a missing value of the column that was meant.
        tensors |= dict.fromkeys(parameters, _NO_VALUES)
    return tensors


def _error_response(error: BadRequest):
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
    )


def threads_of(config: Mapping, num_cores: int) -> int:
    """Returns the number of threads of an instance, by the model's configuration as JSON.

    Raises:
        ValueError: the parameter is not an integer of 0 or more.
    """
    text = config.get("parameters", {}).get("threads", {}).get("string_value", "0")
    if not text.isdecimal():
        raise ValueError(
            f"config.pbtxt: expected an integer of 0 or more as the parameter threads (0: all "
            f"cores divided by the instances), got {text!r}"
        )
    instances = sum(group.get("count", 1) for group in config.get("instance_group", ()))
    return int(text) or max(1, num_cores // max(1, instances))


def _joined(requests: Sequence[Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """Concatenates the rows of requests; raises ValueError if their tensors do not match."""
    if len(requests) == 1:
        return requests[0]
    first = requests[0]
    if any(r.keys() != first.keys() or type(r) is not type(first) for r in requests):
        raise ValueError("requests with different tensors")
    return type(first)({n: np.concatenate([r[n] for r in requests]) for n in first})


def _response(rows: Mapping[str, np.ndarray]):
    """Returns the answer to a request, or an error if a score is NaN."""
    for name in rows.keys() & {SCORES, LOGITS}:
        try:
            check_scores(rows[name])
        except BadRequest as error:
            return _error_response(error)
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, rows[name]) for name in rows])
