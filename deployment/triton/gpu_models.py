"""Models for GPU servers: SavedModels of tables, or of all; the dense part by TensorRT."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import onnx
import tensorflow as tf

from deployment.artifacts import saved_models, tensorrt
from deployment.deploy.job import Job
from deployment.model.served_model import DenseModel
from deployment.model.served_parts import Parts
from deployment.serving.interface import (
    CHECKS,
    DENSE,
    SCORER,
    SPARSE,
    Tensor,
    answered,
    received,
)
from deployment.triton.config import (
    CONFIG_FILE,
    CPU,
    VERSION,
    Instances,
    keep_on_gpu,
    model_config,
    write_config,
)
from deployment.triton.python_models import write_python_model

_SAVED_MODEL = "model.savedmodel"

# How many copies of a model share a session of TensorFlow, and so its variables, in Triton's
# TensorFlow backend. It has sessions for each device of its own, and by default for each copy.
_SHARE = "MAX_SESSION_SHARE_COUNT"


def write_checks(job: Job, name: str, folder: Path) -> str:
    """Writes the checks of requests, which answer what they get with each row in one dimension.

    Triton's TensorFlow backend refuses a configuration whose tensors differ in rank, as those of
    histories do.
    """
    interface = job.interface._replace(role=CHECKS)
    answers, shapes = _in_one_dimension(answered(interface))
    write_python_model(job, name, folder, interface, answers, shapes)
    return "checks of requests, on the CPU"


def write_sparse(job: Job, name: str, folder: Path) -> str:
    """Writes the tables as a SavedModel, which bad requests do not reach."""
    on_device = job.placement.device
    parts = _behind_checks(job.parts)
    saved_models.write_sparse(parts, job.trained, _target(folder), on_device, job.quantize)
    instances = job.on_gpus if on_device else Instances(CPU, job.instances)
    _write_config(job, name, folder, SPARSE, instances, vectors_stay=bool(on_device))
    return f"a SavedModel with {job.placement.report()}"


def write_whole(job: Job, name: str, folder: Path) -> str:
    """Writes look-ups and dense part as one SavedModel, which bad requests do not reach."""
    saved_models.write_monolithic(
        _DenseBehindChecks(job.dense, job.parts),
        _behind_checks(job.parts),
        job.trained,
        _target(folder),
        job.placement.device,
        job.quantize,
    )
    _write_config(job, name, folder, SCORER, job.on_gpus)
    return f"a SavedModel in {job.interface.precision} with {job.placement.report()}"


class _DenseBehindChecks(tf.Module):
    """The dense part, of tensors with each row in one dimension."""

    def __init__(self, dense: DenseModel, parts: Parts):
        super().__init__(name="dense")
        self._dense = dense
        self._dims = [parts.tensor(name).dims for name in parts.dense_inputs]

    def score(self, *tensors: tf.Tensor) -> tf.Tensor:
        """As `DenseModel.score`."""
        split = len(tensors) - len(self._dims)
        shaped = [
            tf.reshape(tensor, [-1, *dims])
            for tensor, dims in zip(tensors[split:], self._dims, strict=True)
        ]
        return self._dense.score(*tensors[:split], *shaped)


def _behind_checks(parts: Parts) -> Parts:
    """The parts of a model that gets what checks answer: the checks know what is a history."""
    inputs, _ = _in_one_dimension(parts.inputs)
    return parts._replace(inputs=inputs, histories=())


def _in_one_dimension(
    tensors: Sequence[Tensor],
) -> tuple[tuple[Tensor, ...], dict[str, tuple[int, ...]]]:
    """Tensors with each row in one dimension, and of those that had more what they had, by name."""
    flat = tuple(tensor._replace(dims=(prod(tensor.dims),)) for tensor in tensors)
    return flat, {tensor.name: tensor.dims for tensor in tensors if len(tensor.dims) > 1}


def _target(folder: Path) -> Path:
    return folder / str(VERSION) / _SAVED_MODEL


def _write_config(
    job: Job,
    name: str,
    folder: Path,
    role: str,
    instances: Instances,
    vectors_stay: bool = False,
) -> None:
    """Writes the configuration of a SavedModel, whose tables all copies on a device share.

    Args:
      vectors_stay: whether what it answers stays on the GPU, for the model behind it.
    """
    interface = job.interface._replace(role=role)
    inputs, _ = _in_one_dimension(received(interface))
    config = model_config(
        name,
        {"platform": "tensorflow_savedmodel", "default_model_filename": _SAVED_MODEL},
        inputs,
        answered(interface),
        job.batching,
        instances,
        warm_up=job.warm_up,
        parameters={_SHARE: str(instances.count)},
    )
    if vectors_stay:
        keep_on_gpu(config)
    write_config(config, folder / CONFIG_FILE)


def write_dense(job: Job, name: str, folder: Path) -> str:
    """Writes the dense part behind SavedModels."""
    tensors = received(job.interface._replace(role=DENSE))
    return write_onnx(job, name, folder, job.onnx, tensors, {}, *_in_one_dimension(tensors))


def write_onnx(
    job: Job,
    name: str,
    folder: Path,
    file: Path,
    tensors: Sequence[Tensor],
    flat: Mapping[str, int],
    stated: Sequence[Tensor] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """Writes a dense part as TensorRT runs it, or ONNX until it can.

    Args:
      file: ONNX model.
      tensors: its inputs, and perhaps some that it does not read.
      flat: inputs of one dimension, with the values that each row has in them.
      stated: the tensors as its configuration states them, where that differs from `tensors`.
      shapes: see `model_config`.
    """
    # A tensor that the graph does not read is none of its inputs.
    read = {node.name for node in onnx.load(str(file)).graph.input}
    return tensorrt.write_dense_model(
        folder,
        file,
        [tensor for tensor in tensors if tensor.name in read and tensor.name not in flat],
        flat,
        job.interface.max_batch_size,
        job.interface.precision,
        lambda runs_on: model_config(
            name,
            runs_on,
            [tensor for tensor in stated or tensors if tensor.name in read],
            answered(job.interface),
            job.batching,
            job.on_gpus,
            warm_up=job.warm_up,
            flat=flat,
            shapes=shapes,
        ),
    )
