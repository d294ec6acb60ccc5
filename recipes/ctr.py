"""What DLRM and DCNv2 share: rows of numericals and ids, the ranking model over them, its plan."""

import itertools

from config import Config, canonical_value, parse_embedding_dims
from dataloading.spec import feature_spec as fs
from recipes.from_flags import (
    evaluation_mapping,
    model_arguments,
    plan_of_tables,
    row_facts,
    split_note,
)
from recipes.recipe import Goal, Recipe

# Generated rows over which the best reachable AUC is computed; its standard error is below 3e-4.
BEST_AUC_ROWS = 4_000_000

_VALIDATION_SPLIT = (
    "prepare the data with --validation_fraction (preproc.criteo), or give the feature spec a "
    "mapping 'validation'"
)

# What a checkpoint must remember to build the model again.
SHAPE_FLAGS = (
    *("interaction", "embedding_dim", "bottom_mlp_dims", "top_mlp_dims"),
    *("num_cross_layers", "cross_layer_projection_dim"),
)


def build(config: Config, spec: fs.FeatureSpec | None, world, device) -> Recipe:
    """The ranking model, its rows, loss, optimizers and evaluator."""
    from nn.ctr.model import RankingModel
    from nn.layers.interaction import choose_dot
    from nn.metrics.evaluator import ClickEvaluator
    from nn.train.losses import binary_cross_entropy

    spec = spec_of_rows(config, spec)
    use_merlin = uses_merlin(config.distribution.embedding_backend)
    interaction, note = config.model.interaction, None
    if interaction != "cross":
        interaction, note = choose_dot(interaction, device.kind)
    shape = model_config(config, spec, interaction)
    by_model = config.distribution.model_parallel_input
    plan = None if use_merlin else make_plan(config, spec, world.size, device.memory)
    model = RankingModel(
        shape,
        embedding_zeros=config.model.embedding_zeros_initializer,
        plan=plan,
        model_parallel_input=by_model,
        merlin=merlin_options(config) if use_merlin else None,
        **model_arguments(config, device, world),
    )
    read_features = None
    if by_model:
        read_features = model.embedding.strategy.input_ids_list[world.rank]
    train, valid, best_auc = open_rows(config, spec, world, read_features)

    def loss(model, batch):
        return binary_cross_entropy(batch.labels, model(batch.inputs), batch.weights), {}

    evaluator = None
    if valid and config.run.mode != "predict":
        evaluator = ClickEvaluator(model, valid, config.run.auc_thresholds, world)
    return Recipe(
        model=model,
        train=train,
        valid=valid,
        loss=loss,
        groups=model.optimizer_groups(config.optimizer),
        evaluator=evaluator,
        model_flags={
            name: canonical_value(name, getattr(config.model, name)) for name in SHAPE_FLAGS
        },
        facts={
            **row_facts(train, valid),
            "tables": len(shape.feature_names),
            "interaction": interaction,
            **({"embedding_backend": "merlin"} if use_merlin else {}),
            "parameters": model.num_parameters,
        },
        notes=(
            note or "",
            plan.memory_note if plan else "",
            split_note(config.run.mode, spec, valid, _VALIDATION_SPLIT),
        ),
        best_auc=best_auc,
        goal=Goal(threshold=config.run.auc_threshold),
    )


def model_config(config: Config, spec: fs.FeatureSpec, interaction: str):
    """The model's sizes, `nn.ctr.model.RankingConfig`, from the flags and the data set.

    Args:
      interaction: as `RankingConfig` has it.
    """
    from nn.ctr.model import RankingConfig

    features = spec.channel(fs.CATEGORICAL_CHANNEL)
    return RankingConfig(
        feature_names=features,
        cardinalities=tuple(spec.cardinalities(fs.CATEGORICAL_CHANNEL)),
        embedding_dims=parse_embedding_dims(config.model.embedding_dim, len(features)),
        num_numerical=sum(spec.hotnesses(fs.NUMERICAL_CHANNEL)),
        bottom_mlp_dims=config.model.bottom_mlp_dims,
        top_mlp_dims=config.model.top_mlp_dims,
        interaction=interaction,
        num_cross_layers=config.model.num_cross_layers,
        cross_layer_projection_dim=config.model.cross_layer_projection_dim,
    )


