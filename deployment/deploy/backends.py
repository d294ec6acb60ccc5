"""Models of a repository for each kind of server."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from deployment.deploy.deploy_options import HPS, LOCAL, NVIDIA, TENSORFLOW, DeployOptions
from deployment.deploy.model_builder import DeploymentContext, ModelBuilder, of_role
from deployment.serving.interface import (
    CHECKS,
    DENSE,
    RECOMMENDER,
    SCORER,
    SPARSE,
    answered,
    received,
    refused,
)
from deployment.triton import gpu_models, python_models
from deployment.triton.config_pbtxt import (
    CONFIG_FILE,
    column_parameters,
    ensemble_config,
    write_config,
)
from deployment.triton.hps import hps_models as hps
from deployment.triton.hps import keys_of_clients


def _local(role: str) -> ModelBuilder:
    return of_role(role, partial(python_models.write_role, role=role))


# In SavedModels and TensorRT a bad request fails the whole batch or is not noticed.
_CHECKS = of_role(CHECKS, gpu_models.write_checks)

# Models in the order of their calls.
ENSEMBLES = {
    LOCAL: (_local(SPARSE), _local(DENSE)),
    TENSORFLOW: (
        _CHECKS,
        of_role(SPARSE, gpu_models.write_sparse, is_encoded=True),
        of_role(DENSE, gpu_models.write_dense),
    ),
    HPS: hps.model_builders(),
}
# Models if lookups and dense part are one model.
MONOLITHIC = {
    LOCAL: (_local(SCORER),),
    TENSORFLOW: (
        _CHECKS,
        of_role(SCORER, gpu_models.write_whole, is_encoded=True)._replace(name="model"),
    ),
}


def models_of(options: DeployOptions) -> tuple[ModelBuilder, ...]:
    """Returns the models of a deployment, in the order of their calls.

    With the tensors of NVIDIA's deployment no Python model checks requests on a GPU server: the
    SavedModel of the tables refuses ids that it does not have.
    """
    if options.backend == HPS and options.tensors == NVIDIA:
        return keys_of_clients.model_builders()
    if options.top_items:
        return (_local(RECOMMENDER),)
    models = (MONOLITHIC if options.monolithic else ENSEMBLES)[options.backend]
    if options.backend == TENSORFLOW and options.tensors == NVIDIA:
        return models[1:]
    return models


def names_of(
    name: str, models: Sequence[ModelBuilder], part_names: Mapping[str, str], key: str
) -> dict[str, ModelBuilder]:
    """Returns the builders by model name; a single model has the name of the deployment.

    Args:
        name: of the deployment.
        models: the builders.
        part_names: names of parts by role, as far as they were given.
        key: short hash of the content, which ends the names of other parts.
    """
    if len(models) == 1:
        return {name: models[0]}
    return {part_names.get(m.name, f"{name}_{m.name}_{key}"): m for m in models}


def write_ensemble(context: DeploymentContext, models: Sequence[ModelBuilder], folder: Path) -> str:
    """Writes the ensemble of models; returns a line for the report.

    Tensors of later models come from the latest model that answers a tensor of that name, also if
    the request has a tensor of the same name, such as the answers of checks.
    """
    named = names_of(context.name, models, context.options.part_names, context.key)
    description = f"ensemble of {', '.join(named)}"
    if context.options.backend == HPS and context.options.tensors == NVIDIA:
        write_config(keys_of_clients.ensemble(context, *named), folder / CONFIG_FILE)
        return description
    interface = context.interface
    requested = (*received(interface), *refused(interface))
    names = {tensor.name: tensor.name for tensor in requested}
    steps = []
    for name, model in named.items():
        is_raw = interface.columns and not steps
        tensors = requested if is_raw else model.receives(interface)
        inputs = {tensor.name: names[tensor.name] for tensor in tensors}
        outputs = {}
        for tensor in model.answers(interface):
            twice = tensor.name in names
            outputs[tensor.name] = f"{model.name}_{tensor.name}" if twice else tensor.name
        names |= outputs
        steps.append((name, inputs, outputs))
    config = ensemble_config(
        context.name,
        requested,
        answered(interface),
        steps,
        context.batching.max_batch_size,
        column_parameters(interface) if interface.columns else None,
        [tensor.name for tensor in requested] if interface.columns else (),
    )
    write_config(config, folder / CONFIG_FILE)
    return description
