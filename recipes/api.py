"""Python API: train, evaluate and predict as the command line does, in this process.

Flags are arguments of the same names. Errors are exceptions with the messages of the command line:
ValueError for flags and data, OSError for files, `training.errors.TrainingDiverged`. Signals keep
their meaning in the program; a training that is interrupted saves no checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed_embeddings.collectives.launch import launched
from numpy.typing import NDArray

from config.command_line import parse
from config.config import Config
from config.family import Definition
from recipes.execution import execute
from recipes.registry import definition_of
from recipes.run_results import Result
from runtime.cluster import launcher
from runtime.files.predictions import read_predictions
from runtime.logs import run_folder
from runtime.tensorflow_start import import_tensorflow, prepare_tensorflow

if TYPE_CHECKING:
    from recipes.loaded_model import LoadedModel

# Flags that decide where a training saves its checkpoints, or that it saves none.
_SAVING = {
    *("save_checkpoint_path", "resume", "load_checkpoint_path", "checkpoint_dir"),
    *("saved_model_output_path", "benchmark", "flagfile", "plan_only"),
}
CHECKPOINTS = "checkpoints"  # folder in that of the run


def train(recipe: str | Definition, **flags: Any) -> Result:
    """Trains a model.

    One process saves checkpoints in the folder of the run, unless a flag names another folder. The
    folder of the run is new, `runs/<recipe>-<data>-<number>`, unless `run_dir` names one.

    Args:
        recipe: `dlrm`, `dcnv2`, `sim` or `ncf`, or the definition of another recipe, itself or as
            "module:NAME".
        **flags: flags by name; lists may be Python's, and None leaves a flag out.

    Raises:
        ValueError, OSError, TrainingDiverged: see `recipes.execution.execute`.

    Example:
        >>> result = train("dlrm", dataset_path="data/clicks", epochs=2)
        >>> result.metrics["auc"], result.checkpoint, result.plots
    """
    definition = definition_of(recipe)
    passed = {definition.aliases.get(name, name) for name in flags if flags[name] is not None}
    run_dir = None
    if launched() is None and not passed & _SAVING:
        config, run_dir = _saving_in_run_dir(definition, flags)
    else:
        config = _parse(definition, "train", flags)
    try:
        return _run(config)
    except BaseException:
        if run_dir is not None and {p.name for p in run_dir.rglob("*")} <= {CHECKPOINTS, ".lock"}:
            shutil.rmtree(run_dir)  # the run failed before it began
        raise


def evaluate(recipe: str | Definition, **flags: Any) -> Result:
    """Measures the metrics of a trained model.

    Args:
        recipe: as of `train`.
        **flags: flags by name; `restore_checkpoint_path` names the model.

    Raises:
        ValueError, OSError: see `recipes.execution.execute`.

    Example:
        >>> evaluate("dlrm", dataset_path="data/clicks", restore_checkpoint_path=result.checkpoint)
    """
    return _run(_parse(definition_of(recipe), "eval", flags))


def predict(recipe: str | Definition, **flags: Any) -> NDArray[np.float32]:
    """Returns the score of every sample of a split, in the order of the samples.

    Args:
        recipe: as of `train`.
        **flags: flags by name; `restore_checkpoint_path` names the model, and `predictions_path` a
            file that is also to have the scores.

    Returns:
        float32 [samples], on several ranks on rank 0 and [0] on the others.

    Raises:
        ValueError, OSError: see `recipes.execution.execute`.

    Example:
        >>> predict("dlrm", dataset_path="data/clicks", restore_checkpoint_path=result.checkpoint)
    """
    definition = definition_of(recipe)
    with tempfile.TemporaryDirectory() as folder:
        path = flags.get("predictions_path") or os.path.join(folder, "scores.npy")
        config = _parse(definition, "predict", {**flags, "predictions_path": path})
        if not flags.get("predictions_path"):
            explicit = config.explicit - {"predictions_path"}
            config = dataclasses.replace(config, explicit=explicit)
        _run(config)
        if launcher.rank() != 0:
            return np.empty(0, np.float32)
        return read_predictions(path)


def load_model(
    checkpoint: str | os.PathLike[str],
    dataset_path: str | os.PathLike[str] | None = None,
    recipe: str | Definition | None = None,
) -> LoadedModel:
    """Returns the model of a checkpoint, which scores raw rows and encoded batches.

    Args:
        checkpoint: a checkpoint, or a folder of them, of which the best is taken where the
            training kept it (`keep_best`), else the newest.
        dataset_path: folder of the data set; None: where the training found it, or what the
            checkpoint has of it.
        recipe: as of `train`, the recipe of the checkpoint; None: a built-in one.

    Raises:
        ValueError: the checkpoint or the data set cannot be read.

    Example:
        >>> model = load_model(result.checkpoint)
        >>> model.predict({"city": ["Bern", None], "price": [12.5, 8]})  # float32 [rows]
        >>> model(batch)  # scores of encoded samples, float32 [samples]
    """
    if not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(
            f"checkpoint: expected the path of a checkpoint or of a folder of them, got "
            f"{checkpoint!r}; a training that saved none has None as `Result.checkpoint`"
        )
    prepare_tensorflow()
    import_tensorflow()
    from recipes.loaded_model import LoadedModel

    return LoadedModel(checkpoint, dataset_path, recipe)


def _parse(definition: Definition, mode: str, flags: dict[str, Any]) -> Config:
    """Returns the flags of a call, as the command line reads them."""
    if "mode" in flags:
        raise ValueError(
            f"mode: this function runs --mode {mode}, got mode={flags['mode']!r}; leave it out, or "
            "call another function of train, evaluate and predict"
        )
    arguments = [_argument(name, value) for name, value in flags.items() if value is not None]
    argv = [definition.name, f"--mode={mode}", *arguments]
    config = parse(argv, definition)
    if config.distribution.plan_only:
        raise ValueError(
            f"--plan_only is of the command line: run python {definition.name}.py --plan_only, or "
            "leave it out"
        )
    return config


def _argument(name: str, value: Any) -> str:
    """Returns an argument of a function as one of a command line."""
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, Iterable) and not isinstance(value, str):
        value = ",".join(map(str, value))
    return f"--{name}={value}"


def _saving_in_run_dir(definition: Definition, flags: dict[str, Any]) -> tuple[Config, Path]:
    """Returns the flags of a training that saves in the folder of the run, and that folder."""
    placeholder = {**flags, "save_checkpoint_path": CHECKPOINTS}
    config = _parse(definition, "train", placeholder)
    run_dir = run_folder.make_run_dir(
        config.logs.run_dir,
        run_folder.training_names(config.recipe, config.data.dataset_path),
    )
    paths = {"run_dir": str(run_dir), "save_checkpoint_path": str(run_dir / CHECKPOINTS)}
    explicit = config.explicit | set(paths)
    return dataclasses.replace(config.with_values(paths), explicit=explicit), run_dir


def _run(config: Config) -> Result:
    prepare_tensorflow()
    return execute(config, catches_signals=False)