def uses_merlin(backend: str) -> bool:
    """Whether Merlin's own distributed-embeddings has the tables (`--embedding_backend`)."""
    if backend == "native":
        return False
    from nn.embedding.merlin_api.backend import is_available

    return backend == "merlin" or is_available()


def merlin_options(config: Config) -> dict:
    """Arguments of Merlin's layer. Raises ValueError for flags that it has nothing for."""
    wanted = config.distribution
    for name in ("exchange_dtype", "plan_device_memory_gb", "plan_host_memory_gb"):
        if name in config.explicit:
            raise ValueError(
                f"--{name} is not known to Merlin's distributed-embeddings: leave it out, or use "
                "--embedding_backend native"
            )
    if config.optimizer.sparse_optimizer == "rowwise_adagrad" and wanted.column_slice_threshold:
        raise ValueError(
            "--embedding_optimizer rowwise_adagrad needs means over whole rows, which Merlin's "
            "column slices (--column_slice_threshold) do not give: use another optimizer, or "
            "--embedding_backend native"
        )
    offloading = wanted.cpu_offloading_threshold_gb
    return {
        "strategy": wanted.dist_strategy,
        "column_slice_threshold": wanted.column_slice_threshold,
        "row_slice_threshold": wanted.row_slice_threshold,
        "data_parallel_threshold": wanted.data_parallel_threshold,
        "gpu_embedding_size": None if offloading is None else round(offloading * 1e9 / 4),
    }


def spec_of_rows(config: Config, spec: fs.FeatureSpec | None) -> fs.FeatureSpec:
    """The given spec, or that of rows which are generated from flags, or which folders store."""
    data = config.data
    if data.dataset_type == "split_tfrecords":
        from dataloading.formats.split_tfrecords.folder_format import spec_of_folders

        return spec_of_folders(spec)
    if data.dataset_type != "synthetic" or data.synthetic_dataset_use_feature_spec:
        return spec
    from dataloading.synthetic.rows import synthetic_spec

    hotness = data.synthetic_dataset_hotness
    return synthetic_spec(
        data.synthetic_dataset_cardinalities,
        hotness[0] if len(hotness) == 1 else hotness,
        data.synthetic_dataset_alpha,
        data.synthetic_dataset_num_numerical_features,
    )


def report_plan(config: Config, spec: fs.FeatureSpec | None) -> str:
    """Who would hold which slice of which table on `--plan_world_size` processes."""
    from nn.embedding.planner import report

    spec = spec_of_rows(config, spec)
    made = make_plan(config, spec, config.distribution.plan_world_size)
    return report(
        made,
        ranks_per_machine=config.distribution.plan_ranks_per_machine,
        dense_bytes=4 * num_dense_weights(config, spec),
    )


