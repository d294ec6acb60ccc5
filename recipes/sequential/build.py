"""Recipe of SIM, DIEN and DIN: samples with behavior histories, a sequential model over them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.spec import feature_spec as fs
from dataloading.spec.history_channels import (
    POSITIVE_CHANNEL,
    TARGET_CHANNEL,
    sequence_channels,
)
from recipes import from_flags
from recipes.recipe import METRICS, Evaluator, Goal, Recipe
from recipes.sequential.shape import (
    build_model,
    needs_negatives,
    optimizer_config,
)
from runtime.hardware.device import Device

if TYPE_CHECKING:
    from dataloading.histories.dataset import SequenceDataset
    from nn.metrics.group_metrics import Grouping
    from nn.sequence.sizes import SequenceModelConfig

# Bytes that forward and backward pass of DIEN's block keep per number of a sample's history: 0.41
# MiB per sample were measured with 100 steps of 32 numbers.
STATE_BYTES = 134


def build(config: Config, spec: fs.FeatureSpec, world: World, device: Device) -> Recipe:
    """Composes the sequential model, its data, losses, optimizers and evaluator."""
    from nn.metrics.evaluator import ClickEvaluator, HeldOutAndTrainEvaluator
    from nn.sequence.loss import sequence_loss
    from nn.sequence.sizes import NVIDIA, embedding_tables

    model = (config.definition.build_model or build_model)(config, spec, world, device)
    shape = model.config
    optimizer, is_nvidia = optimizer_config(config), shape.variant == NVIDIA
    train, valid, evaluated_train = None, None, None
    recommendation, rankings = from_flags.rankings(
        "recipes.sequential.rankings", config, spec, model, world
    )
    if config.run.mode != "recommend":
        train, valid, evaluated_train = open_data(config, spec, world)
    evaluator: Evaluator | None = None
    grouping = None
    if valid is not None and config.run.mode != "predict":
        grouping = _grouping(config, spec)
        thresholds = config.evaluation.auc_thresholds
        evaluator = ClickEvaluator(model, valid, thresholds, world, grouping)
        if evaluated_train is not None:
            training = ClickEvaluator(model, evaluated_train, thresholds, world)
            evaluator = HeldOutAndTrainEvaluator(evaluator, training)
    return Recipe(
        model=model,
        train=train,
        valid=valid,
        loss=sequence_loss,
        optimizers=model.create_optimizers(optimizer, independent_decay=is_nvidia),
        evaluator=evaluator,
        facts={
            **from_flags.data_facts(train, valid),
            "tables": len(embedding_tables(shape)),
            "history": shape.history_length,
            "parameters": model.num_parameters,
        },
        notes=(
            model.embedding.plan.memory_note,
            *_memory_notes(config, shape, train, world),
            from_flags.note_test_split(
                config.run.mode, spec, valid, "prepare the data with --validation"
            ),
            *(recommendation.notes if recommendation else ()),
        ),
        loss_terms=_loss_terms(shape),
        saves_epochs=True,
        metrics=(
            *(*METRICS, *(grouping.metrics if grouping else ()), "train_auc", "train_loss"),
            *(name for ranking in rankings for name in ranking.names),
        ),
        goal=Goal(threshold=config.evaluation.auc_threshold),
        kept=from_flags.kept_columns(config, spec, valid, world, _tables_of_histories(spec)),
        recommendation=recommendation,
        rankings=rankings,
    )


def _grouping(config: Config, spec: fs.FeatureSpec) -> Grouping | None:
    """Returns the groups of samples by `--group_column`; None without it."""
    if config.evaluation.group_column is None:
        return None
    channels = sequence_channels(spec, with_labels=True, with_negatives=False)
    groups = {"user": channels.user, "target": channels.target}
    return from_flags.grouping(config, spec, groups, [*channels.user, *channels.target])


def _memory_notes(
    config: Config,
    shape: SequenceModelConfig,
    train: SequenceDataset | None,
    world: World,
) -> Iterator[str]:
    """Yields notes on the memory that steps take."""
    if train is None:
        return
    steps = shape.history_length - shape.short_start
    samples = -(-config.run.batch_size // world.size)
    gib = samples * steps * shape.state_dim * STATE_BYTES / 2**30
    if shape.model_type in ("sim", "dien") and gib >= 1:
        yield (
            f"the recurrences over {steps} steps keep about {gib:.0f} GiB for the backward pass in "
            "each process; a smaller --batch_size takes less"
        )


def _loss_terms(shape: SequenceModelConfig) -> list[str]:
    """Returns the names of the terms of the model's loss (`nn.sequence.loss`), of a sum only."""
    names = ["classification_loss"]
    if shape.num_negatives:
        names.append("dien_aux_loss")
    if (shape.model_type, shape.gsu) == ("sim", "soft") and shape.variant != "nvidia":
        names.append("gsu_loss")
    return names if len(names) > 1 else []


def open_data(
    config: Config, spec: fs.FeatureSpec, world: World
) -> tuple[SequenceDataset | None, SequenceDataset | None, SequenceDataset | None]:
    """Opens the samples to train on, those to evaluate, and training samples to evaluate."""
    from dataloading.histories.dataset import SequenceDataset

    data, run, own = config.data, config.run, config.family_flags
    train, evaluated_train = None, None

    def load(split: str, batch_size: int | None, **options: Any) -> SequenceDataset:
        assert batch_size is not None
        prebatch_size = own.prebatch_train_size if split == fs.TRAIN else own.prebatch_test_size
        return SequenceDataset(
            spec,
            split,
            batch_size,
            rank=world.rank,
            world_size=world.size,
            parallel_reads=own.num_parallel_calls or max(2, len(os.sched_getaffinity(0)) // 2),
            prebatch_size=prebatch_size or None,
            **options,
        )

    if run.mode == "train":
        train = load(
            fs.TRAIN,
            run.batch_size,
            with_negatives=needs_negatives(config),
            shuffle=data.shuffle,
            seed=run.seed,
            redraws_negatives=True,
            prefetch_batches=data.prefetch_batches,
            drop_remainder=own.drop_remainder,
            repeat_count=own.repeat_count,
        )
        if config.evaluation.benchmark or not config.evaluation.evals_per_epoch:
            return train, None, None
    split = from_flags.evaluation_split(data.eval_mapping, run.mode, spec)
    options = {"prefetch_batches": own.prefetch_test_size, "with_negatives": False}
    has_labels = run.mode != "predict"
    valid = load(split, run.valid_batch_size, with_labels=has_labels, **options)
    if run.mode == "train" and own.evaluate_training_rows and split != fs.TRAIN:
        evaluated_train = load(fs.TRAIN, run.valid_batch_size, **options)
    return train, valid, evaluated_train


def _tables_of_histories(spec: fs.FeatureSpec) -> dict[str, str]:
    """Returns the feature of the target item whose ids each feature of a history has."""
    histories = (
        spec.channel_spec.get(name, ()) for name in (POSITIVE_CHANNEL, fs.NEGATIVE_CHANNEL)
    )
    targets = spec.channel(TARGET_CHANNEL)
    return {
        feature: target
        for features in histories
        for feature, target in zip(features, targets, strict=False)
    }
