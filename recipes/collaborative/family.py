"""NCF: models of interactions of users with items."""

from __future__ import annotations

import os
from typing import Any

from config.family import Definition, Family
from config.flag import Values
from config.sections.recommendation import EXCLUDE_SEEN_WORDS
from dataloading.interactions.stored import num_users_and_items
from dataloading.spec.feature_spec import TEST, VALIDATION
from dataloading.spec.locate import INTERACTIONS
from recipes.collaborative import preset
from recipes.collaborative.build import build, open_data
from recipes.collaborative.flags import RULES, CollaborativeFlags
from recipes.collaborative.shape import build_model, dense_bytes_of, model_config, table_use
from recipes.small_preset import evaluates_validation_split
from runtime.logs.dlll import LogNames


def _expand(values: dict[str, Any], explicit: set[str]) -> set[str]:
    """Sets the flags that NCF's `--opt_level` and `--checkpoint_dir` stand for.

    Returns:
        The flags that the command line sets by them.
    """
    expanded = set()
    if values["opt_level"] is not None:
        if "amp" in explicit:
            raise ValueError("--opt_level and --amp are aliases: pass only one of them")
        values["amp"] = values["opt_level"] == "O2"
        expanded.add("amp")
    trains, folder = values["mode"] == "train", values["checkpoint_dir"]
    name = "save_checkpoint_path" if trains else "restore_checkpoint_path"
    by_default = "checkpoint_dir" not in explicit
    is_overridden = name in explicit or values["resume"] not in (None, "auto")
    # Modes that save nothing load --load_checkpoint_path, and a default folder only if it exists.
    exists = not by_default or os.path.isdir(folder or "")
    is_unused = not trains and (name in explicit or not exists)
    if not folder or is_unused or (by_default and is_overridden):
        values["checkpoint_dir"] = None
        return expanded
    if name in explicit:
        raise ValueError(f"--checkpoint_dir and --{name} are aliases here: pass only one of them")
    best = os.path.join(folder, "best")
    values[name] = best if not trains and os.path.isdir(best) else folder
    if trains and values["keep_best"] is None and values["evals_per_epoch"]:
        values["keep_best"] = True
        expanded.add("keep_best")  # also of a resumed training whose checkpoint has None
    return expanded if by_default else {*expanded, name}


def _implied(flags: Values) -> set[str]:
    """Returns the flags that others, or a launcher, set, or whose values follow from the data."""
    # Not passed, the last three depend on the data set or the checkpoint.
    names = {"opt_level", "local_rank"} | {"valid_negative", "n_users", "n_items"} - flags.explicit
    if flags.value("checkpoint_dir"):
        trains = flags.value("mode") == "train"
        names |= {"save_checkpoint_path" if trains else "restore_checkpoint_path"}
    return names


_EPOCH_NAMES = {
    "train_throughput": "train_throughput",
    "epoch_s": "train_epoch_time",
    "eval_throughput": "eval_throughput",
    "evaluation_s": "validation_epoch_time",
    "loss": "train_loss",
}


def log_names(mode: str, split: str | None, goal: str) -> LogNames:
    """Returns the names of values in the log; see `config.family.Definition`."""
    loss = {"log_loss": f"{split}_loss"} if split in (VALIDATION, TEST) else {}
    kinds = (f"{kind}_{loop}_throughput" for loop in ("train", "eval") for kind in ("best", "mean"))
    unprinted = ("loss", "time_to_threshold_s", *kinds)
    return LogNames(
        step=loss,
        epoch={**_EPOCH_NAMES, **loss},
        summary={
            "loss": "train_loss",
            **loss,
            **({f"best_{goal}": "best_accuracy"} if goal.startswith("hr@") else {}),
            "time_to_best_s": "time_to_best_model",
            "time_to_threshold_s": "time_to_target",
        },
        epoch_line=tuple(_EPOCH_NAMES),
        further=unprinted,
        unprinted=unprinted,
    )


COLLABORATIVE = Family(
    section=CollaborativeFlags,
    rules=RULES,
    model_flags=("model_type", "factors", "layers"),
    parts=frozenset({"recommendation"}),
    untrained_modes=("eval",),  # random weights, as in the original recipe
    reads_data=lambda flags: flags.value("mode") != "inference" or not flags.value("batch_sizes"),
    replaces_training=lambda flags: flags.value("checkpoint_dir") is not None,  # as in the original
    expand=_expand,
    implied=_implied,
    terabyte_from=preset.TERABYTE_FROM,
    choose_small=preset.choose_small,
    small=preset.SMALL,
    preset_facts=lambda config, spec: {
        "num_ids": sum(num_users_and_items(spec)),
        "validates": evaluates_validation_split(config, spec),
    },
    reads=INTERACTIONS,
    build=build,
    build_model=build_model,
    model_config=model_config,
    table_use=table_use,
    dense_bytes=dense_bytes_of,
    open_data=open_data,
    default_metric="hit rate",
    baseline="recipes.baseline.interactions",
    serving="deployment.model.served_ncf",
)

NCF = Definition(
    "ncf",
    COLLABORATIVE,
    {
        "optimizer": "adam",
        "learning_rate": 0.0045,
        "beta1": 0.25,
        "beta2": 0.5,
        "epsilon": 1e-8,
        "warmup_steps": 0,
        "decay_steps": 0,
        "epochs": 30,
        "batch_size": 2**20,
        "valid_batch_size": 2**20,
        "amp": None,
        "loss_scale": "dynamic",
    },
    {
        "data": "dataset_path",
        "feature_spec_file": "feature_spec",
        "e": "epochs",
        "b": "batch_size",
        "f": "factors",
        "n": "negative_samples",
        "l": "learning_rate",
        "k": "topk",
        "s": "seed",
        "t": "threshold",
        "b1": "beta1",
        "b2": "beta2",
        "eps": "epsilon",
        "load_checkpoint_path": "restore_checkpoint_path",
        "checkpoint_path": "restore_checkpoint_path",
        "mode=test": "mode=eval",
        **EXCLUDE_SEEN_WORDS,
    },
    log_names,
)
