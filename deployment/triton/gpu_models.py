"""Models for GPU servers: tables or whole models as SavedModels, the dense part by TensorRT."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import onnx
import tensorflow as tf

from deployment.artifacts import saved_models
from deployment.artifacts.table_files import table_bytes
from deployment.deploy.model_builder import DeploymentContext
from deployment.model.served_model import DenseModel
from deployment.model.serving_spec import ServingSpec
from deployment.serving.interface import (
    CHECKS,
    DENSE,
    SCORER,
    SPARSE,
    ServedTensor,
    answered,
    received,
)
from deployment.triton import tensorrt
from deployment.triton.config import (
    CONFIG_FILE,
    CPU,
    Instances,
    accelerate,
    model_config,
    write_config,
)
from deployment.triton.python_models import write_python_model
from deployment.triton.repository import VERSION

_SAVED_MODEL = "model.savedmodel"

# Number of copies of a model that share a TensorFlow session, and thereby its variables, in
# Triton's TensorFlow backend. It has sessions per device, and by default per copy.
_SHARE = "MAX_SESSION_SHARE_COUNT"


def write_checks(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the checks of requests, which answer the request with one dimension per row.

    Triton's TensorFlow backend refuses a configuration whose tensors differ in rank, as histories
    and other tensors do.
    """
    interface = context.interface._replace(role=CHECKS)
    answers, shapes = _flattened(answered(interface))
    write_python_model(context, name, folder, interface, answers, shapes)
    return "checks of requests, on the CPU"


