"""A plan in the numbering of the original library's `DistEmbeddingStrategy`.

There, tables form three groups (data-parallel, table-parallel, row-sliced), and the lists about
table-parallel tables count tables and inputs within their group, not over all.
"""

from collections.abc import Sequence
from typing import Any

from distributed_embeddings import planner
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.table_spec import TableSpec, read_table
from distributed_embeddings.planner import DATA_PARALLEL, HOST, TABLE_PARALLEL, Plan

THRESHOLDS = (
    "column_slice_threshold",
    "row_slice_threshold",
    "data_parallel_threshold",
    "gpu_embedding_size",
)


class DistEmbeddingStrategy:
    """Placement of embedding tables on ranks, described by lists; by rank where they are nested.

    The placement is that of `distributed_embeddings.planner.plan`.

    Args:
        embeddings: The tables, see `DistributedEmbedding`.
        world_size: Number of ranks.
        strategy, input_table_map, column_slice_threshold, row_slice_threshold: See
            `DistributedEmbedding`.
        data_parallel_threshold, gpu_embedding_size: See `DistributedEmbedding`.
        plan: The plan to describe, made with these thresholds; None: it is made.

    Attributes:
        strategy: Name of the strategy that placed the tables; "basic" on one rank.
        column_slice_threshold, row_slice_threshold, data_parallel_threshold, gpu_embedding_size:
            The arguments.
        plan: The plan that the lists describe.
        global_configs: For each table the config of its layer, with its class as `layer_type`.
        table_groups: Tables that are data-parallel, table-parallel, row-sliced.
        input_groups: Inputs of each group.
        map_groups: For each group and input the table, counted within the group.
        rev_group_ids: For each input its position in the concatenated inputs of the three groups.
        dp_configs: For each data-parallel table its config.
        row_sliced_configs: For each rank and row-sliced table the config of the rank's rows.
        row_inputs_offsets: Offset of the ids of each row-sliced table to the rank's first row.
        input_ids_list: Inputs (within the group) that the rank looks up.
        table_ids: Tables (within the group) of the rank, slices of one table merged.
        local_configs: For each variable of the rank the config of its first table, with input_dim
            and output_dim of the variable, and cpu_offload.
        local_maps: For each of the rank's inputs its variable.
        local_input_offsets: For each of the rank's inputs the row at which its table starts.
        local_weight_offsets: For each variable the row at which each table starts, and the end.
        local_group_list: For each variable the positions of its tables in `table_ids`.
        widths_list_flat: Width of the result of each lookup, rank by rank.
        rev_tp_ids: Lookups, rank by rank, in the order of inputs and columns.
        sliced_out_ranges: [first, end) of results that make one output; first is the input.

    Raises:
        ValueError: The strategy is unknown, or a table has no input_dim or output_dim.
    """

    def __init__(
        self,
        embeddings: Sequence[keras.layers.Layer],
        world_size: int,
        strategy: str = "basic",
        input_table_map: Sequence[int] | None = None,
        column_slice_threshold: int | None = None,
        row_slice_threshold: int | None = None,
        data_parallel_threshold: int | None = None,
        gpu_embedding_size: int | None = None,
        *,
        plan: Plan | None = None,
    ):
        specs = [read_table(t, layer) for t, layer in enumerate(embeddings)]
        values = (
            column_slice_threshold,
            row_slice_threshold,
            data_parallel_threshold,
            gpu_embedding_size,
        )
        if plan is None:
            plan = make_plan(specs, world_size, strategy, input_table_map, *values)
        self.strategy = "basic" if plan.world_size == 1 else plan.strategy
        vars(self).update(zip(THRESHOLDS, values, strict=True))
        self.plan = plan
        self.global_configs = [{**spec.config, "layer_type": spec.original_type} for spec in specs]
        vars(self).update(plan_attributes(plan))
        self.dp_configs = [dict(self.global_configs[t]) for t in plan.data_parallel_tables]
        self.row_sliced_configs = [
            [
                {**self.global_configs[t], "input_dim": bounds[rank + 1] - bounds[rank]}
                for t in plan.row_sliced_tables
                for bounds in [plan.row_bounds(t)]
            ]
            for rank in range(plan.world_size)
        ]
        self.local_configs = [
            [
                {
                    **self.global_configs[group.shards[0].table],
                    "input_dim": group.rows,
                    "output_dim": group.dim,
                    "cpu_offload": group.device == HOST,
                }
                for group in plan.groups(rank)
                if group.kind == TABLE_PARALLEL
            ]
            for rank in range(plan.world_size)
        ]


