"""A plan in the numbering of Merlin's `DistEmbeddingStrategy`, for programs that read it.

There, tables fall into three groups (data-parallel, table-parallel, row-sliced), and the lists
about table-parallel tables count tables and inputs within their group, not over all.
"""

from dataclasses import dataclass

from nn.embedding.planner.sharding_plan import Plan
from nn.embedding.planner.types import DATA_PARALLEL, HOST, TABLE_PARALLEL


@dataclass(frozen=True)
class StrategyAttributes:
    """The attributes users read off `DistributedEmbedding.strategy`; lists, by rank where nested.

    Attributes:
      table_groups: tables that are data-parallel, table-parallel, row-sliced.
      input_groups: inputs of each group.
      map_groups: for each group and input the table, counted within the group.
      rev_group_ids: for each input its place among the inputs of the three groups in a row.
      input_ids_list: inputs (within the group) that the rank looks up.
      table_ids: tables (within the group) of the rank, slices of one table merged.
      local_configs: for each variable of the rank input_dim, output_dim and cpu_offload.
      local_maps: for each of the rank's inputs its variable.
      local_input_offsets: for each of the rank's inputs the row at which its table starts.
      local_weight_offsets: for each variable the row at which each table starts, and the end.
      local_group_list: for each variable the places of its tables in `table_ids`.
      widths_list_flat: width of each look-up's result, rank by rank.
      rev_tp_ids: look-ups, rank by rank, in the order of inputs and columns.
      sliced_out_ranges: [first, end) of results that make one output; first is the input.
      row_inputs_offsets: to be added to ids of each row-sliced table to count from the rank's run.
    """

    table_groups: list[list[int]]
    input_groups: list[list[int]]
    map_groups: list[list[int]]
    rev_group_ids: list[int]
    input_ids_list: list[list[int]]
    table_ids: list[list[int]]
    local_configs: list[list[dict[str, int | bool]]]
    local_maps: list[list[int]]
    local_input_offsets: list[list[int]]
    local_weight_offsets: list[list[list[int]]]
    local_group_list: list[list[list[int]]]
    widths_list_flat: list[int]
    rev_tp_ids: list[int]
    sliced_out_ranges: list[list[int]]
    row_inputs_offsets: list[list[int]]


def strategy_attributes(plan: Plan) -> StrategyAttributes:
    """The attributes of `plan`."""
    table_groups = [
        list(plan.data_parallel_tables),
        list(plan.table_parallel_tables),
        list(plan.row_sliced_tables),
    ]
    place_of_table = {t: i for group in table_groups for i, t in enumerate(group)}
    input_groups = [list(plan.features_of(tuple(group))) for group in table_groups]
    place_of_input = {f: i for group in input_groups for i, f in enumerate(group)}
    flat_inputs = [f for group in input_groups for f in group]
    worker_order = [f for inputs in plan.input_ids_list for f in inputs]

    configs, maps, offsets, weight_offsets, group_lists, widths = [], [], [], [], [], []
    for rank, shards in enumerate(plan.table_shards):
        place = {shard: m for m, shard in enumerate(shards)}
        # A rank's groups: the data-parallel ones first.
        skipped = sum(group.kind == DATA_PARALLEL for group in plan.groups(rank))
        groups = [group for group in plan.groups(rank) if group.kind == TABLE_PARALLEL]
        lookups = plan.lookups(rank)
        configs.append(
            [
                {"input_dim": g.rows, "output_dim": g.dim, "cpu_offload": g.device == HOST}
                for g in groups
            ]
        )
        maps.append([lookup.group - skipped for lookup in lookups])
        offsets.append([lookup.row_offset for lookup in lookups])
        weight_offsets.append([[*g.row_offsets, g.rows] for g in groups])
        group_lists.append([[place[s] for s in g.shards] for g in groups])
        widths += [lookup.shard.columns for lookup in lookups]
    return StrategyAttributes(
        table_groups=table_groups,
        input_groups=input_groups,
        map_groups=[
            [place_of_table[plan.features[f].table] for f in inputs] for inputs in input_groups
        ],
        rev_group_ids=sorted(range(len(flat_inputs)), key=flat_inputs.__getitem__),
        input_ids_list=[[place_of_input[f] for f in inputs] for inputs in plan.input_ids_list],
        table_ids=[[place_of_table[s.table] for s in shards] for shards in plan.table_shards],
        local_configs=configs,
        local_maps=maps,
        local_input_offsets=offsets,
        local_weight_offsets=weight_offsets,
        local_group_list=group_lists,
        widths_list_flat=widths,
        rev_tp_ids=sorted(range(len(worker_order)), key=worker_order.__getitem__),
        sliced_out_ranges=[
            [i, i + len(plan.output_pieces[f])]
            for i, f in enumerate(input_groups[1])
            if len(plan.output_pieces[f]) > 1
        ],
        row_inputs_offsets=[
            [-plan.row_bounds(t)[rank] for t in plan.row_sliced_tables]
            for rank in range(plan.world_size)
        ],
    )
