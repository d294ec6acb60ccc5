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


NO_STATE = "an optimizer with less state: "
COPIES = "a smaller data_parallel_threshold: "


@pytest.mark.parametrize(
    ("rows", "dim", "ranks", "options", "lines"),
    [
        (
            *((100, 50), 4, 2, {"device_memory_bytes": 1000, "state_bytes_per_element": 4}),
            [
                "Required: 4.688 KiB (2.344 KiB of weights, 2.344 KiB of optimizer state)",
                *("largest table 't0' 3.125 KiB", "2 ranks with 1000 B of device memory"),
                *(f"{NO_STATE}not sufficient alone, not even none", "42 % of the bytes fit"),
            ],
        ),
        ((100,) * 6, 4, 2, {"device_memory_bytes": 1700}, ["more ranks: 6 are sufficient"]),
        (
            *((100,), 4, 2),
            {"device_memory_bytes": 900, "strategy": "basic", "column_slice_threshold": 10**6},
            ["strategy='auto' cuts tables where memory requires it: sufficient"],
        ),
        (
            *((100,), 4, 2, {"device_memory_bytes": 700, "strategy": "basic"}),
            ["strategy='auto' cuts tables where memory requires it: not sufficient alone"],
        ),
        (
            *((100,), 1, 4, {"device_memory_bytes": 100, "row_slice_threshold": 0}),
            ["row_slice_threshold=100: sufficient", "!more ranks"],
        ),
        (
            *((100,), 1, 4, {"device_memory_bytes": 100, "dp_input": False}),
            ["!row_slice_threshold"],
        ),
        (
            *((100, 90), 1, 2, {"device_memory_bytes": 600, "data_parallel_threshold": 100}),
            [f"{COPIES}none is sufficient"],
        ),
        (
            *((100, 90), 1, 2, {"device_memory_bytes": 100, "data_parallel_threshold": 100}),
            [f"{COPIES}fewer replicas"],
        ),
        (
            *((100,), 1, 1, {"device_memory_bytes": 500, "state_bytes_per_row": 4}),
            [f"{NO_STATE}none (SGD) is sufficient"],
        ),
        (
            *((100, 50), 1, 1, {"device_memory_bytes": 300, "host_memory_bytes": 100}),
            ["of host memory each", "host_memory_bytes=500 (500 B per rank) is sufficient"],
        ),
        (
            *((100,), 1, 1),
            {"host_memory_bytes": 100, "cpu_offloading_threshold_bytes": 10},
            ["another cpu_offloading_threshold_bytes"],
        ),
    ],
)
def test_solutions_of_the_error(rows, dim, ranks, options, lines):
    """Texts that are in the error, or with `!` are not."""
    with pytest.raises(PlanError) as error:
        plan_of(tables(*((n, dim) for n in rows)), ranks, reserved_fraction=0, **options)
    for line in lines:
        assert (line.removeprefix("!") in str(error.value)) == (line[0] != "!"), line


@pytest.mark.parametrize(
    ("rows", "dim", "ranks", "options"),
    [
        ((100,) * 6, 4, 6, {"device_memory_bytes": 1700}),
        ((100, 50), 1, 1, {"device_memory_bytes": 300, "host_memory_bytes": 500}),
    ],
)
def test_sufficient_solutions(rows, dim, ranks, options):
    assert plan_of(tables(*((n, dim) for n in rows)), ranks, reserved_fraction=0, **options)


def test_reserved_memory():
    shape = tables((100, 1))
    plan_of(shape, 1, device_memory_bytes=500, reserved_fraction=0.2)
    with pytest.raises(PlanError, match="do not fit"):
        plan_of(shape, 1, device_memory_bytes=500, reserved_fraction=0.21)
