"""Checks of the flags of a search, before its first trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from config.config import Config
from dataloading.spec.feature_spec import VALIDATION, FeatureSpec
from recipes.from_flags import evaluation_split
from recipes.preset_choice import with_preset
from recipes.search.space import Parameter

# Flags of one run, which trials would share.
_OF_ONE_RUN = (
    *("run_dir", "log_path", "tensorboard_dir", "rank_logs", "mlperf_log", "checkpoint_dir"),
    *("save_checkpoint_path", "resume", "load_checkpoint_path", "saved_model_output_path"),
    *("plan_only", "benchmark"),
)
# Flags that decide what is measured: metrics of trials that differ in them cannot be compared.
_OF_ALL_TRIALS = (
    *("mode", "eval_mapping", "dataset_path", "feature_spec", "dataset_type", "flagfile"),
    *("restore_checkpoint_path", "predictions_path", "log_filename", "mlflow_uri", "metric"),
)


def check_flags(config: Config, data: FeatureSpec | None, best_flags: Path) -> None:
    """Raises ValueError if trials with these flags do not evaluate validation samples, or flags are
    those of one run.

    Args:
        config: the flags of all trials, or of one.
        data: the data set; None for samples that are generated from flags.
        best_flags: file of the best flags, for the message.
    """
    if config.run.mode != "train":
        raise ValueError(f"a search trains models, got --mode {config.run.mode}: leave it out")
    if not config.evaluation.evals_per_epoch:
        raise ValueError("a search compares evaluations, got --evals_per_epoch 0: pass at least 1")
    names = [name for name in _OF_ONE_RUN if name in config.explicit]
    if names:
        raise ValueError(
            f"--{names[0]} is of a single run, and each trial is one: leave it out; train the best "
            f"flags with it after the search (--flagfile {best_flags})"
        )
    _check_split(config, data)


def check_model(config: Config, data: FeatureSpec | None) -> None:
    """Raises ValueError if the model refuses the flags of a trial."""
    family = config.family
    if not config.definition.has_plan:
        return
    family.model_config(with_preset(config, data), family.spec_of_data(config, data))


def check_names(parameters: Sequence[Parameter], config: Config) -> None:
    """Raises ValueError if a flag cannot be a parameter; `config` has the flags of all trials."""
    for parameter in parameters:
        if parameter.flag in _OF_ALL_TRIALS:
            raise ValueError(
                f"--param {parameter.flag}: expected a flag of the model or the training, got one "
                "that decides what is measured, which is the same for all trials: pass it after --"
            )
        if parameter.flag in config.explicit or parameter.flag in _OF_ONE_RUN:
            raise ValueError(
                f"--param {parameter.flag}: expected a flag that trials do not share, and that is "
                "not passed after --; leave one of them out"
            )


def _check_split(config: Config, data: FeatureSpec | None) -> None:
    if config.data.dataset_type == "synthetic":
        return  # generated samples have every split
    spec = config.family.spec_of_data(config, data)
    split = evaluation_split(config.data.eval_mapping, "train", spec)
    if split != VALIDATION:
        raise ValueError(
            f"{spec.origin}: expected a split '{VALIDATION}' to compare trials on, got "
            f"'{split}': flags that are chosen on test samples have test metrics that are too "
            "high, and on training samples overfit. Prepare the data with a validation split"
        )
