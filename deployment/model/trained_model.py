"""Trained model of a checkpoint: recipe, flags, data set, sizes, evaluation samples."""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World

from config.checkpoint_flags import adopt_original, recorded_flags
from config.config import Config
from config.family import Definition, Family
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec
from deployment.serving.interface import ServedTable
from preproc.encoding.encoder import Encoder
from preproc.encoding.encoder_folder import read_digest
from recipes.from_flags import load_feature_spec
from recipes.registry import BY_NAME, DCNV2, DLRM, OWN_RECIPE, definition_of
from runtime import checkpoint
from runtime.checkpoint.nvidia import folders


@dataclass(frozen=True)
class TrainedModel:
    """Description of a trained model, without its weights.

    Attributes:
        path: checkpoint.
        index: its description, and the location of each weight; None for samples without a
            checkpoint (`evaluated_samples.described`).
        config: flags of the training, with `--mode eval`.
        spec: feature spec of the data set; that of the checkpoint where the data set is gone.
        shape: `CTRConfig`, `SequenceModelConfig` or `NCFConfig`; None of a model of one's own.
    """

    path: Path
    index: checkpoint.Index | None
    config: Config
    spec: FeatureSpec
    shape: Any

    @property
    def recipe(self) -> str:
        return self.config.recipe

    @property
    def family(self) -> Family:
        return self.config.family

    @property
    def encoder_folder(self) -> Path | None:
        """Folder of the encoder, in the checkpoint or else in the data set; None without one."""
        folders = (self.path / ENCODER_FOLDER, Path(self.spec.base_directory) / ENCODER_FOLDER)
        return next((folder for folder in folders if folder.is_dir()), None)

    @functools.cached_property
    def encoder(self) -> Encoder | None:
        """Encoder of raw rows, read when it is first used; None without one.

        Raises:
            ValueError: a file is damaged, or the encoder is that of another data set.
        """
        if self.encoder_folder is None:
            return None
        description = self.index.description if self.index else {}
        read_digest(
            self.encoder_folder,
            description.get("encoder") or self.spec.metadata.get(ENCODER_FOLDER),
        )
        return Encoder.load(self.encoder_folder)

    def require_data_set(self, content: str) -> None:
        """Raises ValueError without the data set, which alone has `content`."""
        if self.index is not None and self.spec.base_directory == self.path:
            raise ValueError(
                f"{content} are in the data set of the training, which is not (or no longer) in "
                f"{self.config.data.dataset_path}: name its folder with --dataset_path"
            )


def open_checkpoint(
    path: str, dataset_path: str | None = None, recipe: str | Definition | None = None
) -> TrainedModel:
    """Reads the description of a checkpoint, and the feature spec of its data set.

    Args:
        path: a checkpoint, or a folder of them, of which the best is taken where the training kept
            it (`--keep_best`), else the newest.
        dataset_path: folder of the data set; None: where the training found it or, if it is not
            there any more, what the checkpoint has of it: feature spec and encoder, no samples.
        recipe: its recipe, see `recipes.registry.definition_of`; None: a built-in one.

    Raises:
        ValueError: a checkpoint or data set that matches it cannot be read there, or its recipe is
            another one.
    """
    folder = checkpoint.resolve(checkpoint.best_of(path), "--checkpoint_dir")
    with checkpoint.suggest_previous(folder, "--checkpoint_dir"):
        index = checkpoint.describe(folder)
    where = f"checkpoint {folder}"
    if checkpoint.is_original(folder):
        return _open_original(folder, index, dataset_path)
    definition = _definition_of(index.description.get("recipe"), recipe, where)
    changes = {"mode": "eval", "restore_checkpoint_path": str(folder)}
    if dataset_path:
        changes["dataset_path"] = dataset_path
    config = recorded_flags(definition, index.description, where, **changes)
    if config.original.dummy_model:
        raise ValueError(f"{where} is of a training with --dummy_model, which cannot be served")
    raw = _raw_spec(config, folder, index, is_explicit=bool(dataset_path))
    is_own = raw is not None and raw.base_directory == folder
    family = definition.family
    spec = raw if is_own else family.spec_of_data(config, raw)
    shape = None if definition.build_model else family.model_config(config, spec)
    trained = TrainedModel(folder, index, config, spec, shape)
    _check_spec(trained, raw)
    return trained


def _definition_of(name: Any, recipe: str | Definition | None, where: str) -> Definition:
    """Returns the recipe of a checkpoint that is of the recipe `name`."""
    if recipe is None and name not in BY_NAME:
        raise ValueError(
            f"{where} is of the recipe {name}, expected one of {', '.join(BY_NAME)}: of a recipe "
            f"of your own pass --recipe {OWN_RECIPE}, such as --recipe wide_deep:WIDE_DEEP"
        )
    definition = definition_of(name if recipe is None else recipe)
    if definition.name != name:
        raise ValueError(
            f"{where} is of the recipe {name}, and --recipe is {definition.name}: pass that of the "
            "training"
        )
    return definition


