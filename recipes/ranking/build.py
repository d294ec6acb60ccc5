"""Recipe of DLRM and DCNv2: samples of numerical features and ids, a ranking model over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.spec import feature_spec as fs
from recipes import from_flags
from recipes.ranking.data import (
    best_auc,
    held_out_samples,
    note_held_out,
    open_data,
    spec_of_data,
)
from recipes.ranking.numerical_bins import note_no_numbers
from recipes.ranking.shape import build_model
from recipes.recipe import METRICS, Dataset, Evaluator, Goal, Recipe
from runtime.hardware.device import Device

if TYPE_CHECKING:
    from nn.metrics.group_metrics import Grouping
    from recipes.recipe import Loss

_VALIDATION_SPLIT = (
    "prepare the data with --split 0.8,0.1,0.1 (preproc.transcode) or --validation_fraction "
    "(preproc.criteo), or give the feature spec a "
    "split 'validation'"
)


def build(config: Config, spec: fs.FeatureSpec | None, world: World, device: Device) -> Recipe:
    """Composes the ranking model, its data, loss, optimizers and evaluator."""
    from nn.layers.fused_op import choose_dot

    spec = spec_of_data(config, spec)
    if config.original.saved_model_input_path:
        return _saved_model_recipe(config, spec, world)
    build_own, facts, note = config.definition.build_model, dict[str, Any](), None
    if build_own is None:
        facts["interaction"] = interaction = config.family_flags.interaction
        if interaction != "cross":
            facts["interaction"], note = choose_dot(interaction, device.kind)
    by_model = config.distribution.model_parallel_input and build_own is None
    model = (build_own or build_model)(config, spec, world, device)
    features = model.embedding.input_ids_list[world.rank] if by_model else None
    grouping = _grouping(config, spec)
    train, valid = open_data(config, spec, world, features)
    loss, train = _loss(config, train, grouping, world)
    return Recipe(
        model=model,
        train=train,
        valid=valid,
        loss=loss,
        optimizers=model.create_optimizers(config.optimizer),
        evaluator=_evaluator(config, world, model, valid, grouping),
        metrics=(*METRICS, *(grouping.metrics if grouping else ())),
        model_flags={} if build_own else {"numerical_bins": model.config.num_bins},
        facts={
            **from_flags.data_facts(train, valid),
            "tables": len(model.embedding.table_weights()),
            **facts,
            "parameters": model.num_parameters,
        },
        notes=(
            note or "",
            note_no_numbers(config, spec),
            model.embedding.plan.memory_note,
            from_flags.note_test_split(config.run.mode, spec, valid, _VALIDATION_SPLIT),
            note_held_out(config, held_out_samples(config, spec), _VALIDATION_SPLIT),
            _note_loss(config),
        ),
        best_auc=best_auc(config, spec, valid),
        goal=Goal(_goal_metric(config, grouping), config.evaluation.auc_threshold),
        kept=from_flags.kept_columns(config, spec, valid, world),
    )


def _saved_model_recipe(config: Config, spec: fs.FeatureSpec, world: World) -> Recipe:
    """Composes a SavedModel and the data that it is evaluated on."""
    from nn.ctr.saved_model import SavedRankingModel
    from nn.train.losses import click_loss

    assert config.original.saved_model_input_path is not None
    hotness = spec.hotnesses(fs.CATEGORICAL_CHANNEL)
    model: Any = SavedRankingModel(config.original.saved_model_input_path, hotness)
    train, valid = open_data(config, spec, world)
    grouping = _grouping(config, spec)
    return Recipe(
        model=model,
        train=train,
        valid=valid,
        loss=click_loss,
        optimizers=(),
        evaluator=_evaluator(config, world, model, valid, grouping),
        metrics=(*METRICS, *(grouping.metrics if grouping else ())),
        facts={**from_flags.data_facts(train, valid), "parameters": model.num_parameters},
        best_auc=best_auc(config, spec, valid),
        kept=from_flags.kept_columns(config, spec, valid, world),
    )


def _evaluator(
    config: Config, world: World, model: Any, valid: Any, grouping: Grouping | None
) -> Evaluator | None:
    """Returns the evaluator of the validation data; None without them and in `--mode predict`."""
    from nn.metrics.evaluator import ClickEvaluator

    if not valid or config.run.mode == "predict":
        return None
    return ClickEvaluator(model, valid, config.evaluation.auc_thresholds, world, grouping)


def _grouping(config: Config, spec: fs.FeatureSpec) -> Grouping | None:
    """Returns the groups of samples by `--group_column`; None in modes that need none."""
    features = spec.channel(fs.CATEGORICAL_CHANNEL)
    hotness = dict(zip(features, spec.hotnesses(fs.CATEGORICAL_CHANNEL), strict=True))
    single = [feature for feature in features if hotness[feature] == 1]
    grouping = from_flags.grouping(config, spec, {"categorical": features}, single)
    if grouping is not None and config.distribution.model_parallel_input:
        raise ValueError(
            "--group_column needs the ids of each sample on its rank, and --nodata_parallel_input "
            "distributes them by table: leave one of them out"
        )
    return grouping


def _loss(
    config: Config, train: Any, grouping: Grouping | None, world: World
) -> tuple[Loss, Dataset | None]:
    """Returns the loss of `--loss`, and the training samples in the order that it needs."""
    from nn.train.group_loss import GroupLoss
    from nn.train.losses import click_loss

    kind, data = config.optimizer.training_loss, config.data
    if train is None or kind == "log_loss":
        return click_loss, train
    assert grouping is not None
    feature, first_id = grouping.feature, grouping.first_id
    if data.shuffle:
        window = config.family_flags.shuffle_window_rows
        train = train.grouped(feature, first_id, config.run.seed, window)
    return GroupLoss(kind, grouping.column_of, first_id, world), train


def _goal_metric(config: Config, grouping: Grouping | None) -> str:
    """Returns the metric by which evaluations are compared without `--metric`."""
    if grouping is None or config.optimizer.training_loss == "log_loss":
        return "auc"
    return f"ndcg@{grouping.cutoffs[0]}"


def _note_loss(config: Config) -> str:
    """Returns a note on what a `--loss` of groups does not train, or ""."""
    kind = config.optimizer.training_loss
    if config.run.mode != "train" or kind == "log_loss":
        return ""
    return (
        f"--loss {kind} trains the order within the groups of --group_column: predictions are not "
        "probabilities, and log_loss, normalized_entropy and calibration do not apply"
    )
