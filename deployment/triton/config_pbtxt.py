"""`config.pbtxt` of a served model, as Triton's protobuf messages.

Documentation of the fields: github.com/triton-inference-server/server, docs/user_guide/
model_configuration.md and ensemble_models.md.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import (
    TYPE_BOOL,
    TYPE_FP32,
    TYPE_FP64,
    TYPE_INT32,
    TYPE_INT64,
    TYPE_STRING,
    ModelConfig,
    ModelInstanceGroup,
)

from deployment.serving.interface import BOOL, FLOAT64, TEXT, Interface, ServedTensor

CONFIG_FILE = "config.pbtxt"

CPU, GPU = "KIND_CPU", "KIND_GPU"

# Parameter of the configuration with the columns of raw requests, a JSON array of `RawColumn`s.
COLUMNS = "columns"

_TYPES = {"float32": TYPE_FP32, "int32": TYPE_INT32, "int64": TYPE_INT64}
_TYPES |= {TEXT: TYPE_STRING, FLOAT64: TYPE_FP64, BOOL: TYPE_BOOL}


class Batching(NamedTuple):
    """Batching of requests, which may wait for others although the model is free.

    With `max_batch_size` 0 Triton does not batch: the first dimension of the tensors is a batch of
    any size.
    """

    max_batch_size: int
    dynamic: bool
    max_queue_delay_us: int


class Instances(NamedTuple):
    """Copies of a model that run concurrently: `count` on the CPU, or on each of the GPUs.

    Without numbers of GPUs Triton takes all of them.
    """

    kind: str
    count: int
    gpus: tuple[int, ...] = ()


def model_config(
    name: str,
    runs_on: Mapping[str, str],
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    batching: Batching,
    instances: Instances,
    *,
    warm_up: Collection[int] = (),
    parameters: Mapping[str, str] | None = None,
    flat: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    optional: Collection[str] = (),
) -> ModelConfig:
    """Returns the configuration of a model other than an ensemble.

    Args:
        runs_on: `platform`, `backend` and `default_model_filename`, as far as they apply.
        inputs: input tensors; -1 is a dimension of any length.
        warm_up: batch sizes of zeros, valid ids and numerical values, that the server computes
            before it is ready: the first user does not pay for allocations and choices of kernels.
        parameters: other parameters of the backend. flat: inputs of one dimension with their number
        of values per row, without Triton's batching. shapes: shapes of the model's tensors that
        differ from those here; Triton reshapes them. optional: names of inputs that a request may
        lack.
    """
    config = ModelConfig(name=name, max_batch_size=batching.max_batch_size, **runs_on)
    _add_tensors(config, inputs, outputs, batching.max_batch_size, optional)
    for stated in (*config.input, *config.output):
        if stated.name in (shapes or {}):
            stated.reshape.shape.extend(shapes[stated.name])
    config.version_policy.latest.num_versions = 1
    config.instance_group.append(
        ModelInstanceGroup(
            kind=ModelInstanceGroup.Kind.Value(instances.kind),
            count=instances.count,
            gpus=instances.gpus,
        )
    )
    if batching.max_batch_size and batching.dynamic:
        # No preferred sizes, none is faster than its neighbours: a batch has all waiting requests.
        delay = batching.max_queue_delay_us
        config.dynamic_batching.max_queue_delay_microseconds = delay
    for key, value in (parameters or {}).items():
        config.parameters[key].string_value = value
    for rows in sorted(set(warm_up)):
        required = [tensor for tensor in inputs if tensor.name not in optional]
        _add_warm_up(config, required, rows, flat or {})
    return config


def ensemble_config(
    name: str,
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    steps: Sequence[tuple[str, Mapping[str, str], Mapping[str, str]]],
    max_batch_size: int,
    parameters: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
) -> ModelConfig:
    """Returns the configuration of an ensemble, whose models batch and warm up.

    Each step has a model, the names in the ensemble by names of its inputs, and of its outputs.
    """
    config = ModelConfig(name=name, platform="ensemble", max_batch_size=max_batch_size)
    _add_tensors(config, inputs, outputs, max_batch_size, optional)
    for model, input_map, output_map in steps:
        config.ensemble_scheduling.step.add(
            model_name=model, model_version=-1, input_map=input_map, output_map=output_map
        )
    for key, value in (parameters or {}).items():
        config.parameters[key].string_value = value
    return config


def column_parameters(interface: Interface) -> dict[str, str]:
    """Returns the parameter that describes raw columns to clients."""
    columns = [column._asdict() for column in interface.columns]
    return {COLUMNS: json.dumps(columns, ensure_ascii=False)}


def accelerate(config: ModelConfig, name: str, **parameters: str) -> None:
    """Adds an accelerator of the backend to the configuration of a model on a GPU.

    "tensorrt" makes onnxruntime run supported operations by TensorRT, in the `precision_mode`
    "FP32" or "FP16". "gpu_io" makes TensorFlow keep inputs and outputs on the GPU instead of
    copying them to the host, and back for the next model of an ensemble.
    """
    accelerators = config.optimization.execution_accelerators.gpu_execution_accelerator
    accelerators.add(name=name, parameters=parameters)


def write_config(config: ModelConfig, path: Path) -> None:
    """Writes a configuration as text."""
    path.write_text(text_format.MessageToString(config))


def _add_tensors(
    config: ModelConfig,
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    max_batch_size: int,
    optional: Collection[str],
) -> None:
    for stated, tensors in ((config.input, inputs), (config.output, outputs)):
        for tensor in tensors:
            dims = tensor.dims if max_batch_size else (-1, *tensor.dims)
            stated.add(name=tensor.name, data_type=_TYPES[tensor.dtype], dims=dims)
    for entry in config.input:
        entry.optional = entry.name in optional


def _add_warm_up(
    config: ModelConfig, inputs: Sequence[ServedTensor], rows: int, flat: Mapping[str, int]
) -> None:
    batched = bool(config.max_batch_size)
    # Triton skips samples of batch size 0, also of a model without batches.
    sample = config.model_warmup.add(
        name=f"{rows} rows of zeros", batch_size=rows if batched else 1
    )
    for tensor in inputs:
        entry = sample.inputs[tensor.name]
        entry.data_type, entry.zero_data = _TYPES[tensor.dtype], True
        whole = (rows * flat.get(tensor.name, 1), *tensor.dims)
        entry.dims.extend(tensor.dims if batched else whole)
