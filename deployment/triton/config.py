"""`config.pbtxt` of a served model, made of Triton's own protobuf messages.

The meaning of the fields: github.com/triton-inference-server/server, docs/user_guide/
model_configuration.md and ensemble_models.md.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import (
    TYPE_FP32,
    TYPE_INT32,
    TYPE_INT64,
    ModelConfig,
    ModelEnsembling,
    ModelInstanceGroup,
    ModelOptimizationPolicy,
)

from deployment.serving.interface import ServedTensor
from runtime.files.atomic import write_errors_name

CONFIG_FILE = "config.pbtxt"

CPU, GPU = "KIND_CPU", "KIND_GPU"

_TYPES = {"float32": TYPE_FP32, "int32": TYPE_INT32, "int64": TYPE_INT64}


class Batching(NamedTuple):
    """How a model puts requests together.

    Attributes:
        max_batch_size: rows of a batch at most. 0: the first dimension of the tensors is the batch,
            of any size, Triton knows nothing of batches, and the other attributes are not used.
        dynamic: whether requests that wait are put together into one batch.
        max_queue_delay_us: how long one waits for others though the model is free, in microseconds.
    """

    max_batch_size: int
    dynamic: bool
    max_queue_delay_us: int


class Instances(NamedTuple):
    """Copies of a model that run at the same time.

    Attributes:
        kind: "KIND_CPU" or "KIND_GPU".
        count: how many, of KIND_GPU on each GPU.
        gpus: numbers of the GPUs; empty of KIND_CPU. (Of KIND_GPU Triton would take all GPUs that
            there are.)
    """

    kind: str
    count: int
    gpus: tuple[int, ...] = ()


class EnsembleStep(NamedTuple):
    """A model in an ensemble, with the names that the ensemble has for its tensors.

    Attributes:
        model: its name.
        inputs, outputs: of each of its tensors the ensemble's name.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


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
) -> ModelConfig:
    """Configuration of a model that is no ensemble.

    Args:
        name: of the model, and of its folder.
        runs_on: `platform`, `backend` and `default_model_filename`, those that apply.
        inputs, outputs: without the batch, a dimension of any length is -1; see `batching`.
        batching: how requests are put together.
        instances: copies of the model.
        warm_up: for so many rows of zeros, in range for ids and numericals alike, the server asks the
            model before it is ready: the first user shall not pay for memory that is allocated and
            kernels that are chosen then.
        parameters: what the backend reads beside.
        flat: inputs of one dimension, with the values that each row has in them; only where Triton
            knows of no batches.
        shapes: of tensors which the model has in another shape than stated here, that shape; Triton
            converts them.
    """
    config = ModelConfig(name=name, max_batch_size=batching.max_batch_size, **runs_on)
    _add_tensors(config, inputs, outputs, batching.max_batch_size)
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
        # No preferred sizes: none is quicker than its neighbours, so that a batch is what waits.
        delay = batching.max_queue_delay_us
        config.dynamic_batching.max_queue_delay_microseconds = delay
    for key, value in (parameters or {}).items():
        config.parameters[key].string_value = value
    for rows in sorted(set(warm_up)):
        _add_warm_up(config, inputs, rows, flat or {})
    return config


def ensemble_config(
    name: str,
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    steps: Sequence[EnsembleStep],
    max_batch_size: int,
) -> ModelConfig:
    """Configuration of an ensemble; it neither batches nor warms up, its models do.

    Raises:
        ValueError: a step reads a tensor that no request and no step before it has.
    """
    known = {tensor.name for tensor in inputs}
    config = ModelConfig(name=name, platform="ensemble", max_batch_size=max_batch_size)
    _add_tensors(config, inputs, outputs, max_batch_size)
    for step in steps:
        if missing := sorted(set(step.inputs.values()) - known):
            raise ValueError(f"ensemble {name}: nothing gives {missing} to {step.model}")
        known |= set(step.outputs.values())
        config.ensemble_scheduling.step.append(
            ModelEnsembling.Step(
                model_name=step.model,
                model_version=-1,
                input_map=step.inputs,
                output_map=step.outputs,
            )
        )
    if missing := sorted({tensor.name for tensor in outputs} - known):
        raise ValueError(f"ensemble {name}: no step gives {missing}")
    return config


def accelerate_by_tensorrt(config: ModelConfig, precision_mode: str) -> None:
    """Lets Triton's onnxruntime run what TensorRT can run by TensorRT.

    Args:
        config: of a model of the onnxruntime backend on a GPU.
        precision_mode: "FP32" or "FP16"; the backend knows no other of floating point.
    """
    accelerator = ModelOptimizationPolicy.ExecutionAccelerators.Accelerator(
        name="tensorrt", parameters={"precision_mode": precision_mode}
    )
    config.optimization.execution_accelerators.gpu_execution_accelerator.append(accelerator)


def keep_on_gpu(config: ModelConfig) -> None:
    """Lets Triton's TensorFlow take inputs from the GPU and leave outputs there.

    Without, what a SavedModel answers goes to the memory of the host, and the next model of an
    ensemble brings it back.

    Args:
        config: of a SavedModel on a GPU.
    """
    accelerator = ModelOptimizationPolicy.ExecutionAccelerators.Accelerator(name="gpu_io")
    config.optimization.execution_accelerators.gpu_execution_accelerator.append(accelerator)


def write_config(config: ModelConfig, path: Path) -> None:
    """Writes a configuration as text.

    Raises:
        OSError: the file cannot be written; it names the file.
    """
    with write_errors_name(path):
        path.write_text(text_format.MessageToString(config))


def _add_tensors(
    config: ModelConfig,
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    max_batch_size: int,
) -> None:
    for stated, tensors in ((config.input, inputs), (config.output, outputs)):
        for tensor in tensors:
            dims = tensor.dims if max_batch_size else (-1, *tensor.dims)
            stated.add(name=tensor.name, data_type=_TYPES[tensor.dtype], dims=dims)


def _add_warm_up(
    config: ModelConfig, inputs: Sequence[ServedTensor], rows: int, flat: Mapping[str, int]
) -> None:
    batched = bool(config.max_batch_size)
    # Triton leaves a sample of batch size 0 out, also of a model without batches.
    sample = config.model_warmup.add(
        name=f"{rows} rows of zeros", batch_size=rows if batched else 1
    )
    for tensor in inputs:
        asked = sample.inputs[tensor.name]
        asked.data_type, asked.zero_data = _TYPES[tensor.dtype], True
        whole = (rows * flat.get(tensor.name, 1), *tensor.dims)
        asked.dims.extend(tensor.dims if batched else whole)
