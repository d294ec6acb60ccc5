"""Shape, embedding tables and construction of DLRM and DCNv2 from the flags and the data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed_embeddings.collectives import World

from config.config import Config
from config.sections.model import parse_embedding_dims
from dataloading.spec import feature_spec as fs
from nn.ctr.sizes import CTRConfig, embedding_tables
from recipes import from_flags
from recipes.from_flags import TableUse, make_plan
from recipes.ranking.numerical_bins import count_bins, edges_of_numbers
from runtime.hardware.device import Device

if TYPE_CHECKING:
    from nn.ctr.model import CTRModel


def build_model(config: Config, spec: fs.FeatureSpec, world: World, device: Device) -> CTRModel:
    """Returns the untrained model alone, which needs no samples."""
    from nn.ctr.model import CTRModel
    from nn.layers.fused_op import choose_dot

    interaction = config.family_flags.interaction
    if interaction != "cross":
        interaction, _ = choose_dot(interaction, device.kind)
    return CTRModel(
        model_config(config, spec, interaction),
        edges=edges_of_numbers(config, spec),
        embedding_zeros=config.model.embedding_zeros_initializer,
        plan=make_plan(config, spec, world.size, device.memory),
        model_parallel_input=config.distribution.model_parallel_input,
        **from_flags.model_arguments(config, device, world),
    )


def model_config(config: Config, spec: fs.FeatureSpec, interaction: str | None = None) -> CTRConfig:
    """Returns the shape of the model; without `interaction`, with cross layers or any dot one."""
    flags = config.family_flags
    if interaction is None:
        interaction = "cross" if flags.interaction == "cross" else "dot_tensorflow"
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
        bottom_mlp_dims=flags.bottom_mlp_dims,
        top_mlp_dims=flags.top_mlp_dims,
        interaction=interaction,
        num_cross_layers=flags.num_cross_layers,
        cross_layer_projection_dim=flags.cross_layer_projection_dim,
        num_bins=count_bins(config, spec),
        is_wide=flags.wide,
        dropout_rate=max(0.0, config.model.dropout_rate),
        variant=config.model.variant,
    )


def table_use(config: Config, spec: fs.FeatureSpec, shape: CTRConfig, world_size: int) -> TableUse:
    """Returns the tables and their lookups; see `config.family.Family`."""
    return TableUse(
        embedding_tables(shape),
        hotness=spec.hotnesses(fs.CATEGORICAL_CHANNEL) if shape.feature_names else (),
        has_wide_ids=any(spec.dtype(name).itemsize > 4 for name in shape.feature_names),
        dense_bytes=shape.dense_step_bytes(config.run.batch_size / world_size),
    )
