"""Random planning problems, and checks of their plans."""

import os
from collections import Counter

from distributed_embeddings.planner import STRATEGIES, Table
from hypothesis import settings
from hypothesis import strategies as st

MANY = settings(
    max_examples=int(os.environ.get("RANDOM_PLANS", 100)),
    deadline=None,
    derandomize=True,
    database=None,
)

shape = st.tuples(st.integers(1, 3000), st.integers(1, 40), st.sampled_from([2, 4]))
shapes = st.integers(0, 12).flatmap(lambda n: st.lists(shape, min_size=n, max_size=n))
maybe_threshold = st.none() | st.integers(1, 60_000)
maybe_bytes = st.none() | st.integers(0, 400_000)


@st.composite
def cases(draw, strategies=STRATEGIES):
    """Draws the arguments of a plan."""
    tables = [Table(f"t{i}", *shape) for i, shape in enumerate(draw(shapes))]
    arguments = {
        "tables": tables,
        "world_size": draw(st.integers(1, 9)),
        "strategy": draw(st.sampled_from(strategies)),
        "column_slice_threshold": draw(maybe_threshold),
        "row_slice_threshold": draw(maybe_threshold),
        "data_parallel_threshold": draw(st.none() | st.integers(1, 2000)),
        "state_bytes_per_element": draw(st.sampled_from([0, 4, 8])),
        "state_bytes_per_row": draw(st.sampled_from([0, 4])),
    }
    if tables and draw(st.booleans()):
        inputs = draw(st.lists(st.integers(0, len(tables) - 1), max_size=15))
        arguments["input_table_map"] = inputs
        arguments["hotness"] = draw(
            st.lists(st.integers(0, 30), min_size=len(inputs), max_size=len(inputs))
        )
    return arguments


@st.composite
def tight_cases(draw):
    """Device memory from a little less than an even share to plenty."""
    arguments = draw(cases())
    element = 4 + arguments["state_bytes_per_element"]
    total = sum(t.num_elements * element for t in arguments["tables"])
    share = total / arguments["world_size"]
    fraction = draw(st.sampled_from([0, 0.5, 0.9, 1, 1.05, 1.2, 1.5, 2, 4, 20]))
    arguments["device_memory_bytes"] = int(share * fraction) + draw(st.integers(0, 1000))
    arguments["host_memory_bytes"] = draw(st.sampled_from([None, 0, share, 10 * share]))
    arguments["cpu_offloading_threshold_bytes"] = draw(maybe_bytes)
    arguments["reserved_fraction"] = draw(st.sampled_from([0, 0.15]))
    return arguments


def check_cover(result):
    """Every row and column is held exactly once, or, if data-parallel, once on every rank."""
    stored = {t: Counter() for t in range(len(result.tables))}
    for rank in range(result.world_size):
        for s in result.local_shards(rank):
            assert s.rank == rank
            assert 0 <= s.row_start < s.row_end <= result.tables[s.table].rows
            assert 0 <= s.column_start < s.column_end <= result.tables[s.table].dim
            stored[s.table][s.row_start, s.row_end, s.column_start, s.column_end] += 1
    for t, table in enumerate(result.tables):
        if t in result.data_parallel_tables:
            assert stored[t] == {(0, table.rows, 0, table.dim): result.world_size}
            continue
        assert set(stored[t].values()) <= {1}
        runs = sorted(stored[t])
        if t in result.row_sliced_tables:
            bounds = [(first, end) for first, end, _, _ in runs]
            assert all(run[2:] == (0, table.dim) for run in runs)
            whole = table.rows
        else:
            bounds = [(first, end) for _, _, first, end in runs]
            assert all(run[:2] == (0, table.rows) for run in runs)
            whole = table.dim
        assert [first for first, _ in bounds] == [0] + [end for _, end in bounds[:-1]]
        assert bounds[-1][1] == whole


def check_lookups(result):
    """Checks that every feature's output is complete and lookups stay inside their variables."""
    seen = Counter()
    for rank in range(result.world_size):
        groups = result.groups(rank)
        lookups = result.lookups(rank)
        assert tuple(lookup.feature for lookup in lookups) == result.input_ids_list[rank]
        for lookup in lookups:
            group = groups[lookup.group]
            assert group.dim == lookup.shard.columns
            assert lookup.row_offset + lookup.shard.rows <= group.rows
            assert result.features[lookup.feature].table == lookup.shard.table
            seen[lookup.feature] += lookup.shard.columns
        for group in groups:
            assert group.rows == sum(s.rows for s in group.shards)
            assert len({(s.columns, s.device, s.kind) for s in group.shards}) == 1
    for f, feature in enumerate(result.features):
        if feature.table in result.table_parallel_tables:
            assert seen[f] == result.tables[feature.table].dim
