"""A model of Triton's Python backend for tests of the server alone."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Returns sums of the rows as scores."""

    def execute(self, requests):
        result = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        sums = [x.sum(axis=1, keepdims=True).astype(np.float32) for x in result]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("scores", s)]) for s in sums]
