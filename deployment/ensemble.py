"""The model that calls the others of a deployment, one after the other."""

from collections.abc import Sequence
from pathlib import Path

from deployment.job import Job, Model
from deployment.serving.interface import answered
from deployment.triton_config import CONFIG_FILE, Step, ensemble_config, write_config


def part_name(name: str, model: Model) -> str:
    """Name of a model in the ensemble of that name."""
    return f"{name}_{model.role}"


def write_ensemble(job: Job, models: Sequence[Model], folder: Path) -> str:
    """Writes the ensemble of models, in the order of their calls.

    What a model answers, those behind it receive by the same name: also where the request has a
    tensor of that name, as what checks answer.

    Returns:
      A sentence for the report.
    """
    names = {tensor.name: tensor.name for tensor in job.interface.inputs}
    steps = []
    for model in models:
        inputs = {tensor.name: names[tensor.name] for tensor in model.receives(job.interface)}
        outputs = {}
        for tensor in model.answers(job.interface):
            twice = tensor.name in names
            outputs[tensor.name] = f"{model.role}_{tensor.name}" if twice else tensor.name
        names |= outputs
        steps.append(Step(part_name(job.name, model), inputs, outputs))
    config = ensemble_config(
        job.name,
        job.interface.inputs,
        answered(job.interface),
        steps,
        job.batching.max_batch_size,
    )
    write_config(config, folder / CONFIG_FILE)
    return f"ensemble of {', '.join(step.model for step in steps)}"
