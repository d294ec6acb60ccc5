"""Memory, host memory, exchange by hand, and what is said when tables do not fit."""

import pytest

from nn.embedding.plan import DEVICE, HOST, PlanError, Table, plan


def tables(*shapes):
    return [Table(f"t{i}", rows, dim) for i, (rows, dim) in enumerate(shapes)]


def test_threshold_sends_the_largest_to_host_memory():
    # By rising size on the one rank: 40, 80 (120), 120 (240), 160 (400) bytes.
    shapes = ((40, 1), (10, 1), (30, 1), (20, 1))
    result = plan(tables(*shapes), 1, cpu_offloading_threshold_bytes=240)
    assert [s.device for s in result.table_shards[0]] == [HOST, DEVICE, DEVICE, DEVICE]
    none = plan(tables(*shapes), 1, cpu_offloading_threshold_bytes=0)
    assert {s.device for s in none.table_shards[0]} == {HOST}
    assert none.costs[0].host_bytes == 400
    assert none.costs[0].device_bytes == 0


@pytest.mark.parametrize("strategy", ["basic", "auto"])
def test_budget_sends_the_least_read_to_host_memory(strategy):
    result = plan(
        tables((100, 1), (90, 1), (10, 1)), 1, strategy=strategy, hotness=[100, 1, 1],
        device_memory_bytes=450, reserved_fraction=0, host_memory_bytes=400,
    )  # fmt: skip
    # Ids a byte: 100/400, 1/360, 1/40. The second leaves; the rest are 440 bytes.
    assert [s.device for s in result.table_shards[0]] == [DEVICE, HOST, DEVICE]


def test_host_memory_is_not_used_while_slices_fit_the_devices():
    result = plan(
        tables((100, 4), (10, 4)), 2, device_memory_bytes=900, reserved_fraction=0,
        host_memory_bytes=10_000,
    )  # fmt: skip
    assert sum(c.host_bytes for c in result.costs) == 0
    assert len(result.column_slices[0]) == 2


def test_offloading_threshold_counts_before_memory_is_said_to_be_short():
    result = plan(tables((100, 1), (10, 1)), 1, device_memory_bytes=100, reserved_fraction=0,
                  cpu_offloading_threshold_bytes=50)  # fmt: skip
    assert [s.device for s in result.table_shards[0]] == [HOST, DEVICE]


def test_memory_counts_optimizer_state():
    [cost] = plan(
        tables((10, 4)), 1, state_bytes_per_element=8, state_bytes_per_row=4
    ).costs  # fmt: skip
    assert (cost.weight_bytes, cost.state_bytes) == (160, 10 * (4 * 8 + 4))
    assert cost.memory_bytes == 160 + 360


def test_exchange_bytes_by_hand():
    # Batch 8 on 2 ranks. Rank 0: table of 4 columns, hotness 3; rank 1: 2 columns, hotness 1.
    result = plan(
        tables((10, 4), (10, 2)), 2, strategy="basic", hotness=[3, 1], global_batch_size=8,
        exchange_itemsize=2, id_itemsize=8,
    )  # fmt: skip
    first, second = result.costs
    assert first.id_bytes == 4 * 1 * 8  # its 4 samples' ids of the other's feature
    assert second.id_bytes == 4 * 3 * 8
    assert first.vector_bytes == 4 * 4 * 2  # the other's 4 samples' vectors of its columns
    assert second.vector_bytes == 4 * 2 * 2
    assert first.gradient_bytes == second.vector_bytes
    assert second.gradient_bytes == first.vector_bytes
    assert first.alltoall_bytes == 32 + 32 + 16


def test_exchange_without_a_combiner_sends_every_row():
    combined, single = (
        plan(tables((10, 4), (10, 4)), 2, strategy="basic", hotness=[3, 3], combined=[flag] * 2)
        for flag in (True, False)
    )
    assert single.costs[0].vector_bytes == 3 * combined.costs[0].vector_bytes


def test_model_parallel_input_exchanges_no_ids():
    result = plan(tables((10, 4), (10, 2)), 2, strategy="basic", dp_input=False)
    assert [c.id_bytes for c in result.costs] == [0, 0]
    assert result.costs[0].vector_bytes > 0


def test_row_sliced_exchange_goes_to_owners_only():
    # 8 samples, 2 ids each, on 4 ranks: a rank sends 3/4 of its 4 ids and gets as many rows.
    [cost, *_] = plan(
        tables((40, 4)), 4, row_slice_threshold=1, hotness=[2], global_batch_size=8
    ).costs  # fmt: skip
    assert cost.id_bytes == 3 * 8
    assert cost.vector_bytes == cost.gradient_bytes == 3 * 4 * 4


