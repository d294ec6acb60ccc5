"""Inputs of a deployment's models, and the builder of one model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from deployment.deploy.deploy_options import DeployOptions
from deployment.model.served_model import DenseModel
from deployment.model.trained_model import TrainedModel
from deployment.serving.interface import Interface, ServedTensor, answered, received
from deployment.triton.config_pbtxt import CPU, GPU, Batching, Instances


class DeploymentContext(NamedTuple):
    """Inputs of all models of one deployment.

    `dense` is the dense part in TensorFlow, as served; `onnx` in float32 as an ONNX file, None if
    no model needs it. `interface` is that of the whole model. `key` is a hash of the content.
    """

    name: str
    key: str
    options: DeployOptions
    trained: TrainedModel
    dense: DenseModel
    onnx: Path | None
    interface: Interface
    batching: Batching

    @property
    def on_gpus(self) -> Instances:
        """Copies of a model on GPUs, with `--cpu` on the CPU."""
        if self.options.cpu:
            return Instances(CPU, self.options.instances)
        return Instances(GPU, self.options.instances, self.options.gpus or (0,))

    @property
    def warm_up(self) -> tuple[int, ...]:
        """Batch sizes that models compute before they are ready."""
        return (1,) if self.interface.top else (1, self.interface.max_batch_size)


class ModelBuilder(NamedTuple):
    """Builder of one model of a deployment: its tensors for an interface, and its files.

    `write(context, model name, folder)` fills the model's folder, which has an empty version
    folder, and returns a line for the report. `name` ends the model's name in an ensemble.
    """

    name: str
    receives: Callable[[Interface], Sequence[ServedTensor]]
    answers: Callable[[Interface], Sequence[ServedTensor]]
    write: Callable[[DeploymentContext, str, Path], str]


def of_role(
    role: str, write: Callable[[DeploymentContext, str, Path], str], is_encoded: bool = False
) -> ModelBuilder:
    """Returns a builder named after its role, with the tensors of that role; `is_encoded`: also of
    raw requests an earlier model encodes its inputs."""

    def of(interface: Interface) -> Interface:
        return interface._replace(role=role, **({"columns": ()} if is_encoded else {}))

    return ModelBuilder(
        role, lambda whole: received(of(whole)), lambda whole: answered(of(whole)), write
    )
