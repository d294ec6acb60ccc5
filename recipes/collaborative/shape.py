"""Shape, embedding tables and construction of NeuMF, GMF and MLP from flags and data set."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.spec import feature_spec as fs
from nn.ncf.sizes import NCFConfig, embedding_tables
from recipes import from_flags
from recipes.from_flags import TableUse, make_plan
from runtime.hardware.device import Device

if TYPE_CHECKING:
    from nn.ncf.model import NCFModel


def build_model(config: Config, spec: fs.FeatureSpec, world: World, device: Device) -> NCFModel:
    """Returns the untrained model alone, which needs no samples."""
    from nn.ncf.model import NCFModel

    plan = make_plan(config, spec, world.size, device.memory)
    arguments = from_flags.model_arguments(config, device, world)
    return NCFModel(model_config(config, spec), plan=plan, **arguments)


def model_config(config: Config, spec: fs.FeatureSpec) -> NCFConfig:
    """Returns the shape of the model from the flags and the data set."""
    flags = config.family_flags
    (users,), (items,) = (
        spec.cardinalities(channel) for channel in (fs.USER_CHANNEL, fs.ITEM_CHANNEL)
    )
    return NCFConfig(
        model_type=flags.model_type,
        num_users=users,
        num_items=items,
        factors=flags.factors,
        layers=flags.layers,
        dropout=flags.dropout,
    )


def table_use(config: Config, spec: fs.FeatureSpec, shape: NCFConfig, world_size: int) -> TableUse:
    """Returns the tables and their lookups; see `config.family.Family`."""
    tables = embedding_tables(shape)
    return TableUse(
        tables,
        hotness=[1] * len(tables),
        has_wide_ids=False,  # dataloading/interactions/stored.py allows ids of int32 only
        is_pooled=False,
        # Each row of a table is looked up at most once per rank.
        max_samples=world_size * max(shape.num_users, shape.num_items),
    )


def dense_bytes_of(shape: NCFConfig) -> int:
    """Returns the bytes of the dense weights."""
    from nn.embedding_model import dense_bytes
    from nn.ncf.model import NCFModel

    return dense_bytes(lambda: NCFModel(dataclasses.replace(shape, num_users=1, num_items=1)))
