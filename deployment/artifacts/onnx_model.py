"""ONNX model of the dense part of a trained model."""

import logging
from pathlib import Path

import numpy as np

from deployment.artifacts.quantization_check import embeddings
from deployment.client.drawn_requests import drawn_request
from deployment.model.checkpoint_rows import CheckpointRows
from deployment.model.served_model import DenseModel
from deployment.model.trained_model import TrainedModel
from deployment.serving.dense import open_session
from deployment.serving.interface import EMBEDDINGS, LOGITS, Interface
from deployment.serving.scorer import sigmoid

OPSET = 17  # the newest that TensorRT 8.6 and OpenVINO 2023 read completely

# Tolerance of a logit between ONNX and TensorFlow, both in float32: some sixty times the measured
# difference (DLRM of the paper's sizes after 300 steps, 2,048 rows: 1.5e-6).
TOLERANCE = 1e-4
# Additional tolerance of a score: the sigmoids of one logit differ by up to 1.8e-7.
_SIGMOID_TOLERANCE = 5e-7
# Distance from 0 or 1 at which a score hardly determines its logit.
_SATURATED = 1e-5
BATCH_SIZES = (1, 3, 64)


def dense_to_onnx(dense: DenseModel, file: Path) -> None:
    """Converts a dense part in float32; inputs and output keep their names.

    Raises:
        ValueError: ONNX lacks an operation of TensorFlow.
    """
    import onnx
    import tensorflow as tf
    from tf2onnx import convert

    signature = dense.score.input_signature
    serve = tf.function(
        lambda *tensors: {dense.output: dense.score(*tensors)}, signature, autograph=False
    )
    logging.disable(logging.WARNING)  # of TensorFlow and the converter
    try:
        model, _ = convert.from_function(serve, signature, opset=OPSET)
    finally:
        logging.disable(logging.NOTSET)
    try:
        onnx.checker.check_model(model)  # unconverted operations are still in it
    except onnx.checker.ValidationError as error:
        raise ValueError(f"the dense part cannot be converted to ONNX: {error}") from None
    file.write_bytes(model.SerializeToString())


def check_against_tensorflow(
    dense: DenseModel, interface: Interface, trained: TrainedModel, file: Path
) -> str:
    """Compares an ONNX model of the dense part with TensorFlow, in float32, on drawn requests.

    Requests look up rows of the checkpoint: for random vectors most scores are 0 or 1, however much
    the logits differ. A score s may differ by `TOLERANCE` s (1 - s), the effect of `TOLERANCE` on
    its logit. Returns a line for the report.

    Raises:
        DamagedCheckpoint: a file of the checkpoint is missing or cut.
        ValueError: a score differs by more.
    """
    session, rng = open_session(file), np.random.default_rng(0)
    tables = {t.name: CheckpointRows(trained, t.name) for t in interface.tables}
    most, is_weak = 0.0, True
    for rows in BATCH_SIZES:
        arrays = drawn_request(interface, rows, rng)
        inputs = {name: arrays[name] for name in interface.dense_inputs}
        if interface.width:
            inputs = {EMBEDDINGS: embeddings(tables, interface, arrays), **inputs}
        (scores,) = session.run([dense.output], inputs)
        expected = dense.score(*inputs.values()).numpy().astype(np.float64)
        if dense.output == LOGITS:
            scores, expected = sigmoid(scores), sigmoid(expected).astype(np.float64)
        difference, slope = np.abs(scores - expected), expected * (1 - expected)
        allowed = TOLERANCE * slope + _SIGMOID_TOLERANCE
        if not (difference <= allowed).all():  # false for NaN
            worst = np.argmax(difference - allowed)  # the first NaN
            raise ValueError(
                f"{file}: of a batch of {rows} rows a score is {difference.flat[worst]:.2g} from "
                f"what TensorFlow computes, {expected.flat[worst]:.2g}; allowed there: "
                f"{allowed.flat[worst]:.2g}, which is {TOLERANCE:g} of the logit: install tf2onnx "
                "and onnxruntime in the versions of requirements/base.lock"
            )
        most = max(most, float(difference.max()))
        is_weak &= bool((slope <= _SATURATED).all())
    weak = f", but all of them within {_SATURATED:g} of 0 or 1" if is_weak else ""
    return f"scores within {most:.1e} of TensorFlow's{weak}"
