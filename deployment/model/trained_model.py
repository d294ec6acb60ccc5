"""What a checkpoint is a model of: its recipe, flags, data set and sizes; its rows; the model."""

from pathlib import Path
from typing import Any, NamedTuple

from config import Config
from dataloading.spec.feature_spec import FeatureSpec
from recipes import collaborative, ctr, sequential
from recipes.from_flags import load_feature_spec
from runtime import checkpoint
from runtime.checkpoint.flags import recorded_flags
from runtime.cluster.distributed import World

DLRM, DCNV2, SIM, NCF = "dlrm", "dcnv2", "sim", "ncf"

# What composes the model and the rows of a recipe.
_COMPOSED_BY = {DLRM: ctr, DCNV2: ctr, SIM: sequential, NCF: collaborative}


class TrainedModel(NamedTuple):
    """A trained model that nothing has been read of but its description.

    Attributes:
        path: the checkpoint.
        index: what it says of itself, and of each weight where it is.
        config: the flags of the training, with `--mode eval`.
        spec: the data set.
        shape: the model's sizes: `nn.ctr.model.RankingConfig`, `nn.sequence.config.SequenceConfig` or
            `nn.ncf.config.NCFConfig`.
    """

    path: Path
    index: checkpoint.Index
    config: Config
    spec: FeatureSpec
    shape: Any

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return self.config.recipe


def open_checkpoint(path: str, dataset_path: str | None = None) -> TrainedModel:
    """Reads what a checkpoint says of its model, and the feature spec of its data set.

    Args:
        path: a checkpoint, or a folder of them, of which the best is taken where the training kept
            it (`--keep_best`), else the newest.
        dataset_path: folder of the data set; None: where the training found it.

    Raises:
        ValueError: there is no checkpoint, it is damaged or of another version; the data set is not
            there, or its feature spec is not that of the training.
    """
    found = checkpoint.resolve(checkpoint.best_of(path), "--checkpoint_dir")
    with checkpoint.suggest_previous(found, "--checkpoint_dir"):
        index = checkpoint.describe(found)
    where = f"checkpoint {found}"
    recipe = index.description.get("recipe")
    if "original_layout" not in index.description and recipe not in _COMPOSED_BY:
        raise ValueError(
            f"{where} is of the recipe {recipe}: there are {', '.join(_COMPOSED_BY)}, so that it "
            "was made by another version"
        )
    changes = {"mode": "eval", "restore_checkpoint_path": str(found)}
    if dataset_path:
        changes["dataset_path"] = dataset_path
    config = recorded_flags(index.description, where, **changes)
    raw = _raw_spec(config, where, given=bool(dataset_path))
    spec = ctr.spec_of_data(config, raw) if config.recipe in (DLRM, DCNV2) else raw
    trained = TrainedModel(found, index, config, spec, _shape_of(config, spec))
    _check_tables(trained)
    _check_spec(trained, raw)
    return trained


def tables_of(trained: TrainedModel) -> list[tuple[str, int, int]]:
    """(name, rows, columns) of each table of the model, in the order of its lookups."""
    shape = trained.shape
    if trained.recipe == SIM:
        from nn.sequence.config import embedding_tables

        return embedding_tables(shape)
    if trained.recipe == NCF:
        from nn.ncf.config import embedding_tables

        return embedding_tables(shape)
    return list(zip(shape.feature_names, shape.cardinalities, shape.embedding_dims, strict=True))


def evaluation_rows(trained: TrainedModel, batch_size: int, mapping: str = "auto"):
    """The rows that `--mode eval` evaluates on, in order, as batches with labels.

    Args:
        trained: the model.
        batch_size: rows of a batch; those of ncf are whole series, perhaps fewer.
        mapping: of the feature spec; "auto": test rows, where there are none validation rows.

    Returns:
        A data set of `dataloading/`: `num_rows`, `num_batches`, `batch_size`, `dataset()`, `failure`.

    Raises:
        ValueError: there are no such rows.
    """
    changes = {"valid_batch_size": batch_size}
    if trained.config.data.dataset_type != "synthetic":
        changes["eval_mapping"] = mapping
    config = trained.config.replace(**changes)
    return _COMPOSED_BY[trained.recipe].open_data(config, trained.spec, World()).valid


def restored_recipe(trained: TrainedModel, batch_size: int):
    """Model, rows and evaluator of `--mode eval` in this process, all weights read.

    Args:
        trained: the model.
        batch_size: rows of an evaluated batch.

    Returns:
        `recipes.recipe.Recipe`.
    """
    from runtime.hardware import device

    config = trained.config.replace(valid_batch_size=batch_size)
    place = device.Device("CPU", "float32", 1.0)
    recipe = _COMPOSED_BY[trained.recipe].build(config, trained.spec, World(), place)
    with checkpoint.suggest_previous(trained.path, "--checkpoint_dir"):
        checkpoint.restore(trained.path, recipe.model.weights_to_save())
    return recipe


def table_name(table: str) -> str:
    """Name of a table's weight in a checkpoint."""
    return f"sparse/{table}"


def _raw_spec(config: Config, where: str, given: bool) -> FeatureSpec | None:
    """The feature spec as the data set has it; None where the training had none."""
    try:
        return load_feature_spec(config)
    except (OSError, ValueError) as error:
        if given:
            raise
        raise ValueError(
            f"{where} was trained on {config.data.dataset_path}, whose feature spec cannot be read "
            f"({error}): say where it is now with --dataset_path"
        ) from None


def _shape_of(config: Config, spec: FeatureSpec):
    return _COMPOSED_BY[config.recipe].model_config(config, spec)


def _check_tables(trained: TrainedModel) -> None:
    """Raises ValueError where the data set's features are not the checkpoint's tables."""
    wanted = {table_name(name): (rows, dim) for name, rows, dim in tables_of(trained)}
    there = {
        name: entry.shape
        for name, entry in trained.index.weights.items()
        if name.startswith(table_name(""))
    }
    for name in sorted(wanted.keys() | there.keys()):
        if wanted.get(name) != there.get(name):
            saved, ours = (
                f"{tables[name][0]} rows x {tables[name][1]}" if name in tables else "no such table"
                for tables in (there, wanted)
            )
            raise ValueError(
                f"checkpoint {trained.path}: {name} has {saved}, the features of "
                f"{trained.spec.origin} need {ours}: give the data set that the model was trained "
                "on with --dataset_path"
            )


def _check_spec(trained: TrainedModel, raw: FeatureSpec | None) -> None:
    """Raises ValueError where the feature spec is not that of the training: features in another
    order, or with another vocabulary, would be looked up in wrong rows without a word."""
    wanted = trained.index.description.get("feature_spec")
    found = raw.fingerprint() if raw is not None else None
    if wanted != found:
        raise ValueError(
            f"checkpoint {trained.path} was trained on another feature spec than "
            f"{trained.spec.origin} (fingerprint {_short(wanted)}, this is {_short(found)}): give "
            "the training's data set, or a folder with its feature_spec.yaml, with --dataset_path"
        )


def _short(fingerprint: str | None) -> str:
    return "none" if fingerprint is None else fingerprint[:12]
