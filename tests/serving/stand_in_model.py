"""Stand-in for a model that needs a GPU: equal tensors, computed by Triton's Python backend.

The copy in a version folder determines its original: `model.onnx`, run as it is; HPS, whose
`ps.json` is in the repository; or a SavedModel, in whose place a test puts the lookups of a
local deployment, and the dense part into its folder `dense` where it is in the SavedModel, too.
Each request is computed separately. `asked` gets the number of rows of each execution.
"""

import os
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).absolute().parent))


class TritonPythonModel:
    def initialize(self, args):
        self._folder = Path(args["model_repository"]) / args["model_version"]
        if (self._folder / "model.onnx").exists():
            self._compute = onnx_model(self._folder / "model.onnx")
        elif (self._folder / "hps_stand_in.py").exists():
            self._compute = hps(self._folder.parents[1] / "ps.json", args["model_name"])
        else:
            self._compute = part_of_a_local_model(self._folder)

    def execute(self, requests):
        answers = [
            self._compute({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
            for request in requests
        ]
        with open(self._folder / "asked", "a") as outcome:
            print(sum(len(next(iter(answer.values()))) for answer in answers), file=outcome)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in answer.items()])
            for answer in answers
        ]


def onnx_model(file):
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = sorted(node.name for node in session.get_inputs())

    def compute(arrays):
        assert sorted(arrays) == names
        return {"scores": session.run(["scores"], arrays)[0]}

    return compute


def hps(ps_file, name):
    from hps_stand_in import HpsStandIn

    backend = HpsStandIn(ps_file, name)
    return lambda arrays: {"OUTPUT0": backend.lookup(arrays["KEYS"], arrays["NUMKEYS"])}


def part_of_a_local_model(folder):
    from deployment.serving.interface import read, received
    from deployment.serving.scorer import ServedModel

    interface, dense = read(folder), folder / "dense"
    if dense.exists():
        interface = interface._replace(role="scorer")
    model = ServedModel(folder, interface, 1, dense_folder=dense)
    shapes = {tensor.name: tensor.dims for tensor in received(interface)}

    def compute(arrays):
        assert all(array.ndim == 2 for array in arrays.values()), "TensorFlow's backend wants that"
        shaped = {name: array.reshape(len(array), *shapes[name]) for name, array in arrays.items()}
        return {name: np.array(array) for name, array in model.answer(model.check(shaped)).items()}

    return compute
