"""Predicted step times by hand."""

import math

import pytest
from distributed_embeddings.planner import HOST, Table
from distributed_embeddings.planner.traffic import expected_batch
from distributed_embeddings.step_time import (
    PARTS,
    DenseWork,
    Rates,
    lookup_bytes,
    predict,
    rank_times,
    row_update_bytes,
)
from distributed_embeddings.testing.plans import plan_of

RATES = Rates(
    product_flops_per_s=1000,
    activation_bytes_per_s=100,
    lookup_bytes_per_s=64,
    row_update_bytes_per_s=32,
    dense_update_bytes_per_s=10,
    host_bytes_per_s=16,
    exchange_bytes_per_s=8,
    sum_bytes_per_s=5,
    network_bytes_per_s=4,
    latency_s=0.5,
    input_bytes_per_s=2,
)
WORK = DenseWork(
    forward_flops=100,
    backward_flops=200,
    forward_elements=10,
    backward_elements=20,
    num_weights=30,
    state_bytes_per_weight=4,
    itemsize=4,
    sample_bytes=3,
)
LARGE = 10**9  # rows; every id of a batch is another one


def two_tables(world_size=2, **options):
    """Batch 8. Rank 0: 16 columns, hotness 3; rank 1: 32 columns, hotness 1."""
    tables = [Table("a", LARGE, 16), Table("b", LARGE, 32)]
    options = {"strategy": "basic", "global_batch_size": 8, "id_itemsize": 4, **options}
    return plan_of(tables, world_size, hotness=[3, 1], **options)


def test_one_rank():
    step = predict(two_tables(1, state_bytes_per_element=4), WORK, RATES)
    # 24 ids of 64 bytes and 8 of 128. A gradient for each; row and state, read and written.
    update = 24 * 64 + 8 * 128 + 24 * 2 * 2 * 64 + 8 * 2 * 2 * 128
    assert step.parts_s == pytest.approx(
        {
            "input": 8 * 3 / 2,
            "ids": 0,
            "lookup": (24 * 64 + 8 * 128) / 64,
            "vectors": 0,
            "forward": 8 * 100 / 1000 + 8 * 10 * 4 / 100,
            "backward": 8 * 200 / 1000 + 8 * 20 * 4 / 100,
            "gradients": 0,
            "row update": update / 32,
            "all-reduce": 0,
            # Gradient, weight and state are read, the last two written.
            "dense update": 30 * (3 * 4 + 2 * 4) / 10,
        },
        rel=1e-6,
    )
    assert list(step.parts_s) == list(PARTS)
    assert step.total_s == pytest.approx(sum(step.parts_s.values()) - 12)
    assert step.samples_per_s == pytest.approx(8 / step.total_s)
    assert not step.is_limited_by_input


def test_two_ranks():
    first, second = rank_times(two_tables(), WORK, RATES)
    assert first["lookup"] == 24 * 64 / 64 and second["lookup"] == 8 * 128 / 64
    # 4 samples each: rank 0 receives 12 ids of 4 bytes, rank 1 sends them.
    assert first["ids"] == second["ids"] == 48 / 8 + 0.5
    # Rank 1 sends 4 vectors of 128 bytes; 48 columns of 4 samples are read and written in order.
    assert first["vectors"] == second["vectors"] == 4 * 128 / 8 + 0.5 + 2 * 4 * 48 * 4 / 100
    assert first["gradients"] == first["vectors"]
    assert first["all-reduce"] == 2 / 2 * 30 * 4 / 5 + 0.5
    assert first["forward"] == 4 * 100 / 1000 + 4 * 10 * 4 / 100


def test_slowest_rank():
    times = rank_times(two_tables(), WORK, RATES)
    step = predict(two_tables(), WORK, RATES)
    assert step.parts_s["lookup"] == 24 and step.parts_s["row update"] == max(
        rank["row update"] for rank in times
    )


def test_network():
    apart = predict(two_tables(), WORK, RATES, ranks_per_machine=1)
    assert apart.parts_s["ids"] == 48 / 4 + 0.5
    assert apart.parts_s["all-reduce"] == 120 / 4 + 0.5


