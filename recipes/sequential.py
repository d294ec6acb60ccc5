"""What the sequential recipe composes: histories from TFRecords, SIM, DIEN or DIN over them."""

import dataclasses
import os

from config import Config
from dataloading.formats.sequence_tfrecord.channels import (
    SequenceChannels,
    num_ids,
    sequence_channels,
)
from dataloading.spec import feature_spec as fs
from recipes.from_flags import (
    evaluation_mapping,
    model_arguments,
    plan_of_tables,
    row_facts,
    split_note,
)
from recipes.recipe import METRICS, Goal, Recipe
from runtime.logs.run_logger import LogNames

# Bytes that forward and backward pass of DIEN's block keep for each number of its history; as
# measured with 100 steps of 32 numbers, 0.41 MiB a row.
STATE_BYTES = 134

# What a checkpoint must remember to build the model again.
SHAPE_FLAGS = (
    *("model_type", "stage_one_mlp_dims", "stage_two_mlp_dims", "aux_mlp_dims"),
    *("long_seq_length", "gsu", "gsu_top_k", "din_attention"),
)


def build(config: Config, spec: fs.FeatureSpec, world, device) -> Recipe:
    """The sequential model, its rows, losses, optimizers and evaluator."""
    from nn.metrics.evaluator import ClickEvaluator, TrainingRowsToo
    from nn.sequence.config import embedding_tables
    from nn.sequence.loss import sequence_loss
    from nn.sequence.model import SequenceModel

    channels = channels_of(config, spec)
    shape = model_config(config, spec, channels)
    plan = make_plan(config, shape, world.size, device.memory)
    model = SequenceModel(
        shape,
        plan=plan,
        **model_arguments(config, device, world),
    )
    train, again, valid, mapping = open_rows(config, spec, world)
    evaluator = None
    if valid and config.run.mode != "predict":
        evaluator = ClickEvaluator(model, valid, config.run.auc_thresholds, world)
        if again:
            evaluator = TrainingRowsToo(
                evaluator, ClickEvaluator(model, again, config.run.auc_thresholds, world)
            )
    of_model = {name: getattr(config.sequence, name) for name in SHAPE_FLAGS}
    return Recipe(
        model=model,
        train=train,
        valid=valid,
        loss=sequence_loss,
        groups=model.optimizer_groups(config.optimizer),
        evaluator=evaluator,
        model_flags={"embedding_dim": config.model.embedding_dim, **of_model},
        facts={
            "model": config.sequence.model_type,
            **row_facts(train, valid),
            "tables": len(embedding_tables(shape)),
            "history": shape.history_length,
            "parameters": model.num_parameters,
        },
        notes=(
            plan.memory_note,
            *memory_notes(config, shape, train, valid, world),
            split_note(config.run.mode, spec, valid, "prepare the data with --validation_event"),
        ),
        loss_terms=loss_terms(shape),
        log_names=log_names(config.run.mode, mapping),
        metrics=(*METRICS, "train_auc", "train_loss"),
        goal=Goal(threshold=config.run.auc_threshold),
    )


def needs_negatives(config: Config) -> bool:
    """Whether negative histories are read: the auxiliary loss alone compares with them."""
    return config.run.mode == "train" and config.sequence.model_type in ("sim", "dien")


def channels_of(config: Config, spec: fs.FeatureSpec) -> SequenceChannels:
    """The channels that this run reads."""
    with_labels = config.run.mode != "predict"
    return sequence_channels(spec, with_labels=with_labels, with_negatives=needs_negatives(config))