def test_a_rank_without_rows_sends_all_its_ids():
    costs = plan(tables((1, 4)), 2, row_slice_threshold=1, global_batch_size=8).costs
    assert [c.id_bytes for c in costs] == [0, 4 * 8]
    assert [c.vector_bytes for c in costs] == [4 * 4 * 4, 0]
    assert [c.gradient_bytes for c in costs] == [0, 4 * 4 * 4]


def test_data_parallel_gradients_go_dense_or_as_rows_whichever_is_less():
    small, large = (
        plan(tables((rows, 4)), 2, data_parallel_threshold=10**9, global_batch_size=8).costs[0]
        for rows in (3, 1000)
    )
    assert small.allreduce_bytes == 3 * 4 * 4  # 2 (world - 1) / world of the table
    assert large.allreduce_bytes == 4 * (4 * 4 + 8)  # its 4 samples' rows and ids
    assert small.alltoall_bytes == 0


def fail(*args, **kwargs):
    with pytest.raises(PlanError) as error:
        plan(*args, reserved_fraction=0, **kwargs)
    return str(error.value)


def test_misfit_says_what_is_needed_and_there():
    text = fail(tables((100, 4), (50, 4)), 2, device_memory_bytes=1000, state_bytes_per_element=4)
    assert "Needed: 4.688 KiB (2.344 KiB of weights, 2.344 KiB of optimizer state)" in text
    assert "largest table 't0' 3.125 KiB" in text
    assert "2 ranks with 1000 B of device memory" in text
    assert "an optimizer with less state, but even without any it is too much" in text
    assert "42 % of the bytes have room" in text


def test_misfit_counts_the_ranks_that_would_do():
    shapes = tables(*[(100, 4)] * 6)
    text = fail(shapes, 2, device_memory_bytes=1700)
    assert "more ranks: 6 would do" in text
    assert plan(shapes, 6, device_memory_bytes=1700, reserved_fraction=0)


def test_misfit_of_a_fixed_strategy_points_to_auto():
    text = fail(tables((100, 4)), 2, device_memory_bytes=900, strategy="basic",
                column_slice_threshold=10**6)  # fmt: skip
    assert "strategy='auto' cuts tables where memory asks for it: it fits" in text
    text = fail(tables((100, 4)), 2, device_memory_bytes=700, strategy="basic")
    assert "strategy='auto' cuts tables where memory asks for it, a start" in text


def test_misfit_of_a_narrow_table_points_to_row_slices():
    text = fail(tables((100, 1)), 4, device_memory_bytes=100)
    assert "row_slice_threshold=100: it fits" in text
    assert "more ranks" not in text
    assert "row_slice_threshold" not in fail(tables((100, 1)), 4, device_memory_bytes=100,
                                             dp_input=False)  # fmt: skip


def test_misfit_through_copies_and_state():
    text = fail(tables((100, 1), (90, 1)), 2, device_memory_bytes=600, data_parallel_threshold=100)
    assert "a smaller data_parallel_threshold: without it, it fits" in text
    text = fail(tables((100, 1), (90, 1)), 2, device_memory_bytes=100, data_parallel_threshold=100)
    assert "a smaller data_parallel_threshold: fewer copies" in text
    text = fail(tables((100, 1)), 1, device_memory_bytes=500, state_bytes_per_row=4)
    assert "an optimizer with less state: without any (SGD) it fits" in text


def test_misfit_of_host_memory():
    text = fail(tables((100, 1), (50, 1)), 1, device_memory_bytes=300, host_memory_bytes=100)
    assert "of host memory each" in text
    assert "host_memory_bytes=500 (500 B a rank) would do" in text
    assert plan(tables((100, 1), (50, 1)), 1, device_memory_bytes=300, reserved_fraction=0,
                host_memory_bytes=500)  # fmt: skip
    text = fail(tables((100, 1)), 1, host_memory_bytes=100, cpu_offloading_threshold_bytes=10)
    assert "another cpu_offloading_threshold_bytes" in text


def test_reserve_is_kept_free():
    shape = tables((100, 1))
    plan(shape, 1, device_memory_bytes=500, reserved_fraction=0.2)
    with pytest.raises(PlanError, match="do not fit"):
        plan(shape, 1, device_memory_bytes=500, reserved_fraction=0.21)
