"""What differs between the servers that a repository can be for: which models, and how batched."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from deployment.deploy.job import Job, Model, of_role
from deployment.serving import hps_keys
from deployment.serving.interface import CHECKS, DENSE, SCORER, SPARSE, answered
from deployment.triton import gpu_models, python_models
from deployment.triton.config import CONFIG_FILE, Step, ensemble_config, write_config
from deployment.triton.hps import models as hps_models


class Backend(NamedTuple):
    """A kind of server.

    Attributes:
      ensemble: models in the order in which they are called.
      monolithic: the same with look-ups and dense part as one model; empty where there is no such
        thing.
      monolithic_in_tensorflow: whether TensorFlow computes the dense part of that one, not ONNX.
      batches: whether requests may be put together; else each is computed by itself.
    """

    ensemble: tuple[Model, ...]
    monolithic: tuple[Model, ...]
    monolithic_in_tensorflow: bool = False
    batches: bool = True


def _local(role: str) -> Model:
    return of_role(role, python_models.serving(role))


BACKENDS = {
    # Triton's Python backend, on the CPU. It checks what it gets, request by request.
    "local": Backend(ensemble=(_local(SPARSE), _local(DENSE)), monolithic=(_local(SCORER),)),
    # SavedModels and TensorRT know a bad request by a failed batch, or not at all.
    "tensorflow": Backend(
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
    # HPS computes request by request, and its flat answer has no batch.
    "hps": Backend(
        ensemble=(
            of_role(hps_keys.ROLE, hps_models.write_keys)._replace(answers=hps_keys.answered),
            Model(SPARSE, hps_keys.asked, hps_models.vectors, hps_models.write_tables),
            of_role(DENSE, hps_models.write_dense)._replace(
                receives=hps_models.vectors_and_dense_inputs
            ),
        ),
        monolithic=(),
        batches=False,
    ),
}


def names_of(name: str, models: Sequence[Model]) -> dict[str, Model]:
    """The models of a deployment by their names: that of the deployment, where there is one."""
    if len(models) == 1:
        return {name: models[0]}
    return {f"{name}_{model.name}": model for model in models}


def write_ensemble(job: Job, models: Sequence[Model], folder: Path) -> str:
    """Writes the ensemble of models, in the order of their calls.

    What a model answers, those behind it receive by the same name: also where the request has a
    tensor of that name, as what checks answer.

    Returns:
      A sentence for the report.
    """
    names = {tensor.name: tensor.name for tensor in job.interface.inputs}
    steps = []
    for name, model in names_of(job.name, models).items():
        inputs = {tensor.name: names[tensor.name] for tensor in model.receives(job.interface)}
        outputs = {}
        for tensor in model.answers(job.interface):
            twice = tensor.name in names
            outputs[tensor.name] = f"{model.name}_{tensor.name}" if twice else tensor.name
        names |= outputs
        steps.append(Step(name, inputs, outputs))
    config = ensemble_config(
        job.name,
        job.interface.inputs,
        answered(job.interface),
        steps,
        job.batching.max_batch_size,
    )
    write_config(config, folder / CONFIG_FILE)
    return f"ensemble of {', '.join(step.model for step in steps)}"
