"""Recipe of DLRM and DCNv2: samples of numerical features and ids, a ranking model over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distributed_embeddings.collectives import World

from config import Config, canonical_value, parse_embedding_dims
from dataloading.spec import feature_spec as fs
from recipes import from_flags, validation
from recipes.encoder.numerical_bins import count_bins, edges_of_numbers, note_no_numbers
from recipes.recipe import METRICS, Dataset, Evaluator, Goal, Recipe
from runtime.hardware.device import Device
from runtime.hardware.memory import RankMemory

if TYPE_CHECKING:
    from distributed_embeddings.planner import Plan

    from nn.ctr.config import CTRConfig
    from nn.ctr.model import CTRModel
    from nn.metrics.group_metrics import Grouping
    from recipes.recipe import Loss

# Generated samples over which the best reachable AUC is computed; its standard error is below 3e-4.
BEST_AUC_SAMPLES = 4_000_000

_VALIDATION_SPLIT = (
    "prepare the data with --split 0.8,0.1,0.1 (preproc.transcode) or --validation_fraction "
    "(preproc.criteo), or give the feature spec a "
    "split 'validation'"
)

# Flags that a checkpoint stores so that the model can be built again.
SHAPE_FLAGS = (
    *("interaction", "embedding_dim", "bottom_mlp_dims", "top_mlp_dims"),
    *("num_cross_layers", "cross_layer_projection_dim"),
    *("numerical_embedding", "numerical_bins", "wide", "members", "variant"),
)

# Other names of flags: of the release of October 2022, and of what the log calls `loss`.
ALIASES = {"use_merlin_de_embeddings": "use_mde_embeddings", "loss": "training_loss"}


def build(config: Config, spec: fs.FeatureSpec | None, world: World, device: Device) -> Recipe:
    """Composes the ranking model, its data, loss, optimizers and evaluator."""
    from nn.layers.fused_op import choose_dot

    spec = spec_of_data(config, spec)
    if config.original.saved_model_input_path:
        return _saved_model_recipe(config, spec, world)
    interaction, note = config.model.interaction, None
    if interaction != "cross":
        interaction, note = choose_dot(interaction, device.kind)
    by_model = config.distribution.model_parallel_input
    plan = make_plan(config, spec, world.size, device.memory)
    model = build_model(config, spec, world, device, plan)
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
        model_flags=_model_flags(config, model.config),
        facts={
            **from_flags.data_facts(train, valid),
            "tables": len(spec.channel(fs.CATEGORICAL_CHANNEL)),
            "interaction": interaction,
            "parameters": model.num_parameters,
        },
        notes=(
            note or "",
            note_no_numbers(config, spec),
            plan.memory_note,
            from_flags.note_test_split(config.run.mode, spec, valid, _VALIDATION_SPLIT),
            validation.note_held_out(
                config, validation.held_out_samples(config, spec), _VALIDATION_SPLIT
            ),
            _note_loss(config),
        ),
        best_auc=best_auc(config, spec, valid),
        goal=Goal(_goal_metric(config, grouping), config.evaluation.auc_threshold),
        kept=from_flags.kept_columns(config, spec, valid, world),
    )


def build_model(
    config: Config, spec: fs.FeatureSpec, world: World, device: Device, plan: Plan | None = None
) -> CTRModel:
    """Returns the untrained model alone, which needs no samples."""
    from nn.ctr.model import CTRModel
    from nn.layers.fused_op import choose_dot

    interaction = config.model.interaction
    if interaction != "cross":
        interaction, _ = choose_dot(interaction, device.kind)
    return CTRModel(
        model_config(config, spec, interaction),
        edges=edges_of_numbers(config, spec),
        embedding_zeros=config.model.embedding_zeros_initializer,
        plan=plan or make_plan(config, spec, world.size, device.memory),
        model_parallel_input=config.distribution.model_parallel_input,
        **from_flags.model_arguments(config, device, world),
    )


def _model_flags(config: Config, shape: CTRConfig) -> dict[str, Any]:
    """Returns the flags that a checkpoint stores."""
    flags = {name: canonical_value(name, getattr(config.model, name)) for name in SHAPE_FLAGS}
    return flags | {"numerical_bins": shape.num_bins}


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
        model_flags={},
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
        train = train.grouped(feature, first_id, config.run.seed, data.shuffle_window_rows)
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


def model_config(config: Config, spec: fs.FeatureSpec, interaction: str | None = None) -> CTRConfig:
    """Returns the shape of the model; without `interaction`, with cross layers or any dot one."""
    from nn.ctr.config import CTRConfig

    if interaction is None:
        interaction = "cross" if config.model.interaction == "cross" else "dot_tensorflow"
    features = spec.channel(fs.CATEGORICAL_CHANNEL)
    if config.original.dummy_model:
        num_numerical = sum(spec.hotnesses(fs.NUMERICAL_CHANNEL))
        if not num_numerical:
            raise ValueError(
                "--dummy_model reads numerical features, and the data set has none: leave the flag "
                "out"
            )
        return CTRConfig((), (), (), num_numerical, bottom_mlp_dims=(1,), top_mlp_dims=(1,))
    return CTRConfig(
        feature_names=features,
        cardinalities=tuple(spec.cardinalities(fs.CATEGORICAL_CHANNEL)),
        embedding_dims=parse_embedding_dims(config.model.embedding_dim, len(features)),
        num_numerical=sum(spec.hotnesses(fs.NUMERICAL_CHANNEL)),
        bottom_mlp_dims=config.model.bottom_mlp_dims,
        top_mlp_dims=config.model.top_mlp_dims,
        interaction=interaction,
        num_cross_layers=config.model.num_cross_layers,
        cross_layer_projection_dim=config.model.cross_layer_projection_dim,
        num_bins=count_bins(config, spec),
        is_wide=config.model.wide,
        num_members=config.model.members,
        dropout_rate=max(0.0, config.model.dropout_rate),
        variant=config.model.variant,
    )


def spec_of_data(config: Config, spec: fs.FeatureSpec | None) -> fs.FeatureSpec:
    """Returns the feature spec of the samples; `spec` is that of the data set, if there is one."""
    data, synthetic = config.data, config.synthetic
    if data.dataset_type == "split_tfrecords":
        from dataloading.formats.split_tfrecords.folder_format import spec_of_folders

        assert spec is not None
        return spec_of_folders(spec)
    if data.dataset_type != "synthetic" or synthetic.synthetic_dataset_use_feature_spec:
        assert spec is not None
        return spec
    from dataloading.synthetic.rows import synthetic_spec

    hotness = synthetic.synthetic_dataset_hotness
    return synthetic_spec(
        synthetic.synthetic_dataset_cardinalities,
        hotness[0] if len(hotness) == 1 else hotness,
        synthetic.synthetic_dataset_alpha,
        synthetic.synthetic_dataset_num_numerical_features,
    )


def report_plan(config: Config, spec: fs.FeatureSpec | None) -> str:
    """Returns the sharding plan for `--plan_world_size` ranks."""
    spec = spec_of_data(config, spec)
    plan = make_plan(config, spec, config.distribution.plan_world_size)
    shape = model_config(config, spec)
    return from_flags.describe_plan(config, plan, 4 * shape.num_dense_weights)


def make_plan(
    config: Config, spec: fs.FeatureSpec, world_size: int, memory: RankMemory | None = None
) -> Plan:
    """Returns the sharding plan that training follows and `--plan_only` prints."""
    from nn.ctr.config import embedding_tables

    shape = model_config(config, spec)
    use = from_flags.TableUse(
        embedding_tables(shape),
        hotness=spec.hotnesses(fs.CATEGORICAL_CHANNEL) if shape.feature_names else (),
        has_wide_ids=any(spec.dtype(name).itemsize > 4 for name in shape.feature_names),
        dense_bytes=shape.dense_step_bytes(config.run.batch_size / world_size),
    )
    return from_flags.plan_tables(config, use, world_size, memory)


def open_data(
    config: Config, spec: fs.FeatureSpec, world: World, features: list[int] | None = None
) -> tuple[Dataset | None, Dataset | None]:
    """Opens the samples to train on and those to evaluate.

    Args:
        config: the flags.
        spec: the data set.
        world: the ranks that share the samples.
        features: features that this rank reads for the whole batch; None: all, of its share.

    Returns:
        The training samples, None unless `--mode train`, and the samples to evaluate, None with
        `--evals_per_epoch 0`.
    """
    run, train = config.run, None
    load, train_options, valid_options = _loader(config)
    options = {
        "rank": world.rank,
        "world_size": world.size,
        "prefetch_batches": config.data.prefetch_batches,
        "global_features": features,
    }
    held_out = validation.held_out_samples(config, spec)
    if held_out is not None:
        train_options |= {"samples": range(held_out.start)}
    if run.mode == "train":
        train = load(spec, fs.TRAIN, run.batch_size, **train_options, **options)
        if not config.evaluation.evals_per_epoch:
            return train, None
    if held_out is not None:
        valid = load(spec, fs.TRAIN, run.valid_batch_size, samples=held_out, **options)
        valid.split = fs.VALIDATION
        return train, valid
    if config.data.dataset_type == "synthetic":
        split = fs.VALIDATION if run.mode == "train" else fs.TEST
    else:
        split = from_flags.evaluation_split(config.data.eval_mapping, run.mode, spec)
    return train, load(spec, split, run.valid_batch_size, **valid_options, **options)


def _loader(config: Config) -> tuple[Callable[..., Dataset], dict[str, Any], dict[str, Any]]:
    """Returns the loader of the format, and its options for training and for evaluation."""
    data, run, synthetic = config.data, config.run, config.synthetic
    if data.dataset_type == "synthetic":
        from dataloading.synthetic.dataset import SyntheticDataset

        return (
            SyntheticDataset,
            {"seed": run.seed, "num_batches": synthetic.synthetic_dataset_train_batches},
            {"seed": run.seed, "num_batches": synthetic.synthetic_dataset_valid_batches},
        )
    order = {"shuffle": data.shuffle, "seed": run.seed, "window_samples": data.shuffle_window_rows}
    labels = {"with_labels": run.mode != "predict"}
    if data.dataset_type == "split_tfrecords":
        from dataloading.formats.split_tfrecords.dataset import SplitTFRecordsDataset

        return SplitTFRecordsDataset, order, labels
    from dataloading.formats.raw_binary import RawBinaryDataset

    return RawBinaryDataset, order, labels


def best_auc(
    config: Config, spec: fs.FeatureSpec, valid: Dataset | None
) -> Callable[[], float | None]:
    """Returns a function for the best AUC that any model can reach on samples of `valid`."""
    if valid is None:
        return lambda: None
    if config.data.dataset_type == "synthetic":
        from dataloading.synthetic.dataset import SyntheticDataset

        seed = config.run.seed
        assert seed is not None
        num_samples = min(valid.num_samples, BEST_AUC_SAMPLES)
        sample = SyntheticDataset(
            spec, valid.split, valid.batch_size, num_samples=num_samples, seed=seed
        )
        return lambda: sample.best_auc
    # Generated data sets store it, see `dataloading.synthetic.dataset.write_dataset`.
    stored = spec.metadata.get(valid.split)
    value = stored.get("best_auc") if isinstance(stored, dict) else None
    return lambda: value
