"""Properties of every plan, checked on thousands of random plans."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nn.embedding.merlin_api.attributes import strategy_attributes
from nn.embedding.planner import DEVICE, STRATEGIES, PlanError, Table
from nn.embedding.planner.traffic import GRADIENTS, KINDS, VECTORS, traffic
from tests.nn.embedding.planner.plans import plan_of

MANY = settings(max_examples=500, deadline=None, derandomize=True, database=None)

shape = st.tuples(st.integers(1, 3000), st.integers(1, 40), st.sampled_from([2, 4]))
shapes = st.integers(0, 12).flatmap(lambda n: st.lists(shape, min_size=n, max_size=n))
maybe_threshold = st.none() | st.integers(1, 60_000)
maybe_bytes = st.none() | st.integers(0, 400_000)


@st.composite
def cases(draw, strategies=STRATEGIES):
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


@MANY
@given(cases())
def test_cover_and_lookups(arguments):
    result = plan_of(**arguments)
    check_cover(result)
    check_lookups(result)
    assert strategy_attributes(result).input_ids_list is not None
    assert plan_of(**arguments) == result


@MANY
@given(tight_cases())
def test_memory_limits(arguments):
    try:
        result = plan_of(**arguments)
    except PlanError:
        return
    check_cover(result)
    check_lookups(result)
    limit = int(arguments["device_memory_bytes"] * (1 - arguments["reserved_fraction"]))
    host, threshold = arguments["host_memory_bytes"], arguments["cpu_offloading_threshold_bytes"]
    for rank, cost in enumerate(result.costs):
        assert cost.device_bytes <= limit
        if host is not None:
            assert cost.host_bytes <= host
        elif threshold is None:
            assert cost.host_bytes == 0
        if threshold is not None:
            on_device = sum(
                s.rows * s.columns * result.tables[s.table].itemsize
                for s in result.table_shards[rank]
                if s.device == DEVICE
            )
            assert on_device <= threshold


@MANY
@given(cases(strategies=("memory_balanced", "memory_optimized")))
def test_balance_of_ranks(arguments):
    # Merged slices of one table keep one state for each row, and so only less than was counted.
    arguments["state_bytes_per_row"] = 0
    result = plan_of(**arguments)
    w = result.workload
    sizes = [
        [w.size_bytes(s.table, s.rows, s.columns) for s in shards] for shards in result.table_shards
    ]
    per_rank = [sum(rank_sizes) for rank_sizes in sizes]
    largest = max((size for rank_sizes in sizes for size in rank_sizes), default=0)
    assert max(per_rank) <= sum(per_rank) / len(per_rank) + largest


@MANY
@given(cases(strategies=("memory_optimized",)))
def test_memory_optimized_against_merlins_rule(arguments):
    arguments.update(row_slice_threshold=None, data_parallel_threshold=None, state_bytes_per_row=0)
    arguments["column_slice_threshold"] = 10**9  # whole tables
    result = plan_of(**arguments)
    world_size = arguments["world_size"]
    tables = arguments["tables"]
    sizes = [result.workload.table_bytes(t) for t in range(len(tables))]
    bins = [(0, []) for _ in range(world_size)]
    for size, t in sorted(zip(sizes, range(len(tables)), strict=True), reverse=True):
        bins.sort()
        bins[0] = (bins[0][0] + size, [*bins[0][1], t])
    expected = [stored for _, stored in sorted(bins)] if world_size > 1 else [[*range(len(tables))]]
    assert [[s.table for s in shards] for shards in result.table_shards] == expected


@MANY
@given(cases(strategies=("cost",)), maybe_bytes)
def test_objective_of_cost_and_auto(arguments, device_memory_bytes):
    arguments["device_memory_bytes"] = device_memory_bytes
    try:
        balanced = plan_of(**{**arguments, "strategy": "memory_balanced"})
    except PlanError:
        return
    cost, auto = plan_of(**arguments), plan_of(**{**arguments, "strategy": "auto"})
    assert cost.objective <= balanced.objective
    assert auto.objective == cost.objective
    assert auto.strategy == ("cost" if cost.objective < balanced.objective else "memory_balanced")


@MANY
@given(tight_cases())
def test_fit_of_auto(arguments):
    arguments["column_slice_threshold"] = None
    try:
        plan_of(**{**arguments, "strategy": "memory_balanced"})
    except PlanError:
        return
    plan_of(**{**arguments, "strategy": "auto"})


@MANY
@given(cases())
def test_sent_and_received_bytes(arguments):
    """Equal totals of each kind; without row means vectors and gradients have equal sizes."""
    arguments["state_bytes_per_row"] = 0
    ranks = traffic(plan_of(**arguments))
    sent = {kind: sum(rank.sent(kind) for rank in ranks) for kind in KINDS}
    assert sent == pytest.approx(
        {kind: sum(rank.received(kind) for rank in ranks) for kind in KINDS}
    )
    assert sent[VECTORS] == pytest.approx(sent[GRADIENTS])
    if arguments["world_size"] == 1:
        assert not any(sent.values())