def memory_notes(config: Config, shape, train, valid, world) -> list[str]:
    """What the reader must know of the memory that rows and steps take."""
    notes = []
    for name, rows in (("training", train), ("held-out", valid)):
        if rows is None or not rows.cached:
            continue
        gib = rows.cache_bytes / 2**30
        notes.append(f"decoded {name} rows stay in memory, {gib:.2f} GiB in each process")
    if train is not None and not train.cached and not config.data.disable_cache:
        gib = train.cache_bytes / 2**30
        notes.append(
            f"decoded training rows would take {gib:.1f} GiB: each epoch decodes them anew"
        )
    steps = shape.history_length - shape.short_start
    rows = -(-config.run.batch_size // world.size)
    gib = rows * steps * shape.item_dim * STATE_BYTES / 2**30
    if train is not None and shape.model_type in ("sim", "dien") and gib >= 1:
        notes.append(
            f"the recurrences over {steps} steps keep about {gib:.0f} GiB for the backward pass in "
            "each process; a smaller --global_batch_size takes less"
        )
    return notes


def loss_terms(shape) -> list[str]:
    """Names of the losses that a model has (nn/sequence/loss.py), which the log shows."""
    names = ["classification_loss"]
    if shape.num_negatives:
        names.append("dien_aux_loss")
    if (shape.model_type, shape.gsu) == ("sim", "soft"):
        names.append("gsu_loss")
    return names


def log_names(mode: str, mapping: str | None) -> LogNames:
    """The original's names of what this project logs.

    Args:
      mode: `--mode`.
      mapping: the rows that are evaluated on; None where there are none.
    """
    rows = {"auc": f"{mapping}_auc", "log_loss": f"{mapping}_loss"} if mapping else {}
    elapsed = "time_to_train" if mode == "train" else "time"
    return LogNames(
        step={"loss": "total_loss", "throughput": "samples/s", **rows},
        epoch={"epoch_s": "time", **rows},
        summary={"elapsed_s": elapsed, **rows},
        epoch_lines=True,
    )


def model_config(config: Config, spec: fs.FeatureSpec, channels: SequenceChannels):
    """The model's sizes, `nn.sequence.config.SequenceConfig`, from the flags and the data set."""
    from nn.sequence.config import SequenceConfig

    sequence = config.sequence
    if not config.model.embedding_dim.strip().isdigit():
        raise ValueError(
            "--embedding_dim of a sequential model is one integer, got "
            f"{config.model.embedding_dim!r}: the vectors of an item are compared with each other"
        )
    long = sequence.long_seq_length
    if sequence.model_type == "sim" and long >= channels.history_length:
        raise ValueError(
            f"--long_seq_length {long} leaves nothing for the short history: {spec.origin} has "
            f"histories of {channels.history_length}; give less, or use --model_type dien"
        )
    return SequenceConfig(
        model_type=sequence.model_type,
        user_features=channels.user,
        user_cardinalities=tuple(num_ids(spec, feature) for feature in channels.user),
        item_features=channels.target,
        item_cardinalities=tuple(num_ids(spec, feature) for feature in channels.target),
        embedding_dim=int(config.model.embedding_dim),
        history_length=channels.history_length,
        long_seq_length=long,
        stage_one_mlp_dims=sequence.stage_one_mlp_dims,
        stage_two_mlp_dims=sequence.stage_two_mlp_dims,
        aux_mlp_dims=sequence.aux_mlp_dims,
        top_k=sequence.gsu_top_k,
        gsu=sequence.gsu,
        attention=sequence.din_attention,
        dropout_rate=max(0.0, sequence.dropout_rate),
    )


def report_plan(config: Config, spec: fs.FeatureSpec) -> str:
    """Who would hold which slice of which table on `--plan_world_size` processes."""
    from nn.embedding.planner import report
    from nn.embedding_model import dense_bytes
    from nn.sequence.model import SequenceModel

    shape = model_config(config, spec, channels_of(config, spec))
    made = make_plan(config, shape, config.distribution.plan_world_size)
    one_row_each = dataclasses.replace(
        shape,
        user_cardinalities=(1,) * len(shape.user_features),
        item_cardinalities=(1,) * len(shape.item_features),
    )
    return report(
        made,
        ranks_per_machine=config.distribution.plan_ranks_per_machine,
        dense_bytes=dense_bytes(lambda: SequenceModel(one_row_each)),
    )


def make_plan(config: Config, shape, world_size: int, memory=None):
    """The plan (`nn.embedding.planner.plan`) that training obeys and `--plan_only` prints.

    Args:
      memory: `runtime.hardware.memory.Memory` of a rank; None: not known.
    """
    from nn.sequence.config import embedding_tables, feature_table_map, hotnesses

    features = feature_table_map(shape)
    cardinalities = shape.user_cardinalities + shape.item_cardinalities
    return plan_of_tables(
        config,
        embedding_tables(shape),
        world_size,
        hotness=hotnesses(shape),
        wide_ids=max(cardinalities) > 2**31,
        input_table_map=features,
        combined=[False] * len(features),
        memory=memory,
    )


def open_rows(config: Config, spec: fs.FeatureSpec, world):
    """(training rows, the same to evaluate on, held-out rows, their mapping), or None each."""
    from dataloading.formats.sequence_tfrecord.dataset import SequenceTFRecordDataset

    data, run = config.data, config.run
    share = {
        "rank": world.rank,
        "world_size": world.size,
        "parallel_reads": data.num_parallel_calls or max(2, len(os.sched_getaffinity(0)) // 2),
    }

    # Other modes read each row once.
    keeps = not data.disable_cache and run.mode in ("train", "inference")

    def opened(mapping: str, batch_size: int, *, with_negatives: bool = False, **settings):
        of_training = mapping == fs.TRAIN
        return SequenceTFRecordDataset(
            spec,
            mapping,
            batch_size,
            with_negatives=with_negatives,
            prebatch_size=(data.prebatch_train_size if of_training else data.prebatch_test_size)
            or None,
            **{"cache": keeps, **share, **settings},
        )

    train = again = None
    if run.mode == "train":
        train = opened(
            fs.TRAIN,
            run.batch_size,
            with_negatives=needs_negatives(config),
            shuffle=data.shuffle,
            seed=run.seed,
            prefetch_batches=data.prefetch_batches,
            drop_remainder=data.drop_remainder,
            repeat_count=data.repeat_count,
        )
        if run.benchmark or not run.evals_per_epoch:
            return train, None, None, None
    evaluation = {"prefetch_batches": data.prefetch_test_size}
    mapping = evaluation_mapping(data.eval_mapping, run.mode, spec)
    valid = opened(mapping, run.valid_batch_size, with_labels=run.mode != "predict", **evaluation)
    if run.mode == "train" and run.evaluate_training_rows and mapping != fs.TRAIN:
        # In memory they are for training, there with negatives and in another order.
        again = opened(fs.TRAIN, run.valid_batch_size, cache=False, **evaluation)
    return train, again, valid, mapping
