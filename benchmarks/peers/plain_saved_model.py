"""The peer of `serving`: a SavedModel in Triton's Python backend, as one writes it in ten minutes.

A repository has a copy of this file as `model.py`, which runs in the training environment.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import triton_python_backend_utils as pb_utils  # is there in Triton's processes only
from tensorflow.experimental.dlpack import to_dlpack


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
        # By DLPack: the backend's own arrays are those of NumPy below 2.
        tensors = {t.name(): tf.constant(np.from_dlpack(t)) for t in request.inputs()}
        scores = to_dlpack(self._score(**tensors)["scores"])
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("scores", scores)])
