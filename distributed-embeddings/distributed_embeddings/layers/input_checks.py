"""Checks of the tables, the plan and the inputs of a layer of sharded tables."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from distributed_embeddings.exchange.ids import Ids
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.custom_layer import holds_for_columns
from distributed_embeddings.layers.table_spec import TableSpec
from distributed_embeddings.planner import Plan


def check_single_replica(name: str) -> None:
    """Raises ValueError in the scope, or in a replica, of a strategy with several replicas.

    A replica would look up its own copy of the tables, or none.

    Args:
        name: of the layer, for the message.
    """
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1:
        raise ValueError(
            f"{name}: expected one process per device, got {type(strategy).__name__} with "
            f"{strategy.num_replicas_in_sync} replicas: leave the tf.distribute strategy out, "
            "take gradients with DistributedGradientTape, and start a process per device: "
            "horovodrun -np N python TRAIN.py"
        )


def check_layers(embeddings: Sequence[keras.layers.Layer], compute_dtype: str) -> None:
    """Raises ValueError for a layer that is given twice, or a dtype that is not honored."""
    places: dict[int, int] = {}
    for t, layer in enumerate(embeddings):
        first = places.setdefault(id(layer), t)
        if first != t:
            raise ValueError(
                f"embeddings[{t}] is the layer embeddings[{first}] ({layer.name}): expected "
                "one layer per table; for features that share a table, pass its layer once and "
                "input_table_map with its number for each of them"
            )
        _check_dtype(t, layer, compute_dtype)


def _check_dtype(t: int, layer: keras.layers.Layer, compute_dtype: str) -> None:
    """Raises ValueError if an output of `compute_dtype` loses what the layer's dtype promises.

    Args:
        t: Position of the layer.
        compute_dtype: That of the `DistributedEmbedding`.
    """
    wide = layer.variable_dtype == "float64"
    if layer.compute_dtype != compute_dtype and (
        wide or layer.compute_dtype != layer.variable_dtype
    ):
        policy = "float64" if wide else f"mixed_{layer.compute_dtype}"
        raise ValueError(
            f"embeddings[{t}] ({type(layer).__name__} {layer.name}): expected outputs in the "
            f"compute dtype of DistributedEmbedding, {compute_dtype}, got a layer that computes in "
            f"{layer.compute_dtype}: pass dtype={policy!r} to DistributedEmbedding, or remove it "
            "from the layer"
        )


def check_plan(
    plan: Plan,
    specs: Sequence[TableSpec],
    embeddings: Sequence[keras.layers.Layer],
    num_ranks: int,
    dp_input: bool,
) -> None:
    """Raises ValueError for a plan that is not of these tables, or cuts what cannot be cut."""
    mine = [(spec.table.rows, spec.table.dim) for spec in specs]
    if [(t.rows, t.dim) for t in plan.tables] != mine or plan.world_size != num_ranks:
        raise ValueError(
            f"the plan is of {len(plan.tables)} tables on {plan.world_size} ranks, the layer "
            f"has {len(mine)} tables on {num_ranks}: plan for the same tables and ranks"
        )
    if not dp_input and (plan.data_parallel_tables or plan.row_sliced_tables):
        raise ValueError(
            "the plan has data-parallel or row-sliced tables, of which every rank needs ids: "
            "they need dp_input=True"
        )
    idle = [rank for rank, inputs in enumerate(plan.input_ids_list) if not inputs]
    if idle and not dp_input:
        raise ValueError(
            f"ranks {idle} hold no table, so that model-parallel input does not give them the "
            "batch: cut tables with a lower column_slice_threshold, start at most as many "
            "ranks as there are slices, or use dp_input=True"
        )
    for t, spec in enumerate(specs):
        if spec.fused:
            continue
        cut = "row slices" if t in plan.row_sliced_tables else ""
        if len(plan.column_slices[t]) > 1 and not holds_for_columns(embeddings[t]):
            cut = "column slices"
        if cut:
            raise ValueError(
                f"table {spec.table.name} is a {spec.layer_type.__name__} with code, a "
                f"regularizer or a constraint of its own, which does not hold for {cut}: raise "
                "the threshold above its size, or use the package's Embedding without them"
            )


def check_group(specs: Sequence[TableSpec]) -> None:
    """Raises ValueError for tables that cannot share a variable."""
    kinds = {(spec.dtype, spec.trainable, spec.fused) for spec in specs}
    if len(kinds) > 1 or (len(specs) > 1 and not specs[0].fused):
        names = [spec.table.name for spec in specs]
        raise ValueError(
            f"the plan puts {names} into one variable, but their layers differ in dtype, "
            "trainable or class: give them different `key`s in "
            "`distributed_embeddings.planner.Table`"
        )


def check_batch_sizes(ids: Mapping[int, Ids], name: str, divisor: int) -> None:
    """Raises ValueError for features with different numbers of samples.

    Args:
        ids: By feature.
        name: Of the layer.
        divisor: Number by which the samples are divisible: with model-parallel input the ranks.
    """
    sizes: dict[int | None, int] = {}
    for f, (_, values, lengths) in ids.items():
        sizes.setdefault((values if lengths is None else lengths).shape[0], f)
    sizes.pop(None, None)  # not known when the graph is traced
    if len(sizes) > 1:
        (one, f), (other, g) = list(sizes.items())[:2]
        raise ValueError(
            f"{name}: all features need ids of the same samples, but feature {f} has "
            f"{one} and feature {g} has {other}"
        )
    for size, f in sizes.items():
        if size % divisor:
            raise ValueError(
                f"{name}: model-parallel input has equally many samples of each rank, but "
                f"the {size} of feature {f} are not divisible by {divisor} ranks: pad "
                "the batch"
            )
