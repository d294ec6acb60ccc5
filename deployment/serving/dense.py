"""Dense part of a model: from embeddings to scores, by onnxruntime or OpenVINO on the CPU."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from deployment.serving import checksums
from deployment.serving.interface import DENSE_FILE, EMBEDDINGS, Interface

# OpenVINO's names of the precisions.
_HINTS = {"fp16": "f16", "bf16": "bf16"}


class DenseRunner:
    """Runs the file `dense.onnx`: float32 by onnxruntime, bf16 and fp16 by OpenVINO. Thread-safe.

    On a CPU onnxruntime computes in float32 only; OpenVINO uses AMX, AVX512-BF16 or AVX512-FP16
    where the machine has them, else warns by `log`. Scores are always float32.

    Raises:
        ValueError: the file cannot be loaded, OpenVINO is not installed, or the file needs a tensor
            that the interface does not have.
    """

    def __init__(
        self, folder: str | Path, interface: Interface, threads: int, log: Callable[[str], None]
    ):
        path = Path(folder) / DENSE_FILE
        if not path.is_file():
            raise ValueError(f"{path}: does not exist; deploy the checkpoint again")
        checksums.verify(folder, DENSE_FILE)
        if interface.precision == "fp32":
            self._run, names = _by_onnxruntime(path, threads)
        else:
            self._run, names = _by_openvino(path, interface.precision, threads, log)
        # Tensors that the graph does not read are not among its inputs.
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
        """Computes scores [batch, 1] of embeddings [batch, width], all float32, and a request."""
        inputs = {name: arrays[name] for name in self._names}
        if self._reads_embeddings:
            inputs[EMBEDDINGS] = embeddings
        return self._run(inputs)


def open_session(file: str | Path, threads: int = 0):
    """Opens an `onnxruntime.InferenceSession` on the CPU that logs errors only.

    onnxruntime 1.31 identifies the machine by a number in ~/.cache and sends usage events to its
    vendor, unless an environment variable forbids it before the library is loaded. 0 threads are
    onnxruntime's choice.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # takes 0.3 s, and half precision does not need it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # one batch at a time; the graph has hardly any branches
    # Threads that spin between requests take cores from other instances and the server itself.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _by_onnxruntime(path: Path, threads: int) -> tuple[Callable, list[str]]:
    try:
        session = open_session(path, threads)
    except Exception as error:  # onnxruntime's exceptions have no other common base
        raise ValueError(
            f"{path}: onnxruntime cannot load it ({error}); deploy the checkpoint again"
        ) from None
    names = [node.name for node in session.get_inputs()]
    return lambda inputs: session.run(None, inputs)[0], names


def _by_openvino(
    path: Path, precision: str, threads: int, log: Callable[[str], None]
) -> tuple[Callable, list[str]]:
    """Returns a function that runs the graph in half precision, and the names of its inputs."""
    # Disables telemetry: OpenVINO works without this package.
    sys.modules.setdefault("openvino_telemetry", None)
    try:
        import openvino
    except ImportError as error:
        raise ValueError(
            f"--precision {precision} needs OpenVINO on a CPU, which cannot be imported ({error}): "
            "install openvino into the environment that serves, or deploy with --precision fp32"
        ) from None
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    settings["ENABLE_CPU_PINNING"] = False  # the server's threads have no cores of their own
    core, hint = openvino.Core(), _HINTS[precision]
    try:
        whole = core.read_model(str(path))
        names = [port.get_any_name() for port in whole.inputs]
        parts = [(whole, hint)]
        # In bfloat16 OpenVINO itself computes everything after the last product in float32.
        if precision == "fp16" and (product := _last_product(whole)) is not None:
            parts = list(zip(_split(openvino, whole, product), (hint, "f32"), strict=True))
        elif precision == "fp16":
            log(
                "--precision fp16: the scores are rounded to float16, too, because the model does "
                "not end in one matrix product"
            )
        several = [_compile(core, part, settings, of_part) for part, of_part in parts]
        for part, _ in parts:
            part.reshape({port: [1, *port.get_partial_shape()[1:]] for port in part.inputs})
        settings["INFERENCE_NUM_THREADS"] = 1  # a second one is woken in the time that it saves
        single = [_compile(core, part, settings, of_part) for part, of_part in parts]
    except RuntimeError as error:
        message = " ".join(str(error).split())  # has many lines
        raise ValueError(
            f"{path}: OpenVINO cannot load it ({message}); deploy the checkpoint again"
        ) from None
    actual = several[0].get_compiled_model().get_property("INFERENCE_PRECISION_HINT").to_string()
    if actual != hint:
        log(
            f"--precision {precision}: this CPU has no instructions for it, OpenVINO computes in "
            f"{actual}"
        )
    lock = threading.Lock()

    def run(inputs: dict[str, np.ndarray]) -> np.ndarray:
        arrays = [inputs[name] for name in names]
        with lock:
            for request in single if len(arrays[0]) == 1 else several:
                for number, array in enumerate(arrays):
                    shared = openvino.Tensor(np.require(array, requirements="CW"), True)
                    request.set_input_tensor(number, shared)
                arrays = [request.infer(share_outputs=True)[0]]
            return arrays[0].copy()  # the next batch overwrites OpenVINO's own memory

    return run, names


def _compile(core, part, settings: dict, hint: str):
    """Returns a request of a part. With one row, whose shapes are known, it takes 50 us less."""
    settings = settings | {"INFERENCE_PRECISION_HINT": hint}
    return core.compile_model(part, "CPU", settings).create_infer_request()


def _last_product(model):
    """Returns the one matrix product whose result becomes the logit, if it is the only one."""
    products, nodes = {}, [model.output(0).get_node()]
    while nodes:
        node = nodes.pop()
        if node.get_type_name() == "MatMul":
            products[node.get_name()] = node
        else:
            nodes += [port.get_source_output().get_node() for port in node.inputs()]
    return next(iter(products.values())) if len(products) == 1 else None


def _split(openvino, model, product) -> tuple:
    """Splits a model before its last product.

    In float16 logit and score would be rounded to 11 bits: many of 2,048 rows would have the same
    score.
    """
    hidden = product.input_value(0)
    body = openvino.Model([hidden], model.get_parameters(), "body")
    parameter = openvino.opset13.parameter(hidden.get_partial_shape(), np.float32)
    product.input(0).replace_source_output(parameter.output(0))
    return body, openvino.Model(model.get_results(), [parameter], "head")
