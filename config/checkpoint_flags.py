"""Flags that a model takes from its checkpoint, and flags that may differ from it."""

from collections.abc import Mapping
from typing import Any

from config.config import Config, flag_types, flags_with
from config.family import Definition
from config.flag import FIXED, OWN
from config.sections.model import canonical_value
from config.sections.run import TERABYTE

# Flags of generated data that set its size and not its content.
_SIZES = {"synthetic_dataset_train_batches", "synthetic_dataset_valid_batches"}

# Flags of the ranking models' shape that checkpoints of earlier versions, and those in the layout
# of NVIDIA's recipe, do not store: their models have none of these parts.
_EARLIER_RANKING_MODEL = {
    "numerical_embedding": "none",
    "numerical_bins": 0,
    "wide": False,
    "variant": "nvidia",
}
# The same of the sequential models.
_EARLIER_SEQUENTIAL_MODEL = {"history_product": False}

# Flags of earlier versions, which have no counterpart.
_REMOVED = {"embedding_backend", "elastic", "members"}
# Flags that have another name now.
_RENAMED = {"gauc_column": "group_column"}


def model_flags(description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of the model's shape that a checkpoint's description stores."""
    flags = description["model_flags"]
    remembered = {name: value for name, value in flags.items() if name not in _REMOVED}
    if "interaction" in remembered:
        remembered = _EARLIER_RANKING_MODEL | remembered
    if "gsu" in remembered:
        remembered = _EARLIER_SEQUENTIAL_MODEL | remembered
    return {name: canonical_value(name, value) for name, value in remembered.items()}


def shape_flags(description: Mapping[str, Any]) -> set[str]:
    """Returns the names of the flags of the model's shape that a checkpoint sets."""
    if "original_layout" not in description:
        return set(model_flags(description))
    if "dense" not in description["original_layout"]:
        return {"embedding_dim", "wide"}
    return {"embedding_dim", "bottom_mlp_dims", "top_mlp_dims", *_EARLIER_RANKING_MODEL}


def adopt_flags(config: Config, description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of the checkpoint's model that the command line does not set.

    Of generated data also the seed and the features: only the same teacher can be predicted.

    Raises:
        ValueError: the command line specifies another model, or the checkpoint has another format,
            or is of another recipe, except for the start of a training of the same flags.
    """
    where = f"checkpoint {config.checkpoint.restore_checkpoint_path}"
    remembered, flags = _flags_of(description, where)
    trained, is_start = description.get("recipe", config.recipe), config.run.mode == "train"
    if trained != config.recipe and not (is_start and set(remembered) <= set(config.flat())):
        raise _of_another(where, trained, config)
    adopted = {}
    if config.data.dataset_type == "synthetic" == flags.get("dataset_type"):
        teacher = [name for name in flags if name.startswith("synthetic_dataset_")]
        for name in ({"seed", *teacher} & set(flags)) - config.explicit - _SIZES:
            adopted[name] = flags[name]
        if adopted.get("synthetic_dataset_use_feature_spec"):
            raise ValueError(
                "the checkpoint's generated rows follow a feature spec: give --dataset_path and "
                "--synthetic_dataset_use_feature_spec, as in training"
            )
    adopted |= remembered
    adopted = _checked(config, adopted, where)
    for name, value in adopted.items():
        _must_agree(config, name, value, where)
    return {name: value for name, value in adopted.items() if name not in config.explicit}


def _of_another(where: str, trained: object, config: Config) -> ValueError:
    return ValueError(
        f"{where} is of the recipe {trained}, not {config.recipe}: pass main.py --model {trained}, "
        "or, of a recipe of your own, --model module:NAME"
    )


def recorded_flags(
    definition: Definition, description: Mapping[str, Any], where: str, **changes: Any
) -> Config:
    """Returns the flags of the training that saved a checkpoint, except for `changes`.

    Raises:
        ValueError: the checkpoint is of another version, or has the layout of NVIDIA's recipe; the
            message calls it `where`.
    """
    remembered, flags = _flags_of(description, where)
    config = Config(definition)
    values = _checked(config, {**flags, **remembered}, where)
    return config.replace(**{**values, "resume": None, **changes})


def adopt_original(config: Config, description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags of the model's shape in a checkpoint of NVIDIA's layout.

    Raises:
        ValueError: a flag of the command line differs, the recipe is of another family, or the
            checkpoint has tables alone and the model is not trained.
    """
    where = f"checkpoint {config.checkpoint.restore_checkpoint_path}"
    layout = description["original_layout"]
    shape = layout.get("dense", {})
    is_cross = shape.get("interaction") == "cross"
    if not config.has("interaction"):
        raise _of_another(where, "dcnv2" if is_cross else "dlrm", config)
    if not shape and config.run.mode != "train":
        raise ValueError(
            f"{where} has tables and no MLPs (dense/config.json), which NVIDIA's recipe saves "
            "with them: train from it first, with --restore_checkpoint_path"
        )
    adopted: dict[str, Any] = dict(_EARLIER_RANKING_MODEL) if shape else {"wide": False}
    dims = layout.get("embedding_dim")
    if dims is not None:
        dims = dims if isinstance(dims, list) else [dims]
        equal = len(set(dims)) == 1
        adopted["embedding_dim"] = str(dims[0]) if equal else ",".join(map(str, dims))
    for name in ("bottom_mlp_dims", "top_mlp_dims"):
        if name in shape:
            adopted[name] = tuple(int(dim) for dim in shape[name])
    if is_cross:
        adopted["interaction"] = "cross"
        for name in ("num_cross_layers", "cross_layer_projection_dim"):
            adopted[name] = int(shape[name])
    elif shape and config.value("interaction") == "cross":
        adopted["interaction"] = "dot"
    for name, value in adopted.items():
        _must_agree(config, name, value, where)
    return adopted


def resume_flags(
    config: Config, description: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], list[str]]:
    """Returns the flags of a training to resume that the command line does not set.

    Returns:
        (their values, the names of the flags that the command line changes).

    Raises:
        ValueError: a flag differs that must not, or the checkpoint is of another version.
    """
    if "weights_only" in description:
        raise ValueError(
            f"{where} holds weights and no state of a training: start a new training from them "
            "with --restore_checkpoint_path"
        )
    remembered, flags = _flags_of(description, where)
    flags = {"preset": TERABYTE, **flags}  # of checkpoints without the flag
    if description.get("recipe") != config.recipe:
        raise _of_another(where, description.get("recipe"), config)
    ours = config.flat()
    own = flags_with(config.family, resume=OWN)
    adopted = {name: value for name, value in flags.items() if name not in own}
    # The model's flags are the resolved ones, without the choice of an implementation.
    same = {n: v for n, v in adopted.items() if canonical_value(n, v) == remembered.get(n, v)}
    adopted = _checked(config, {**adopted, **remembered, **same}, where)
    fixed = flags_with(config.family, resume=FIXED) | set(remembered)
    if "interaction" in remembered and (ours["dropout_rate"] > 0) != (
        adopted.get("dropout_rate", -1) > 0
    ):
        fixed |= {"dropout_rate"}  # the checkpoint of a ranking model has its steps, or has not
    changed = []
    for name, value in list(adopted.items()):
        if name in fixed:
            _must_agree(config, name, value, where)
        if name in config.explicit:
            if ours[name] != value:
                changed.append(name)
            del adopted[name]
    return adopted, sorted(changed)


def _flags_of(description: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if "original_layout" in description:
        raise ValueError(
            f"{where} has the layout of NVIDIA's recipe, without the state of a training: start a "
            "new one from it with --restore_checkpoint_path"
        )
    remembered, flags = description.get("model_flags"), description.get("flags")
    if not isinstance(remembered, dict) or not isinstance(flags, dict):
        raise ValueError(f"{where} does not specify its model (model_flags)")
    kept = {name: value for name, value in flags.items() if name not in _REMOVED}
    kept = {_RENAMED.get(name, name): value for name, value in kept.items()}
    return model_flags(description), kept


def _checked(config: Config, adopted: Mapping[str, Any], where: str) -> dict[str, Any]:
    defaults = config.flat()
    if unknown := sorted(set(adopted) - set(defaults)):
        raise ValueError(f"{where} is of another version: unknown flag --{unknown[0]}")
    checked = {}
    for name, value in adopted.items():
        if name == "loss_scale" and isinstance(value, float):  # of versions without "dynamic"
            value = f"{value:g}"
        if name == "exclude_seen" and isinstance(value, bool):  # of versions without "train"
            value = "all" if value else "none"
        checked[name] = value = tuple(value) if isinstance(value, list) else value
        kinds = flag_types(config.family, name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{where} is damaged: --{name} is {value!r}")
    return checked


def _must_agree(config: Config, name: str, value: Any, where: str) -> None:
    own = config.flat()[name]
    if name in config.explicit and canonical_value(name, own) != canonical_value(name, value):
        raise ValueError(
            f"--{name} {own} differs from the checkpoint's {value} ({where}): leave the flag out "
            "to take the checkpoint's value"
        )
