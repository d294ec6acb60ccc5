"""The dense part of a model: from embeddings to scores, by onnxruntime or OpenVINO on the CPU."""

import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from deployment.serving.interface import DENSE_FILE, EMBEDDINGS, SCORES, Interface
from deployment.serving.onnx_session import open_session

# What OpenVINO calls the precisions.
_HINTS = {"fp16": "f16", "bf16": "bf16"}


class DenseRunner:
    """The file `dense.onnx`, ready to run; float32 by onnxruntime, bf16 and fp16 by OpenVINO.

    On a CPU onnxruntime computes in float32 only; OpenVINO uses instructions for the others (AMX,
    AVX512-BF16, AVX512-FP16) where the machine has them. Scores are float32 in any case. Threads
    may share it.

    Args:
      folder: the version folder.
      interface: what the dense part gets, and its precision.
      threads: that work on a batch.
      log: gets a sentence where the precision is not what was asked for.

    Raises:
      ValueError: the file cannot be loaded, OpenVINO is not installed, or the file needs a tensor
        that the interface does not have.
    """

    def __init__(
        self, folder: str | Path, interface: Interface, threads: int, log: Callable[[str], None]
    ):
        path = Path(folder) / DENSE_FILE
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file; deploy the checkpoint again")
        if interface.precision == "fp32":
            self._run, names = _by_onnxruntime(path, threads)
        else:
            self._run, names = _by_openvino(path, interface.precision, threads, log)
        # What the graph does not read, the converter left out.
        unknown = set(names) - {EMBEDDINGS, *interface.dense_inputs}
        if unknown:
            raise ValueError(
                f"{path}: needs {', '.join(sorted(unknown))}; the interface has {EMBEDDINGS}"
                f"{''.join(f', {name}' for name in interface.dense_inputs)}; deploy the "
                "checkpoint again"
            )
        self._names = [name for name in names if name != EMBEDDINGS]
        self._reads_embeddings = EMBEDDINGS in names

    def run(self, embeddings: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Scores float32 [batch, 1].

        Args:
          embeddings: float32 [batch, width].
          arrays: the request's tensors, of which it takes those it reads.
        """
        fed = {name: arrays[name] for name in self._names}
        if self._reads_embeddings:
            fed[EMBEDDINGS] = embeddings
        return self._run(fed)


def _by_onnxruntime(path: Path, threads: int) -> tuple[Callable, list[str]]:
    """What runs the graph, and the names of its inputs."""
    try:
        session = open_session(path, threads)
    except Exception as error:  # onnxruntime's own kinds, which share no other base
        raise ValueError(
            f"{path}: onnxruntime cannot load it ({error}); deploy the checkpoint again"
        ) from None
    names = [node.name for node in session.get_inputs()]
    return lambda fed: session.run([SCORES], fed)[0], names


def _by_openvino(
    path: Path, precision: str, threads: int, log: Callable[[str], None]
) -> tuple[Callable, list[str]]:
    """The same by OpenVINO in half precision."""
    # Through this package OpenVINO tells its maker of its use; it does without where it is absent.
    sys.modules.setdefault("openvino_telemetry", None)
    try:
        import openvino
    except ImportError as error:
        raise ValueError(
            f"--precision {precision} needs OpenVINO on a CPU, which cannot be imported ({error}): "
            "install openvino into the environment that serves, or deploy with --precision fp32"
        ) from None
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    core, hint = openvino.Core(), _HINTS[precision]
    try:
        whole = core.read_model(str(path))
        names = [port.get_any_name() for port in whole.inputs]
        parts = [(whole, hint)]
        # Of bfloat16 it computes what follows the last product in float32 by itself.
        if precision == "fp16" and (product := _last_product(whole)) is not None:
            parts = list(zip(_cut(openvino, whole, product), (hint, "f32"), strict=True))
        elif precision == "fp16":
            log(
                "--precision fp16: the scores are rounded to float16, too, because the model does "
                "not end in one matrix product"
            )
        compiled = [
            core.compile_model(part, "CPU", settings | {"INFERENCE_PRECISION_HINT": computed_in})
            for part, computed_in in parts
        ]
    except RuntimeError as error:
        said = " ".join(str(error).split())  # of many lines
        raise ValueError(
            f"{path}: OpenVINO cannot load it ({said}); deploy the checkpoint again"
        ) from None
    computed_in = compiled[0].get_property("INFERENCE_PRECISION_HINT").to_string()
    if computed_in != hint:
        log(
            f"--precision {precision}: this CPU has no instructions for it, OpenVINO computes in "
            f"{computed_in}"
        )
    requests, lock = [part.create_infer_request() for part in compiled], threading.Lock()

    def run(fed: dict[str, np.ndarray]) -> np.ndarray:
        with lock:
            for request in requests:
                fed = [request.infer(fed, share_inputs=True, share_outputs=True)[0]]
            return fed[0].copy()  # of OpenVINO's own memory, which the next batch overwrites

    return run, names


def _last_product(model):
    """The matrix product whose result becomes the logit; None where there is not exactly one."""
    found, ahead = {}, [model.output(SCORES).get_node()]
    while ahead:
        node = ahead.pop()
        if node.get_type_name() == "MatMul":
            found[node.get_name()] = node
        else:
            ahead += [port.get_source_output().get_node() for port in node.inputs()]
    return next(iter(found.values())) if len(found) == 1 else None


def _cut(openvino, model, product) -> tuple:
    """A model in two: up to what its last product multiplies, and from there to the scores.

    In float16 the logit and the score would be rounded to 11 bits: of 2,048 rows many would have
    the same one.
    """
    hidden = product.input_value(0)
    body = openvino.Model([hidden], model.get_parameters(), "body")
    given = openvino.opset13.parameter(hidden.get_partial_shape(), np.float32)
    product.input(0).replace_source_output(given.output(0))
    return body, openvino.Model(model.get_results(), [given], "head")