def make_plan(
    specs: Sequence[TableSpec],
    world_size: int,
    strategy: str,
    input_table_map: Sequence[int] | None = None,
    column_slice_threshold: int | None = None,
    row_slice_threshold: int | None = None,
    data_parallel_threshold: int | None = None,
    gpu_embedding_size: int | None = None,
    dp_input: bool = True,
) -> Plan:
    """Plans tables from the arguments of `DistributedEmbedding`."""
    tables = [spec.table for spec in specs]
    inputs = range(len(tables)) if input_table_map is None else input_table_map
    combined = [spec.combiner is not None for spec in specs]
    features = tuple(
        planner.Feature(t, combined=combined[t] if t < len(combined) else True) for t in inputs
    )
    offloading_bytes = None
    if gpu_embedding_size is not None:
        offloading_bytes = gpu_embedding_size * max([t.itemsize for t in tables], default=4)
    limits = planner.Limits(
        column_slice_threshold, row_slice_threshold, data_parallel_threshold, offloading_bytes
    )
    workload = planner.Workload(tuple(tables), features, world_size, dp_input=dp_input)
    return planner.plan(workload, limits, strategy)


def plan_attributes(plan: Plan) -> dict[str, Any]:
    """Returns the attributes of `DistEmbeddingStrategy` that follow from the plan alone."""
    table_groups = [
        list(plan.data_parallel_tables),
        list(plan.table_parallel_tables),
        list(plan.row_sliced_tables),
    ]
    table_index = {t: i for group in table_groups for i, t in enumerate(group)}
    input_groups = [list(plan.features_of(tuple(group))) for group in table_groups]
    input_index = {f: i for group in input_groups for i, f in enumerate(group)}
    num_slices = [len(plan.column_slices[plan.features[f].table]) for f in input_groups[1]]
    return dict(
        table_groups=table_groups,
        input_groups=input_groups,
        map_groups=[
            [table_index[plan.features[f].table] for f in inputs] for inputs in input_groups
        ],
        rev_group_ids=_inverse([f for group in input_groups for f in group]),
        input_ids_list=[[input_index[f] for f in inputs] for inputs in plan.input_ids_list],
        table_ids=[[table_index[s.table] for s in shards] for shards in plan.table_shards],
        **_local_attributes(plan),
        rev_tp_ids=_inverse([f for inputs in plan.input_ids_list for f in inputs]),
        sliced_out_ranges=[[i, i + count] for i, count in enumerate(num_slices) if count > 1],
        row_inputs_offsets=[
            [-plan.row_bounds(t)[rank] for t in plan.row_sliced_tables]
            for rank in range(plan.world_size)
        ],
    )


def _local_attributes(plan: Plan) -> dict[str, Any]:
    """Returns attributes of the variables and lookups of each rank."""
    # The data-parallel groups of every rank come first.
    first = sum(group.kind == DATA_PARALLEL for group in plan.groups(0))
    ranks = range(plan.world_size)
    groups = [[g for g in plan.groups(rank) if g.kind == TABLE_PARALLEL] for rank in ranks]
    lookups = [plan.lookups(rank) for rank in ranks]
    return {
        "local_maps": [[x.group - first for x in of_rank] for of_rank in lookups],
        "local_input_offsets": [[x.row_offset for x in of_rank] for of_rank in lookups],
        "local_weight_offsets": [[[*g.row_offsets, g.rows] for g in of_rank] for of_rank in groups],
        "local_group_list": [
            [[shards.index(s) for s in g.shards] for g in of_rank]
            for shards, of_rank in zip(plan.table_shards, groups, strict=True)
        ],
        "widths_list_flat": [x.shard.columns for of_rank in lookups for x in of_rank],
    }


def _inverse(inputs: list[int]) -> list[int]:
    return sorted(range(len(inputs)), key=inputs.__getitem__)
