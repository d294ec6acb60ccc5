"""The peer of `serving`: a SavedModel in Triton's Python backend, as one writes it in ten minutes.

A repository has a copy of this file as `model.py`, which runs in the training environment.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf
import triton_python_backend_utils as pb_utils  # is there in Triton's processes only


class TritonPythonModel:
    """Called by the backend."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the SavedModel, with TensorFlow's own choice of threads."""
        folder = Path(args["model_repository"], args["model_version"], "saved_model")
        self._model = tf.saved_model.load(str(folder))
        self._score = self._model.signatures["serving_default"]

    def execute(self, requests: Sequence) -> list:
        """Scores one request after the other."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensors = {tensor.name(): tf.constant(tensor.as_numpy()) for tensor in request.inputs()}
        scores = self._score(**tensors)["scores"].numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("scores", scores)])
