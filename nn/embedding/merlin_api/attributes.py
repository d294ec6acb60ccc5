"""A plan in the numbering of Merlin's `DistEmbeddingStrategy`, for programs that read it.

There, tables form three groups (data-parallel, table-parallel, row-sliced), and the lists about
table-parallel tables count tables and inputs within their group, not over all.
"""

from types import SimpleNamespace
from typing import Any

from nn.embedding.planner import DATA_PARALLEL, HOST, TABLE_PARALLEL, Plan


def strategy_attributes(plan: Plan) -> SimpleNamespace:
    """Returns the attributes of `DistributedEmbedding.strategy`; lists, by rank where nested.

    Attributes:
        table_groups: Tables that are data-parallel, table-parallel, row-sliced.
        input_groups: Inputs of each group.
        map_groups: For each group and input the table, counted within the group.
        rev_group_ids: For each input its position in the concatenated inputs of the three groups.
        input_ids_list: Inputs (within the group) that the rank looks up.
        table_ids: Tables (within the group) of the rank, slices of one table merged.
        local_configs: For each variable of the rank input_dim, output_dim and cpu_offload.
        local_maps: For each of the rank's inputs its variable.
        local_input_offsets: For each of the rank's inputs the row at which its table starts.
        local_weight_offsets: For each variable the row at which each table starts, and the end.
        local_group_list: For each variable the positions of its tables in `table_ids`.
        widths_list_flat: Width of the result of each lookup, rank by rank.
        rev_tp_ids: Lookups, rank by rank, in the order of inputs and columns.
        sliced_out_ranges: [first, end) of results that make one output; first is the input.
        row_inputs_offsets: Offset of the ids of each row-sliced table to the rank's first row.
    """
    table_groups = [
        list(plan.data_parallel_tables),
        list(plan.table_parallel_tables),
        list(plan.row_sliced_tables),
    ]
    table_index = {t: i for group in table_groups for i, t in enumerate(group)}
    input_groups = [list(plan.features_of(tuple(group))) for group in table_groups]
    input_index = {f: i for group in input_groups for i, f in enumerate(group)}
    num_slices = [len(plan.column_slices[plan.features[f].table]) for f in input_groups[1]]
    return SimpleNamespace(
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
        "local_configs": [
            [
                {"input_dim": g.rows, "output_dim": g.dim, "cpu_offload": g.device == HOST}
                for g in of_rank
            ]
            for of_rank in groups
        ],
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