def num_dense_weights(config: Config, spec: fs.FeatureSpec) -> int:
    """Numbers in all weights that are not in tables, whose gradients are float32; without
    TensorFlow."""
    num_numerical = sum(spec.hotnesses(fs.NUMERICAL_CHANNEL))
    num_tables = len(spec.channel(fs.CATEGORICAL_CHANNEL))
    dims = parse_embedding_dims(config.model.embedding_dim, num_tables)
    bottom = config.model.bottom_mlp_dims if num_numerical else ()
    width, cross = bottom[-1] if bottom else 0, 0
    if config.model.interaction == "cross":
        width += sum(dims)
        rank = config.model.cross_layer_projection_dim
        cross = config.model.num_cross_layers * (2 * width * rank + width)
    elif num_tables:
        num_vectors = num_tables + bool(bottom)
        width += num_vectors * (num_vectors - 1) // 2
        width = -(-width // 8) * 8  # nn.layers.interaction.padded_width
    mlps = ((num_numerical, *bottom), (width, *config.model.top_mlp_dims))
    return cross + sum((n + 1) * m for sizes in mlps for n, m in itertools.pairwise(sizes))


def dense_step_bytes(config: Config, spec: fs.FeatureSpec, world_size: int) -> float:
    """Memory of a rank for the dense weights and for the activations of cross layers.

    A dense weight has a gradient and at most two numbers of optimizer state. A cross layer keeps
    its output and a product of the same width for the backward pass. All are float32.
    """
    weights = 4 * num_dense_weights(config, spec)
    if config.model.interaction != "cross":
        return 4 * weights
    num_tables = len(spec.channel(fs.CATEGORICAL_CHANNEL))
    width = sum(parse_embedding_dims(config.model.embedding_dim, num_tables))
    activations = 2 * config.model.num_cross_layers * width * config.run.batch_size / world_size
    return 4 * (weights + activations)


def make_plan(config: Config, spec: fs.FeatureSpec, world_size: int, memory=None):
    """The plan (`nn.embedding.planner.plan`) that training obeys and `--plan_only` prints.

    Args:
      memory: `runtime.hardware.memory.Memory` of a rank; None: not known.
    """
    features = spec.channel(fs.CATEGORICAL_CHANNEL)
    dims = parse_embedding_dims(config.model.embedding_dim, len(features))
    rows = spec.cardinalities(fs.CATEGORICAL_CHANNEL)
    return plan_of_tables(
        config,
        list(zip(features, rows, dims, strict=True)),
        world_size,
        hotness=spec.hotnesses(fs.CATEGORICAL_CHANNEL),
        wide_ids=any(spec.dtype(name).itemsize > 4 for name in features),
        memory=memory,
        dense_bytes=dense_step_bytes(config, spec, world_size),
    )


def open_rows(config: Config, spec: fs.FeatureSpec, world, read_features=None):
    """Training rows and rows to evaluate on, each or None, and how to get the best AUC.

    Args:
      read_features: features that this rank reads for the whole batch; None: all, of its share.
    """
    data, run = config.data, config.run
    share = {
        "rank": world.rank,
        "world_size": world.size,
        "prefetch_batches": data.prefetch_batches,
        "global_features": read_features,
    }
    train = None
    if data.dataset_type == "synthetic":
        from dataloading.synthetic.dataset import SyntheticDataset

        def generated(split: str, batch_size: int, num_batches: int):
            return SyntheticDataset(
                spec, split, batch_size, num_batches=num_batches, seed=run.seed, **share
            )

        if run.mode == "train":
            batches = data.synthetic_dataset_train_batches
            train = generated(fs.TRAIN, run.batch_size, batches)
            if not run.evals_per_epoch:
                return train, None, lambda: None
        batches = data.synthetic_dataset_valid_batches
        split = fs.VALIDATION if run.mode == "train" else fs.TEST
        valid = generated(split, run.valid_batch_size, batches)
        sample = SyntheticDataset(
            spec,
            split,
            run.valid_batch_size,
            num_rows=min(valid.num_rows, BEST_AUC_ROWS),
            seed=run.seed,
        )
        return train, valid, lambda: sample.best_auc

    if data.dataset_type == "split_tfrecords":
        from dataloading.formats.split_tfrecords.dataset import (
            SplitTFRecordsDataset as StoredDataset,
        )
    else:
        from dataloading.formats.raw_binary import RawBinaryDataset as StoredDataset

    if run.mode == "train":
        train = StoredDataset(
            spec,
            fs.TRAIN,
            run.batch_size,
            shuffle=data.shuffle,
            seed=run.seed,
            window_rows=data.shuffle_window_rows,
            **share,
        )
    if run.mode == "train" and not run.evals_per_epoch:
        return train, None, lambda: None
    mapping = evaluation_mapping(data.eval_mapping, run.mode, spec)
    valid = StoredDataset(
        spec, mapping, run.valid_batch_size, with_labels=run.mode != "predict", **share
    )
    # Generated data sets record it (dataloading/synthetic/dataset.py).
    recorded = spec.metadata.get(mapping)
    known = recorded.get("best_auc") if isinstance(recorded, dict) else None
    return train, valid, lambda: known
