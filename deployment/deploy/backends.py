"""Registry of backends: the models of a repository for each kind of server."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from deployment.deploy.deploy_options import HPS, LOCAL, TENSORFLOW
from deployment.deploy.model_builder import DeploymentContext, ModelBuilder, of_role
from deployment.serving.interface import CHECKS, DENSE, SCORER, SPARSE, answered
from deployment.triton import gpu_models, python_models
from deployment.triton.config import CONFIG_FILE, EnsembleStep, ensemble_config, write_config
from deployment.triton.hps import backend as hps
from deployment.triton.hps import files as hps_files


class Backend(NamedTuple):
    """A kind of server.

    Attributes:
        ensemble: models in the order of their calls.
        monolithic: models if lookups and dense part are one model; empty if not supported.
        monolithic_in_tensorflow: whether TensorFlow computes the dense part of that model, instead
            of ONNX.
        batches: whether the server may batch requests.
        check_repository: raises ValueError for a repository that cannot be updated.
        update_repository: updates files of the repository after models changed.
    """

    ensemble: tuple[ModelBuilder, ...]
    monolithic: tuple[ModelBuilder, ...]
    monolithic_in_tensorflow: bool = False
    batches: bool = True
    check_repository: Callable[[Path], object] = lambda repository: None
    update_repository: Callable[[Path], None] = lambda repository: None


def _local(role: str) -> ModelBuilder:
    return of_role(role, python_models.write_role(role))


BACKENDS = {
    # Triton's Python backend, on the CPU. It checks each request.
    LOCAL: Backend(ensemble=(_local(SPARSE), _local(DENSE)), monolithic=(_local(SCORER),)),
    # In SavedModels and TensorRT a bad request fails the whole batch or is not noticed.
    TENSORFLOW: Backend(
        ensemble=(
            of_role(CHECKS, gpu_models.write_checks),
            of_role(SPARSE, gpu_models.write_sparse),
            of_role(DENSE, gpu_models.write_dense),
        ),
        monolithic=(
            of_role(CHECKS, gpu_models.write_checks),
            of_role(SCORER, gpu_models.write_whole)._replace(name="model"),
        ),
        monolithic_in_tensorflow=True,
    ),
    # HPS computes requests one by one, and its flat answer has no batch dimension.
    HPS: Backend(
        ensemble=hps.model_builders(),
        monolithic=(),
        batches=False,
        check_repository=hps_files.read_ps_json,
        update_repository=hps_files.update_ps_json,
    ),
}


def names_of(name: str, models: Sequence[ModelBuilder]) -> dict[str, ModelBuilder]:
    """Returns the builders by model name; a single model has the name of the deployment."""
    if len(models) == 1:
        return {name: models[0]}
    return {f"{name}_{model.name}": model for model in models}


def write_ensemble(context: DeploymentContext, models: Sequence[ModelBuilder], folder: Path) -> str:
    """Writes the ensemble of models, in the order of their calls.

    Tensors of later models come from the latest model that answers a tensor of that name, also if
    the request has a tensor of the same name, such as the answers of checks.

    Returns:
        A line for the report.
    """
    names = {tensor.name: tensor.name for tensor in context.interface.inputs}
    steps = []
    for name, model in names_of(context.name, models).items():
        inputs = {tensor.name: names[tensor.name] for tensor in model.receives(context.interface)}
        outputs = {}
        for tensor in model.answers(context.interface):
            twice = tensor.name in names
            outputs[tensor.name] = f"{model.name}_{tensor.name}" if twice else tensor.name
        names |= outputs
        steps.append(EnsembleStep(name, inputs, outputs))
    config = ensemble_config(
        context.name,
        context.interface.inputs,
        answered(context.interface),
        steps,
        context.batching.max_batch_size,
    )
    write_config(config, folder / CONFIG_FILE)
    return f"ensemble of {', '.join(step.model for step in steps)}"
