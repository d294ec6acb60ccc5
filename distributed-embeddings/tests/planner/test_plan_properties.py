"""Properties of every plan, checked on thousands of random plans."""

import pytest
from distributed_embeddings.merlin.strategy import plan_attributes
from distributed_embeddings.planner import DEVICE, PlanError
from distributed_embeddings.planner.traffic import GRADIENTS, KINDS, VECTORS, traffic
from embedding_testing.plans import plan_of
from embedding_testing.random_plans import (
    MANY,
    cases,
    check_cover,
    check_lookups,
    maybe_bytes,
    tight_cases,
)
from hypothesis import given


@MANY
@given(cases())
def test_cover_and_lookups(arguments):
    result = plan_of(**arguments)
    check_cover(result)
    check_lookups(result)
    assert plan_attributes(result)["input_ids_list"] is not None
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


@pytest.mark.long
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
