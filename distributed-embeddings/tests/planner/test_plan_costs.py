"""Device memory, host memory, and the error for tables that do not fit."""

import pytest
from distributed_embeddings.planner import DEVICE, HOST, PlanError
from embedding_testing.plans import plan_of, tables


def test_offloading_by_threshold():
    # By rising size on the one rank: 40, 80 (120), 120 (240), 160 (400) bytes.
    shapes = ((40, 1), (10, 1), (30, 1), (20, 1))
    result = plan_of(tables(*shapes), 1, cpu_offloading_threshold_bytes=240)
    assert [s.device for s in result.table_shards[0]] == [HOST, DEVICE, DEVICE, DEVICE]
    none = plan_of(tables(*shapes), 1, cpu_offloading_threshold_bytes=0)
    assert {s.device for s in none.table_shards[0]} == {HOST}
    assert none.costs[0].host_bytes == 400
    assert none.costs[0].device_bytes == 0


@pytest.mark.parametrize("strategy", ["basic", "auto"])
def test_offloading_by_budget(strategy):
    result = plan_of(
        tables((100, 1), (90, 1), (10, 1)), 1, strategy=strategy, hotness=[100, 1, 1],
        device_memory_bytes=450, reserved_fraction=0, host_memory_bytes=400,
    )  # fmt: skip
    # Ids per byte: 100/400, 1/360, 1/40. The second leaves; the rest are 440 bytes.
    assert [s.device for s in result.table_shards[0]] == [DEVICE, HOST, DEVICE]


def test_slices_before_host_memory():
    result = plan_of(
        tables((100, 4), (10, 4)), 2, device_memory_bytes=900, reserved_fraction=0,
        host_memory_bytes=10_000,
    )  # fmt: skip
    assert sum(c.host_bytes for c in result.costs) == 0
    assert len(result.column_slices[0]) == 2


def test_offloading_before_memory_error():
    result = plan_of(tables((100, 1), (10, 1)), 1, device_memory_bytes=100, reserved_fraction=0,
                  cpu_offloading_threshold_bytes=50)  # fmt: skip
    assert [s.device for s in result.table_shards[0]] == [HOST, DEVICE]


def test_memory_of_optimizer_state():
    [cost] = plan_of(
        tables((10, 4)), 1, state_bytes_per_element=8, state_bytes_per_row=4
    ).costs  # fmt: skip
    assert (cost.weight_bytes, cost.state_bytes) == (160, 10 * (4 * 8 + 4))
    assert cost.memory_bytes == 160 + 360


def fail(*args, **kwargs):
    with pytest.raises(PlanError) as error:
        plan_of(*args, reserved_fraction=0, **kwargs)
    return str(error.value)


def test_infeasible_memory():
    text = fail(tables((100, 4), (50, 4)), 2, device_memory_bytes=1000, state_bytes_per_element=4)
    assert "Required: 4.688 KiB (2.344 KiB of weights, 2.344 KiB of optimizer state)" in text
    assert "largest table 't0' 3.125 KiB" in text
    assert "2 ranks with 1000 B of device memory" in text
    assert "an optimizer with less state: not sufficient alone, not even none" in text
    assert "42 % of the bytes fit" in text


def test_sufficient_ranks():
    shapes = tables(*[(100, 4)] * 6)
    text = fail(shapes, 2, device_memory_bytes=1700)
    assert "more ranks: 6 are sufficient" in text
    assert plan_of(shapes, 6, device_memory_bytes=1700, reserved_fraction=0)


def test_infeasible_strategy():
    text = fail(tables((100, 4)), 2, device_memory_bytes=900, strategy="basic",
                column_slice_threshold=10**6)  # fmt: skip
    assert "strategy='auto' cuts tables where memory requires it: sufficient" in text
    text = fail(tables((100, 4)), 2, device_memory_bytes=700, strategy="basic")
    assert "strategy='auto' cuts tables where memory requires it: not sufficient alone" in text


def test_infeasible_narrow_table():
    text = fail(tables((100, 1)), 4, device_memory_bytes=100, row_slice_threshold=0)
    assert "row_slice_threshold=100: sufficient" in text
    assert "more ranks" not in text
    assert "row_slice_threshold" not in fail(tables((100, 1)), 4, device_memory_bytes=100,
                                             dp_input=False)  # fmt: skip


def test_infeasible_copies_and_state():
    text = fail(tables((100, 1), (90, 1)), 2, device_memory_bytes=600, data_parallel_threshold=100)
    assert "a smaller data_parallel_threshold: none is sufficient" in text
    text = fail(tables((100, 1), (90, 1)), 2, device_memory_bytes=100, data_parallel_threshold=100)
    assert "a smaller data_parallel_threshold: fewer replicas" in text
    text = fail(tables((100, 1)), 1, device_memory_bytes=500, state_bytes_per_row=4)
    assert "an optimizer with less state: none (SGD) is sufficient" in text


def test_infeasible_host_memory():
    text = fail(tables((100, 1), (50, 1)), 1, device_memory_bytes=300, host_memory_bytes=100)
    assert "of host memory each" in text
    assert "host_memory_bytes=500 (500 B per rank) is sufficient" in text
    assert plan_of(tables((100, 1), (50, 1)), 1, device_memory_bytes=300, reserved_fraction=0,
                host_memory_bytes=500)  # fmt: skip
    text = fail(tables((100, 1)), 1, host_memory_bytes=100, cpu_offloading_threshold_bytes=10)
    assert "another cpu_offloading_threshold_bytes" in text


def test_reserved_memory():
    shape = tables((100, 1))
    plan_of(shape, 1, device_memory_bytes=500, reserved_fraction=0.2)
    with pytest.raises(PlanError, match="do not fit"):
        plan_of(shape, 1, device_memory_bytes=500, reserved_fraction=0.21)
