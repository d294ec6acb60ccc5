"""Models of a repository for each kind of server."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from deployment.deploy.deploy_options import HPS, LOCAL, TENSORFLOW
from deployment.deploy.model_builder import DeploymentContext, ModelBuilder, of_role
from deployment.serving.interface import CHECKS, DENSE, SCORER, SPARSE, answered
from deployment.triton import gpu_models, python_models
from deployment.triton.config import CONFIG_FILE, ensemble_config, write_config
from deployment.triton.hps import backend as hps


def _local(role: str) -> ModelBuilder:
    return of_role(role, partial(python_models.write_role, role=role))


# In SavedModels and TensorRT a bad request fails the whole batch or is not noticed.
_CHECKS = of_role(CHECKS, gpu_models.write_checks)

# Models in the order of their calls.
ENSEMBLES = {
    LOCAL: (_local(SPARSE), _local(DENSE)),
    TENSORFLOW: (
        _CHECKS,
        of_role(SPARSE, gpu_models.write_sparse),
        of_role(DENSE, gpu_models.write_dense),
    ),
    HPS: hps.model_builders(),
}
# Models if lookups and dense part are one model.
MONOLITHIC = {
    LOCAL: (_local(SCORER),),
    TENSORFLOW: (_CHECKS, of_role(SCORER, gpu_models.write_whole)._replace(name="model")),
}


def names_of(name: str, models: Sequence[ModelBuilder]) -> dict[str, ModelBuilder]:
    """Returns the builders by model name; a single model has the name of the deployment."""
    if len(models) == 1:
        return {name: models[0]}
    return {f"{name}_{model.name}": model for model in models}


def write_ensemble(context: DeploymentContext, models: Sequence[ModelBuilder], folder: Path) -> str:
    """Writes the ensemble of models; returns a line for the report.

    Tensors of later models come from the latest model that answers a tensor of that name, also if
    the request has a tensor of the same name, such as the answers of checks.
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
        steps.append((name, inputs, outputs))
    config = ensemble_config(
        context.name,
        context.interface.inputs,
        answered(context.interface),
        steps,
        context.batching.max_batch_size,
    )
    write_config(config, folder / CONFIG_FILE)
    return f"ensemble of {', '.join(name for name, _, _ in steps)}"
