"""Contents of a training's checkpoints, and how a run starts from one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World

from config.checkpoint_flags import adopt_flags, adopt_original, resume_flags
from config.config import Config
from dataloading.keys.growth import Growth
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.yaml_io import dump_mapping
from preproc.encoding.encoder_folder import read_digest
from recipes.recipe import Goal, Recipe
from runtime import checkpoint
from runtime.checkpoint.resume import Request, Start
from runtime.hardware import device as devices
from training.state import Position, RunContext


def start_request(config: Config, data: FeatureSpec | None = None) -> Request:
    """Returns the start of a run and the place of its checkpoints, as flags name them; data: its
    data set, where known."""
    flags = config.checkpoint
    if config.run.mode != "train":
        return Request(weights=flags.restore_checkpoint_path)
    return Request(
        weights=flags.restore_checkpoint_path,
        resume=flags.resume or flags.load_checkpoint_path,
        is_optional=not flags.resume and flags.load_checkpoint_path is not None,
        save=flags.save_checkpoint_path,
        output=config.original.saved_model_output_path,
        replaces=config.family.replaces_training(config),
        data=fingerprint(data),
    )


def set_up_flags(config: Config) -> Config:
    """Returns the flags to set up processes and devices with: those of the training that resumes.

    Errors of the checkpoint are left to `find` and `adopt`, when ranks can agree on them.
    """
    path = start_request(config).resume_path
    if not path:
        return config
    try:
        description = checkpoint.describe(checkpoint.resolve(path)).description
        adopted, _ = resume_flags(config, description, path)
        return config.with_values(adopted)
    except ValueError:
        return config


def adopt(config: Config, start: Start) -> tuple[Config, checkpoint.Index | None, list[str]]:
    """Adds the flags that a checkpoint stores.

    Returns:
        All flags, the checkpoint's index (None without one), and the names of the flags of a
        resumed training that differ.
    """
    if start.path is None:
        if config.awaits_checkpoint:  # not saved yet
            config.check_complete()
        return config, None, []
    with checkpoint.suggest_previous(start.path, start.flag):
        saved = checkpoint.describe(start.path)
    if start.resumes:
        adopted, changed = resume_flags(config, saved.description, f"checkpoint {start.path}")
        return config.replace(**adopted), saved, changed
    read = adopt_original if checkpoint.is_original(start.path) else adopt_flags
    return config.replace(**read(config, saved.description)), saved, []


# Names in a description: folder of the run, relative to that of the checkpoints, and split of the
# evaluations.
_RUN_DIR, _SPLIT = "run_dir", "evaluated_split"


def training_weights(recipe: Recipe) -> list[checkpoint.Weight]:
    """Returns everything that a checkpoint of a training stores."""
    return recipe.model.weights_to_save() + recipe.model.optimizer_weights(recipe.optimizers)


def fingerprint(data: FeatureSpec | None) -> str | None:
    """Returns the fingerprint of a data set; None for data generated from flags."""
    return data.fingerprint() if data else None


def encoder_digest(data: FeatureSpec | None) -> str | None:
    """Returns the digest of a data set's encoder; None without one.

    Raises:
        ValueError: the encoder is damaged, or that of another data set.
    """
    if data is None or not (folder := data.base_directory / ENCODER_FOLDER).is_dir():
        return None
    return read_digest(folder, data.metadata.get(ENCODER_FOLDER))


def attached_files(data: FeatureSpec | None) -> dict[str, bytes | Path]:
    """Returns what checkpoints have of a data set, as `AttachedFiles` takes it: the feature spec
    and the encoder."""
    if data is None:
        return {}
    attached: dict[str, bytes | Path] = {SPEC_FILE: dump_mapping(data.to_dict())}
    if (folder := data.base_directory / ENCODER_FOLDER).is_dir():
        attached[ENCODER_FOLDER] = folder
    return attached


def describe_training(config: Config, recipe: Recipe, data: FeatureSpec | None) -> dict[str, Any]:
    """Returns a checkpoint's description of its model and of the training that it is from.

    Raises:
        ValueError: see `encoder_digest`.
    """
    return {
        "recipe": config.recipe,
        "model_flags": {**config.model_flags, **recipe.model_flags},
        "flags": config.flat(),
        "feature_spec": fingerprint(data),
        "encoder": encoder_digest(data),
        "id_spaces": list(Growth.from_spec(data).id_spaces),
        "training_rows": recipe.train.num_samples if recipe.train else None,
        "versions": devices.describe(),
    }


def position_of(
    start: Start, saved: checkpoint.Index | None, goal: Goal, data: FeatureSpec | None
) -> Position:
    """Returns the position from which a run trains: that of a resumed training, else the first."""
    if not start.resumes or saved is None:
        return Position()
    position = Position.from_json(saved.state, goal)
    has_grown = saved.description["feature_spec"] != fingerprint(data)
    return position.on_grown_data() if has_grown else position


def describe_training_run(run: RunContext) -> dict[str, Any]:
    """Returns the description of `describe_training`, with the folder of the run, and the split
    that it evaluates."""
    description = describe_training(run.config, run.recipe, run.data)
    if run.recipe.valid is not None:
        description[_SPLIT] = run.recipe.valid.split
    if run.start.folder is not None:
        root = run.start.folder.root
        description[_RUN_DIR] = os.path.relpath(run.run_dir.resolve(), root)
    return description


def metrics_of_training(
    config: Config, saved: checkpoint.Index | None, data: FeatureSpec | None
) -> dict[str, dict[str, float]]:
    """Returns the metrics that a checkpoint had in its training, for a run in another mode on the
    same data set, by the title of their column in a table of results; none if it was not evaluated
    then."""
    if config.run.mode == "train" or saved is None or _SPLIT not in saved.description:
        return {}
    if saved.description["feature_spec"] != fingerprint(data):
        return {}
    state = saved.state
    if not state.get("metrics") or state.get("evaluated_step") != state["step"]:
        return {}
    return {f"{saved.description[_SPLIT]} (step {state['step']})": state["metrics"]}


def training_run_dir(path: Path | None, saved: checkpoint.Index | None) -> Path | None:
    """Returns the folder of the run that trained a checkpoint; None if it is not there any more, or
    cannot be written."""
    if path is None or saved is None or _RUN_DIR not in saved.description:
        return None
    folder = os.path.relpath(path.resolve().parent / saved.description[_RUN_DIR])
    return Path(folder) if os.access(folder, os.W_OK) else None


def check_same_data(
    saved: Mapping[str, Any],
    config: Config,
    recipe: Recipe,
    data: FeatureSpec | None,
    path: Path,
) -> None:
    """Raises ValueError if a training cannot resume a checkpoint, or not with this data.

    Args:
        saved: the checkpoint's description, see `describe_training`.
        data: the data set, that of the checkpoint or one that has grown from it.
        path: the checkpoint.
    """
    if saved["feature_spec"] in Growth.from_spec(data).ancestors:
        return
    current = describe_training(config, recipe, data)
    for name in ("feature_spec", "training_rows"):
        if saved[name] != current[name]:
            raise ValueError(
                f"checkpoint {path} is of a training on other data: {name} was {saved[name]}, that "
                f"of {config.data.dataset_path or 'the generated rows'} is {current[name]}. To "
                "start a new training from its weights, use --restore_checkpoint_path; a training "
                "resumes with more data that `preproc.transcode --grow` encoded"
            )


def restore(
    start: Start,
    recipe: Recipe,
    world: World,
    data: FeatureSpec | None,
    saved: Mapping[str, Any],
) -> list[str]:
    """Restores the model, and the optimizers of a resumed training, from a checkpoint.

    Args:
        data: the data set.
        saved: the checkpoint's description, see `describe_training`; empty if it has none.

    Returns:
        Notes on tables whose rows differ from those of the checkpoint.

    Raises:
        ValueError: the ids of the data set are other values than those of the checkpoint.
    """
    assert start.path is not None
    model, growth = recipe.model, Growth.from_spec(data)
    data_of_start, id_spaces = saved.get("feature_spec"), saved.get("id_spaces", ())
    notes = list[str]()
    if data is not None:
        trained_on = saved.get("flags", {}).get("dataset_path")
        where = f"{start.flag} {start.path}"
        growth.check_ids(id_spaces, where, trained_on, data.base_directory)
        # Without vocabularies, which `check_ids` compares.
        encoders = {saved.get("encoder"), encoder_digest(data)} - {None}
        if len(encoders) > 1 and not id_spaces and not growth.id_spaces:
            notes.append(
                "the data set was not encoded as that of the checkpoint's training: its "
                "numbers have other scales, unless preproc.transcode --vocabulary "
                f"{trained_on or 'DIR'} encodes its rows"
            )
    weights = training_weights(recipe) if start.resumes else model.weights_to_save()
    # Evicted values moved the ids since an ancestor, not since the data set itself.
    is_same = data is not None and data.fingerprint() == data_of_start
    kept_rows = None if is_same else growth.kept_rows(data_of_start, id_spaces)
    with checkpoint.suggest_previous(start.path, start.flag):
        changes = checkpoint.restore(start.path, weights, world, start.resumes, kept_rows)
    if not changes:
        return notes
    rows = ", ".join(
        f"{table} {change.new:,} of {change.rows:,}"
        + (f" ({change.evicted:,} evicted)" if change.evicted else "")
        for table, change in changes.items()
    )
    notes.append(f"new rows of tables: {rows}")
    if data_of_start not in growth.ancestors and not growth.continues(id_spaces):
        notes.append(
            "the data set does not state that it has grown from the checkpoint's "
            "(preproc.transcode --grow): the first ids of each table must mean the same"
        )
    return notes
