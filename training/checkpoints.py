"""Contents of a training's checkpoints, and how a run starts from one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from config import Config
from recipes.recipe import Recipe
from runtime import checkpoint
from runtime.checkpoint.resume import Start
from runtime.cluster.distributed import World
from runtime.hardware import device as devices
from runtime.logs.run_logger import RunLogger
from training.state import Position


def training_weights(recipe: Recipe) -> list[checkpoint.Weight]:
    """Returns everything that a checkpoint of a training stores."""
    return recipe.model.weights_to_save() + recipe.model.optimizer_weights(recipe.groups)


def describe_training(config: Config, recipe: Recipe, spec_hash: str | None) -> dict[str, Any]:
    """Returns a checkpoint's description of its model and of the training that it is from."""
    return {
        "recipe": config.recipe,
        "model_flags": dict(recipe.model_flags),
        "flags": config.flat(),
        "feature_spec": spec_hash,
        "training_rows": recipe.train.num_rows if recipe.train else None,
        "versions": devices.describe(),
        **({"no_resume": why} if (why := recipe.model.state_not_saved(recipe.groups)) else {}),
    }


def check_same_data(
    description: Mapping[str, Any],
    config: Config,
    recipe: Recipe,
    spec_hash: str | None,
    path: Path,
) -> None:
    """Checks that a training can resume a checkpoint with this data.

    Args:
        description: the checkpoint's description, see `describe_training`.
        path: the checkpoint.

    Raises:
        ValueError: the data differ, or the checkpoint cannot be resumed.
    """
    if why := description.get("no_resume") or recipe.model.state_not_saved(recipe.groups):
        raise ValueError(f"checkpoint {path} cannot be resumed: {why}")
    current = describe_training(config, recipe, spec_hash)
    for name in ("feature_spec", "training_rows"):
        if description[name] != current[name]:
            raise ValueError(
                f"checkpoint {path} is of a training on other data: {name} was "
                f"{description[name]}, that of "
                f"{config.data.dataset_path or 'the generated rows'} is {current[name]}. To start "
                "a new training from its weights, use --restore_checkpoint_path"
            )


def restore(start: Start, recipe: Recipe, world: World) -> None:
    """Restores the model, and the optimizers of a resumed training, from a checkpoint."""
    assert start.path is not None
    model = recipe.model
    with checkpoint.suggest_previous(start.path, start.flag):
        if start.resumes:
            checkpoint.restore(start.path, training_weights(recipe), world, everything=True)
        elif checkpoint.is_original(start.path):
            tables = [w for w in model.weights_to_save() if w.name.startswith("sparse/")]
            checkpoint.restore_original(start.path, tables, world)
        else:
            checkpoint.restore(start.path, model.weights_to_save(), world)


def describe_start(
    config: Config, path: Path, position: Position, total_steps: int | None, changed: Sequence[str]
) -> str:
    """Returns one line on the checkpoint that a run starts from.

    Args:
        path: the checkpoint.
        position: position of the training that resumes; step 0 of other runs.
        total_steps: steps of the whole training.
        changed: flags that differ from those of the checkpoint.
    """
    if not position.step:
        text = f"weights of {path}"
        if checkpoint.is_original(path):
            text += " (NVIDIA's layout: its tables; the MLPs and the interaction are initialized)"
        return text
    text = f"resumed {path} at step {position.step} of {total_steps}"
    if total_steps is not None and position.step >= total_steps:
        text += ": nothing is left to do"
    if changed:
        values = config.flat()
        flags = ", ".join(f"--{name} {values[name]}" for name in changed)
        text += f"; other than before: {flags}"
    return text


def note_versions(description: Mapping[str, Any], log: RunLogger) -> None:
    """Logs a note for each library whose version differs from that of the checkpoint."""
    current, saved = devices.describe(), description.get("versions", {})
    for name in ("python", "tensorflow", "numpy"):
        if saved.get(name, current[name]) != current[name]:
            log.message(
                f"note: the checkpoint is of {name} {saved[name]}, this process runs "
                f"{current[name]}"
            )