def _open_original(path: Path, index: checkpoint.Index, dataset_path: str | None) -> TrainedModel:
    if not dataset_path:
        raise ValueError(
            f"checkpoint {path} has the layout of NVIDIA's recipe, which does not name its data "
            "set: give the folder of its feature_spec.yaml with --dataset_path"
        )
    shape = index.description["original_layout"].get("dense", {})
    recipe = DCNV2 if shape.get("interaction") == "cross" else DLRM
    changes = {"mode": "eval", "restore_checkpoint_path": str(path), "dataset_path": dataset_path}
    config = Config(recipe).with_values(changes)
    config = config.replace(**adopt_original(config, index.description))
    spec = recipe.family.spec_of_data(config, load_feature_spec(config))
    trained = TrainedModel(path, index, config, spec, recipe.family.model_config(config, spec))
    shapes = {table_name(t.name): (t.rows, t.dim) for t in tables_of(trained)}
    entries = folders.original_entries(path, shapes)
    return replace(trained, index=index._replace(weights=entries))


def tables_of(trained: TrainedModel) -> tuple[ServedTable, ...]:
    """Returns the tables of the model, in the order of its lookups."""
    use = trained.family.table_use(trained.config, trained.spec, trained.shape, world_size=1)
    return tuple(ServedTable(*table) for table in use.tables)


def evaluation_rows(trained: TrainedModel, batch_size: int, split: str = "auto"):
    """Opens the samples of `--mode eval`, in order, as a data set of batches with labels.

    `batch_size` is smaller for ncf, whose batches have whole candidate lists. The split "auto" is
    test, or validation without one.

    Raises:
        ValueError: the data set is gone, or has no such split.
    """
    trained.require_data_set("the samples to evaluate")
    changes = {"valid_batch_size": batch_size}
    if trained.config.data.dataset_type != "synthetic":
        changes["eval_mapping"] = split
    config = trained.config.replace(**changes)
    _, valid, *_ = trained.family.open_data(config, trained.spec, World())
    return valid


def restored_model(trained: TrainedModel):
    """Builds the model as `--mode eval` does, here on the CPU, and restores all weights."""
    from runtime.hardware import device

    place = device.Device("CPU", "float32", 1.0)
    build = trained.config.definition.build_model or trained.family.build_model
    model = build(trained.config, trained.spec, World(), place)
    with checkpoint.suggest_previous(trained.path, "--checkpoint_dir"):
        checkpoint.restore(trained.path, model.weights_to_save())
    return model


def table_name(table: str) -> str:
    """Returns the name of a table's weight in a checkpoint."""
    return f"sparse/{table}"


def _raw_spec(
    config: Config, path: Path, index: checkpoint.Index, is_explicit: bool
) -> FeatureSpec | None:
    """Returns the feature spec of the data set, or that of the checkpoint where the training's data
    set is gone or was replaced."""
    has_own = SPEC_FILE in index.files and not is_explicit
    try:
        raw = load_feature_spec(config)
    except (OSError, ValueError) as error:
        if is_explicit:
            raise
        if not has_own:
            raise ValueError(
                f"checkpoint {path} was trained on {config.data.dataset_path}, whose feature spec "
                f"cannot be read ({error}): name its folder with --dataset_path"
            ) from None
        return FeatureSpec.from_yaml(path / SPEC_FILE)
    if has_own and raw is not None and raw.fingerprint() != index.description["feature_spec"]:
        return FeatureSpec.from_yaml(path / SPEC_FILE)
    return raw


def _check_spec(trained: TrainedModel, raw: FeatureSpec | None) -> None:
    """Raises ValueError if the feature spec is not that of the training.

    Features of other sizes, in another order or with another vocabulary have other rows.
    """
    wanted = trained.index.description.get("feature_spec")
    actual = raw.fingerprint() if raw is not None else None
    if wanted != actual:
        trained_on = trained.index.description.get("flags", {}).get("dataset_path")
        saved, ours = (str(fingerprint)[:12] for fingerprint in (wanted, actual))
        raise ValueError(
            f"checkpoint {trained.path}: expected the data set of its training, "
            f"{trained_on or 'unknown'}, got {trained.spec.origin} of other content (fingerprint "
            f"{ours}, not {saved}): pass the training's data set, or a folder with its "
            "feature_spec.yaml, as --dataset_path"
        )
