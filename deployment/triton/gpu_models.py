"""Models for GPU servers: tables or whole models as SavedModels, the dense part by TensorRT."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from pathlib import Path

import onnx

from deployment.artifacts import saved_models
from deployment.artifacts.table_files import table_bytes
from deployment.deploy.model_builder import DeploymentContext
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
from deployment.triton.config_pbtxt import (
    CONFIG_FILE,
    CPU,
    Instances,
    ModelConfig,
    accelerate,
    model_config,
    write_config,
)
from deployment.triton.python_models import write_python_model
from deployment.triton.repository import VERSION

SAVED_MODEL_FOLDER = "model.savedmodel"
SAVED_MODEL_PLATFORM = {
    "platform": "tensorflow_savedmodel",
    "default_model_filename": SAVED_MODEL_FOLDER,
}

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
    on_device, report = _write_tables(context, folder, saved_models.write_sparse)
    instances = context.on_gpus if on_device else Instances(CPU, context.options.instances)
    config = _config(context, name, SPARSE, instances)
    if on_device:
        accelerate(config, "gpu_io")
    write_config(config, folder / CONFIG_FILE)
    return f"a SavedModel with {report}"


def write_whole(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes lookups and dense part as one SavedModel that receives checked requests."""
    write = partial(saved_models.write_monolithic, context.dense)
    _, report = _write_tables(context, folder, write)
    write_config(_config(context, name, SCORER, context.on_gpus), folder / CONFIG_FILE)
    return f"a SavedModel in {context.interface.precision} with {report}"


def place(sizes: Mapping[str, int], device_memory_bytes: int) -> tuple[str, ...]:
    """Returns the names of the smallest tables, as far as they fit on the device together.

    Small tables have as many lookups as large ones, so this order saves the most lookups over the
    bus per byte. Tables are not split.
    """
    names = sorted(sizes, key=sizes.__getitem__)
    totals = accumulate(sizes[name] for name in names)
    return tuple(n for n, total in zip(names, totals, strict=True) if total <= device_memory_bytes)


def _write_tables(
    context: DeploymentContext, folder: Path, write: Callable[..., None]
) -> tuple[tuple[str, ...], str]:
    """Writes a SavedModel with tables, which receives the answers of checks; returns the tables on
    the device, and a report on the places of all."""
    tables, quantize = context.interface.tables, context.options.quantize_tables
    sizes = {t.name: table_bytes(t.rows, t.dim, quantize) for t in tables}
    on_device = place(sizes, round((context.options.device_memory_gb or 0) * 1e9))
    inputs, _ = _flattened(context.interface.inputs)
    interface = context.interface._replace(inputs=inputs, histories=())
    target = folder / str(VERSION) / SAVED_MODEL_FOLDER
    write(interface, context.trained, target, on_device, quantize)
    device_bytes = sum(sizes[name] for name in on_device)
    host_bytes = sum(sizes.values()) - device_bytes
    return on_device, (
        f"{len(on_device)} tables on the device ({device_bytes / 1e9:.3f} GB), "
        f"{len(sizes) - len(on_device)} on the host ({host_bytes / 1e9:.3f} GB)"
    )


def _flattened(
    tensors: Sequence[ServedTensor],
) -> tuple[tuple[ServedTensor, ...], dict[str, tuple[int, ...]]]:
    """Returns tensors with one dimension per row, and the dims of those that had more, by name."""
    flat = tuple(tensor._replace(dims=(prod(tensor.dims),)) for tensor in tensors)
    return flat, {tensor.name: tensor.dims for tensor in tensors if len(tensor.dims) > 1}


def _config(context: DeploymentContext, name: str, role: str, instances: Instances) -> ModelConfig:
    """Returns the configuration of a SavedModel, whose tables all copies on a device share."""
    interface = context.interface._replace(role=role, columns=())
    inputs, _ = _flattened(received(interface))
    return model_config(
        name,
        SAVED_MODEL_PLATFORM,
        inputs,
        answered(interface),
        context.batching,
        instances,
        warm_up=context.warm_up,
        parameters={_SHARE: str(instances.count)},
    )


def write_dense(context: DeploymentContext, name: str, folder: Path) -> str:
    """Writes the dense part after SavedModels."""
    tensors = received(context.interface._replace(role=DENSE))
    if context.options.served_dense_format == tensorrt.SAVED_MODEL:
        saved_models.write_dense(context.dense, folder / str(VERSION) / SAVED_MODEL_FOLDER)
        write_config(_config(context, name, DENSE, context.on_gpus), folder / CONFIG_FILE)
        return f"a SavedModel in {context.interface.precision}"
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

    Of the `tensors` those that the graph does not read are left out. `flat` are inputs of one
    dimension, with their number of values per row. `stated` are the tensors as the configuration
    states them, if they differ, and `shapes` those that Triton reshapes them to.
    """
    graph_inputs = {node.name for node in onnx.load(str(file)).graph.input}
    largest = context.interface.max_batch_size

    def config_of(runs_on: Mapping[str, str]) -> ModelConfig:
        return model_config(
            name,
            runs_on,
            [tensor for tensor in stated or tensors if tensor.name in graph_inputs],
            answered(context.interface),
            context.batching,
            context.on_gpus,
            warm_up=context.warm_up,
            flat=flat,
            shapes=shapes,
        )

    if context.options.served_dense_format == tensorrt.ONNX:
        return tensorrt.write_onnx_model(folder, file, config_of(tensorrt.RUNS_ONNX))
    return tensorrt.write_dense_model(
        folder,
        file,
        [tensor for tensor in tensors if tensor.name in graph_inputs and tensor.name not in flat],
        flat,
        (context.options.trt_optimal_batch_size or largest, largest),
        context.interface.precision,
        config_of,
    )