def test_rank_without_tables():
    plan = plan_of([Table("a", LARGE, 1)], 2, strategy="basic", global_batch_size=8)
    first, idle = rank_times(plan, WORK, RATES)
    assert not plan.table_shards[1]
    assert first["lookup"] > 0 and first["row update"] > 0
    assert idle["lookup"] == 0 and idle["row update"] == 0
    assert idle["ids"] == first["ids"] > 0.5 and idle["forward"] == first["forward"]


def test_model_without_tables():
    step = predict(plan_of([], 2, global_batch_size=8), WORK, RATES)
    assert [part for part, seconds in step.parts_s.items() if not seconds] == [
        *("ids", "lookup", "vectors", "gradients", "row update"),
    ]


def test_latency_of_more_ranks():
    """Without bytes, exchanges take ceil(log2(ranks)) latencies."""
    times = []
    for world_size in (2, 3, 4, 8, 9):
        plan = two_tables(world_size, column_slice_threshold=1)
        step = predict(plan, DenseWork(num_weights=1), Rates(latency_s=1.0))
        times.append(round(step.total_s))
    assert times == [4 * 1, 4 * 2, 4 * 2, 4 * 3, 4 * 4]


def test_repeated_rows():
    plan = plan_of([Table("a", 2, 16)], 1, hotness=[3], global_batch_size=1)
    (shard,) = plan.local_shards(0)
    batch = expected_batch(plan)
    assert lookup_bytes(plan, batch, shard) == 3 * 64
    # 3 ids of 2 rows: each is missing with probability 1/8.
    assert row_update_bytes(plan, batch, shard) == pytest.approx(3 * 64 + 2 * 7 / 8 * 2 * 64)


def test_update_of_all_rows():
    plan = plan_of([Table("a", 100, 16)], 1, global_batch_size=1, scratch_bytes_per_element=8)
    (shard,) = plan.local_shards(0)
    assert row_update_bytes(plan, expected_batch(plan), shard) == 64 + 100 * 2 * 64


def test_tables_that_are_not_read():
    plan = plan_of([Table("a", 9, 16)], 1, input_table_map=[], scratch_bytes_per_element=8)
    (shard,) = plan.local_shards(0)
    batch = expected_batch(plan)
    assert lookup_bytes(plan, batch, shard) == row_update_bytes(plan, batch, shard) == 0


def test_row_slices():
    plan = plan_of([Table("a", 2, 16)], 2, row_slice_threshold=1, hotness=[3], global_batch_size=2)
    first, second = rank_times(plan, DenseWork(), RATES)
    # Each rank asks each owner for its row with probability 7/8.
    assert first["lookup"] == second["lookup"] == 2 * 7 / 8 * 64 / 64
    assert first["ids"] == 7 / 8 * 8 / 8 + 0.5
    # 3 rows become one vector.
    assert first["vectors"] == pytest.approx(7 / 8 * 64 / 8 + 0.5 + (3 + 1) * 64 / 100)


def test_copied_tables():
    plan = plan_of([Table("a", 3, 16)], 2, data_parallel_threshold=48, global_batch_size=8)
    first, second = rank_times(plan, DenseWork(), RATES)
    assert first == second
    assert first["lookup"] == 4 * 64 / 64
    assert first["ids"] == first["vectors"] == first["gradients"] == 0
    assert first["all-reduce"] == (3 * 16 * 4 + 3 * 4) / 5 + 0.5


def test_host_memory():
    plan = two_tables(1, cpu_offloading_threshold_bytes=LARGE * 16 * 4)
    assert [s.device == HOST for s in plan.local_shards(0)] == [False, True]
    (rank,) = rank_times(plan, WORK, RATES)
    assert rank["lookup"] == 24 * 64 / 64 + 8 * 128 / 16


def test_input_limit():
    step = predict(two_tables(1), DenseWork(sample_bytes=1e6), RATES)
    assert step.is_limited_by_input and step.total_s == 8e6 / 2


@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_rates_out_of_range(value):
    with pytest.raises(ValueError, match="lookup_bytes_per_s must be above 0, got"):
        Rates(lookup_bytes_per_s=value)
    if value:
        with pytest.raises(ValueError, match="latency_s must be at least 0"):
            Rates(latency_s=value)
