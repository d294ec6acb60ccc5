"""Models for GPU servers: SavedModels of tables, or of all; the dense part by TensorRT."""

from collections.abc import Sequence
from pathlib import Path

import onnx

from deployment import saved_models, tensorrt
from deployment.job import Job
from deployment.serving.interface import DENSE, SPARSE, Interface, Tensor, answered, received
from deployment.triton_config import (
    CONFIG_FILE,
    CPU,
    GPU,
    VERSION,
    Batching,
    Instances,
    model_config,
    write_config,
)

_SAVED_MODEL = "model.savedmodel"


def write_sparse(job: Job, name: str, folder: Path) -> str:
    """Writes the tables as a SavedModel, which bad requests do not reach."""
    on_device = job.placement.device
    saved_models.write_sparse(job.parts, job.trained, _target(folder), on_device, job.quantize)
    interface = job.interface._replace(role=SPARSE)
    kind = GPU if on_device else CPU
    _write_config(job, name, folder, interface, job.batching, kind)
    return f"a SavedModel with {job.placement.report()}"


def write_whole(job: Job, name: str, folder: Path) -> str:
    """Writes all of a model as a SavedModel.

    It refuses a bad request by an assertion in its graph, which fails all of the batch: put
    together with others', somebody else's bad request would be their error. So none are.
    """
    on_device = job.placement.device
    saved_models.write_monolithic(
        job.dense, job.parts, job.trained, _target(folder), on_device, job.quantize
    )
    batching = job.batching._replace(dynamic=False)
    _write_config(job, name, folder, job.interface, batching, GPU)
    return (
        f"a SavedModel in {job.interface.precision} with {job.placement.report()}; requests are "
        "not put together, because a bad one fails its batch"
    )


def _target(folder: Path) -> Path:
    return folder / str(VERSION) / _SAVED_MODEL


def _write_config(
    job: Job, name: str, folder: Path, interface: Interface, batching: Batching, kind: str
) -> None:
    runs_on = {"platform": "tensorflow_savedmodel", "default_model_filename": _SAVED_MODEL}
    instances = Instances(kind, job.instances)
    config = model_config(
        name, runs_on, received(interface), answered(interface), batching, instances
    )
    write_config(config, folder / CONFIG_FILE)


def write_dense(job: Job, name: str, folder: Path) -> str:
    """Writes the dense part behind SavedModels."""
    tensors = received(job.interface._replace(role=DENSE))
    return write_onnx(job, name, folder, job.onnx, tensors, {})


def write_onnx(
    job: Job, name: str, folder: Path, file: Path, tensors: Sequence[Tensor], flat: dict[str, int]
) -> str:
    """Writes a dense part as TensorRT runs it, or ONNX until it can.

    Args:
      file: ONNX model.
      tensors: its inputs, and perhaps some that it does not read.
      flat: inputs of one dimension, with the values that each row has in them.
    """
    # A tensor that the graph does not read is none of its inputs.
    read = {node.name for node in onnx.load(str(file)).graph.input}
    inputs = [tensor for tensor in tensors if tensor.name in read]
    return tensorrt.write_dense_model(
        folder,
        file,
        [tensor for tensor in inputs if tensor.name not in flat],
        flat,
        job.interface.max_batch_size,
        job.interface.precision,
        lambda runs_on: model_config(
            name,
            runs_on,
            inputs,
            answered(job.interface),
            job.batching,
            Instances(GPU, job.instances),
            flat=flat,
        ),
    )