def write_sparse(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the tables as a SavedModel that receives checked requests."""
    placement = _placement(context)
    saved_models.write_sparse(
        _flat_spec(context.serving_spec),
        context.trained,
        _target(folder),
        placement.device,
        context.options.quantize_tables,
    )
    is_on_gpu = bool(placement.device)
    instances = context.on_gpus if is_on_gpu else Instances(CPU, context.options.instances)
    _write_config(context, name, folder, SPARSE, instances, vectors_stay=is_on_gpu)
    return f"a SavedModel with {placement.report()}"


def write_whole(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes lookups and dense part as one SavedModel that receives checked requests."""
    placement = _placement(context)
    saved_models.write_monolithic(
        _FlatDenseModel(context.dense, context.serving_spec),
        _flat_spec(context.serving_spec),
        context.trained,
        _target(folder),
        placement.device,
        context.options.quantize_tables,
    )
    _write_config(context, name, folder, SCORER, context.on_gpus)
    return f"a SavedModel in {context.interface.precision} with {placement.report()}"


class TablePlacement(NamedTuple):
    """Names of the tables on the device and on the host, and their sizes with scales."""

    device: tuple[str, ...]
    host: tuple[str, ...]
    device_bytes: int
    host_bytes: int

    def report(self) -> str:
        """Returns a line for the report."""
        return (
            f"{len(self.device)} tables on the device ({self.device_bytes / 1e9:.3f} GB), "
            f"{len(self.host)} on the host ({self.host_bytes / 1e9:.3f} GB)"
        )


def place(
    tables: Sequence[tuple[str, int, int]], device_memory_bytes: int, quantize: str
) -> TablePlacement:
    """Places the smallest tables on the device as far as they fit, the others on the host.

    Small tables have as many lookups as large ones, so this order saves the most lookups over the
    bus per byte. Tables are not split.
    """
    sizes = {name: table_bytes(rows, dim, quantize) for name, rows, dim in tables}
    on_device, used = [], 0
    for name in sorted(sizes, key=sizes.__getitem__):
        if used + sizes[name] > device_memory_bytes:
            break
        on_device.append(name)
        used += sizes[name]
    host = tuple(name for name in sizes if name not in on_device)
    return TablePlacement(tuple(on_device), host, used, sum(sizes[name] for name in host))


def _placement(context: DeploymentContext) -> TablePlacement:
    options = context.options
    budget_bytes = round((options.device_memory_gb or 0) * 1e9)
    return place(context.serving_spec.tables, budget_bytes, options.quantize_tables)


class _FlatDenseModel(tf.Module):
    """Dense part for tensors with one dimension per row."""

    def __init__(self, dense: DenseModel, serving_spec: ServingSpec):
        super().__init__(name="dense")
        self._dense = dense
        self._dims = [serving_spec.tensor(name).dims for name in serving_spec.dense_inputs]

    def score(self, *tensors: tf.Tensor) -> tf.Tensor:
        """Reshapes the tensors for `DenseModel.score`."""
        split = len(tensors) - len(self._dims)
        shaped = [
            tf.reshape(tensor, [-1, *dims])
            for tensor, dims in zip(tensors[split:], self._dims, strict=True)
        ]
        return self._dense.score(*tensors[:split], *shaped)


def _flat_spec(serving_spec: ServingSpec) -> ServingSpec:
    """Returns the specification of a model that receives the answers of checks."""
    inputs, _ = _flattened(serving_spec.inputs)
    return serving_spec._replace(inputs=inputs, histories=())


def _flattened(
    tensors: Sequence[ServedTensor],
) -> tuple[tuple[ServedTensor, ...], dict[str, tuple[int, ...]]]:
    """Returns tensors with one dimension per row, and the dims of those that had more, by name."""
    flat = tuple(tensor._replace(dims=(prod(tensor.dims),)) for tensor in tensors)
    return flat, {tensor.name: tensor.dims for tensor in tensors if len(tensor.dims) > 1}


def _target(folder: Path) -> Path:
    return folder / str(VERSION) / _SAVED_MODEL


def _write_config(
    context: DeploymentContext,
    name: str,
    folder: Path,
    role: str,
    instances: Instances,
    vectors_stay: bool = False,
) -> None:
    """Writes the configuration of a SavedModel, whose tables all copies on a device share."""
    interface = context.interface._replace(role=role)
    inputs, _ = _flattened(received(interface))
    config = model_config(
        name,
        {"platform": "tensorflow_savedmodel", "default_model_filename": _SAVED_MODEL},
        inputs,
        answered(interface),
        context.batching,
        instances,
        warm_up=context.warm_up,
        parameters={_SHARE: str(instances.count)},
    )
    if vectors_stay:
        accelerate(config, "gpu_io")
    write_config(config, folder / CONFIG_FILE)


def write_dense(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the dense part after SavedModels."""
    tensors = received(context.interface._replace(role=DENSE))
    return write_onnx(context, name, folder, context.onnx, tensors, {}, *_flattened(tensors))


def write_onnx(
    context: DeploymentContext,
    name: str,
    folder: Path,
    file: Path,
    tensors: Sequence[ServedTensor],
    flat: Mapping[str, int],
    stated: Sequence[ServedTensor] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """Writes a dense part for TensorRT, or as ONNX until a TensorRT plan is built.

    Args:
        context: inputs of the deployment.
        name: name of the model.
        folder: folder of the model.
        file: ONNX model.
        tensors: its inputs; tensors that the graph does not read are left out.
        flat: inputs of one dimension, with their number of values per row.
        stated: tensors as the configuration states them, if they differ from `tensors`.
        shapes: see `model_config`.
    """
    graph_inputs = {node.name for node in onnx.load(str(file)).graph.input}
    return tensorrt.write_dense_model(
        folder,
        file,
        [tensor for tensor in tensors if tensor.name in graph_inputs and tensor.name not in flat],
        flat,
        context.interface.max_batch_size,
        context.interface.precision,
        lambda runs_on: model_config(
            name,
            runs_on,
            [tensor for tensor in stated or tensors if tensor.name in graph_inputs],
            answered(context.interface),
            context.batching,
            context.on_gpus,
            warm_up=context.warm_up,
            flat=flat,
            shapes=shapes,
        ),
    )
