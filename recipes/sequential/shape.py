"""Shape, embedding tables and construction of SIM, DIEN and DIN from the flags and the data set."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from distributed_embeddings.collectives import World

from config.config import Config
from config.sections.optimizer import OptimizerConfig
from dataloading.spec import feature_spec as fs
from dataloading.spec.history_channels import num_ids, sequence_channels
from nn.sequence.sizes import SequenceModelConfig, embedding_tables, hotnesses
from recipes import from_flags
from recipes.from_flags import TableUse, make_plan
from runtime.hardware.device import Device

if TYPE_CHECKING:
    from nn.sequence.model import SequenceModel


def build_model(
    config: Config, spec: fs.FeatureSpec, world: World, device: Device
) -> SequenceModel:
    """Returns the untrained model alone, which needs no samples."""
    from nn.sequence.model import SequenceModel

    plan = make_plan(config, spec, world.size, device.memory)
    arguments = from_flags.model_arguments(config, device, world)
    return SequenceModel(model_config(config, spec), plan=plan, **arguments)


def model_config(config: Config, spec: fs.FeatureSpec) -> SequenceModelConfig:
    """Returns the shape of the model from the flags and the data set."""
    sequence = config.family_flags
    channels = sequence_channels(
        spec, with_labels=config.run.mode != "predict", with_negatives=needs_negatives(config)
    )
    if not config.model.embedding_dim.strip().isdigit():
        raise ValueError(
            "--embedding_dim of a sequential model is one integer, got "
            f"{config.model.embedding_dim!r}: the vectors of an item are compared with each other"
        )
    long_length = sequence.long_seq_length
    if sequence.model_type == "sim" and long_length >= channels.history_length:
        raise ValueError(
            f"--long_seq_length {long_length} leaves nothing for the short history: {spec.origin} "
            f"has histories of {channels.history_length}; give less, for example "
            f"{channels.history_length * 9 // 10}, or use --model_type dien"
        )
    return SequenceModelConfig(
        model_type=sequence.model_type,
        user_features=channels.user,
        user_cardinalities=tuple(num_ids(spec, feature) for feature in channels.user),
        item_features=channels.target,
        item_cardinalities=tuple(num_ids(spec, feature) for feature in channels.target),
        embedding_dim=int(config.model.embedding_dim),
        history_length=channels.history_length,
        long_seq_length=long_length,
        stage_one_mlp_dims=sequence.stage_one_mlp_dims,
        stage_two_mlp_dims=sequence.stage_two_mlp_dims,
        aux_mlp_dims=sequence.aux_mlp_dims,
        top_k=sequence.gsu_top_k,
        gsu=sequence.gsu,
        attention=sequence.din_attention,
        history_product=sequence.history_product,
        user_dropout_rate=sequence.user_dropout_rate,
        dropout_rate=max(0.0, config.model.dropout_rate),
        variant=config.model.variant,
    )


def optimizer_config(config: Config) -> OptimizerConfig:
    """Returns the flags of the optimizers; Adam of `--variant nvidia` moves all rows of tables."""
    flags = config.optimizer
    if config.model.variant == "nvidia" and flags.embedding_optimizer == "auto":
        return dataclasses.replace(flags, embedding_optimizer=flags.optimizer)
    return flags


def needs_negatives(config: Config) -> bool:
    """Returns whether negative histories are read: only the auxiliary loss uses them."""
    return config.run.mode == "train" and config.family_flags.model_type in ("sim", "dien")


def table_use(
    config: Config, spec: fs.FeatureSpec, shape: SequenceModelConfig, world_size: int
) -> TableUse:
    """Returns the tables and their lookups; see `config.family.Family`."""
    return TableUse(
        embedding_tables(shape),
        hotness=hotnesses(shape),
        has_wide_ids=max(shape.user_cardinalities + shape.item_cardinalities) > 2**31,
        is_pooled=False,
        optimizer=optimizer_config(config).sparse_optimizer,
    )


def dense_bytes_of(shape: SequenceModelConfig) -> int:
    """Returns the bytes of the dense weights."""
    from nn.embedding_model import dense_bytes
    from nn.sequence.model import SequenceModel

    one_row_each = dataclasses.replace(
        shape,
        user_cardinalities=(1,) * len(shape.user_features),
        item_cardinalities=(1,) * len(shape.item_features),
    )
    return dense_bytes(lambda: SequenceModel(one_row_each))
