"""ONNX models of a trained model: the part behind the look-ups, and all of it with its tables.

dense_to_onnx(saved_model, dense)         # of `deployment.saved_models.write_dense`
check_against_tensorflow(...)             # before it is used
monolithic_onnx(dense, parts, trained, model)
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dataloading.failed_writes import names_file
from deployment.drawn_requests import drawn_request
from deployment.onnx_lookups import LookUpGraph
from deployment.parts import Parts
from deployment.served_model import DenseModel
from deployment.serving.interface import EMBEDDINGS, SCORES
from deployment.serving.onnx_session import open_session
from deployment.table_files import NONE, served_blocks
from deployment.trained_model import Trained

OPSET = 17  # the newest that TensorRT 8.6 and OpenVINO 2023 read completely

# A score may differ by so much between ONNX and TensorFlow, both in float32.
TOLERANCE = 1e-5
BATCH_SIZES = (1, 3, 64)

# Of a tensor in the file of tables, so that it can be mapped into memory where it lies.
_ALIGNMENT = 4096


def dense_to_onnx(saved_model: Path, file: Path) -> None:
    """Converts the part of a model behind its look-ups, in this process.

    Args:
      saved_model: folder of a float32 SavedModel.
      file: the ONNX model; its inputs and its output have the names of the SavedModel's.

    Raises:
      ValueError: TensorFlow has an operation for it that ONNX lacks.
      OSError: the file cannot be written.
    """
    import onnx
    import tensorflow as tf
    from tf2onnx import convert, tf_loader

    with _quiet():
        graph, inputs, outputs, names = tf_loader.from_saved_model(
            str(saved_model),
            None,
            None,
            tag=tf.saved_model.SERVING,
            signatures=[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY],
            return_tensors_to_rename=True,
        )
        model, _ = convert.from_graph_def(
            graph, input_names=inputs, output_names=outputs, opset=OPSET, tensors_to_rename=names
        )
    try:
        onnx.checker.check_model(model)  # what could not be converted is there as it was
    except onnx.checker.ValidationError as error:
        raise ValueError(f"{saved_model} cannot be converted to ONNX: {error}") from None
    with names_file(file):
        file.write_bytes(model.SerializeToString())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A block in which the converter and TensorFlow log errors only."""
    loggers = [logging.getLogger(name) for name in ("tf2onnx", "tensorflow")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def check_against_tensorflow(
    dense: DenseModel,
    parts: Parts,
    file: Path,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    tolerance: float = TOLERANCE,
) -> float:
    """The largest difference of a score between an ONNX model and TensorFlow, on drawn inputs.

    Args:
      dense: the part of the model behind its look-ups, in float32.
      parts: of the model.
      file: the same as ONNX.
      batch_sizes: nothing may depend on the number of rows.
      tolerance: how much a score may differ.

    Raises:
      ValueError: a score differs by more.
    """
    session, rng, most = open_session(file), np.random.default_rng(0), 0.0
    for rows in batch_sizes:
        arrays = drawn_request(parts, rows, rng)
        inputs = {name: arrays[name] for name in parts.dense_inputs}
        if parts.width:
            vectors = rng.normal(size=(rows, parts.width)).astype(np.float32)
            inputs = {EMBEDDINGS: vectors, **inputs}
        (found,) = session.run([SCORES], inputs)
        expected = dense.score(*inputs.values()).numpy()
        difference = float(np.abs(found - expected).max())
        if not difference <= tolerance:  # NaN is none
            raise ValueError(
                f"{file}: of a batch of {rows} rows a score is {difference:.2g} from what "
                f"TensorFlow computes; allowed: {tolerance:g}. This version of tf2onnx or "
                "onnxruntime computes something else: install those of requirements.lock"
            )
        most = max(most, difference)
    return most


def monolithic_onnx(
    dense: Path, parts: Parts, trained: Trained, file: Path, quantize: str = NONE
) -> None:
    """Writes a model from a request to `scores`, tables included.

    The tables are in `<file>.data` beside it, which onnxruntime maps into memory: they are
    streamed there, block by block, and may be of any size. An id outside of its table ends the run
    with an error that names the feature's look-up; a row with a numerical that is not finite, or
    with a 0 in a history that is no padding in front, scores NaN.

    Args:
      dense: the ONNX model behind the look-ups.
      parts: of the model.
      trained: whose tables are read, every block checked.
      file: the model.
      quantize: how tables are stored, `--quantize_tables`.

    Raises:
      Damaged: a file of the checkpoint is missing, cut or changed.
      ValueError: a value is too large for float16.
      OSError: a file cannot be written.
    """
    import onnx

    data = file.with_name(f"{file.name}.data")
    graph = LookUpGraph(parts, quantize, data.name, _ALIGNMENT)
    model = graph.in_front_of(onnx.load(dense))
    with names_file(file):
        file.write_bytes(model.SerializeToString())
    if parts.tables:
        _write_tables(data, graph, trained, quantize)


def _write_tables(data: Path, graph: LookUpGraph, trained: Trained, quantize: str) -> None:
    """Writes rows and scales of all tables to their places."""
    with names_file(data), open(data, "xb", buffering=0) as stream:
        stream.truncate(graph.size_bytes)
        for table, (values, scales) in graph.places.items():
            for first, block, block_scales in served_blocks(trained, table, quantize):
                _write_at(stream, values + first * block.strides[0], block)
                if block_scales is not None:
                    _write_at(stream, scales + first * block_scales.itemsize, block_scales)


def _write_at(stream, start: int, values: np.ndarray) -> None:
    stream.seek(start)
    rest = np.ascontiguousarray(values).data.cast("B")
    while rest:
        rest = rest[stream.write(rest) :]
