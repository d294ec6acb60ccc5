"""Small plans by hand: placements, thresholds, slices, shared tables, layout, host memory."""

import time
from types import SimpleNamespace

import pytest
from distributed_embeddings.merlin.strategy import plan_attributes
from distributed_embeddings.planner import Table, report
from distributed_embeddings.planner.partitioners import (
    num_column_slices,
    row_bounds,
    threshold_for_all_ranks,
)
from distributed_embeddings.planner.traffic import traffic
from embedding_testing.plans import plan_of, tables


def tables_by_rank(result):
    return [[s.table for s in shards] for shards in result.table_shards]


def columns_of(result, table):
    return [(s.rank, s.column_start, s.column_end) for s in result.column_slices[table]]


@pytest.mark.parametrize(
    ("strategy", "rows", "expected"),
    [
        ("basic", range(8, 0, -1), [[0, 2, 4, 6], [1, 3, 5, 7]]),
        # In alternating order: 0 | 1, 2 | 3, ... : 8 + 4, then 5 + 1; 7 + 3, then 6 + 2.
        ("memory_balanced", range(8, 0, -1), [[0, 4, 3, 7], [1, 5, 2, 6]]),
        ("memory_balanced", (4, 4, 4), [[2], [1], [0]]),
        # 8 | 7, 6 to the emptier, 5; both have 13: [0, 3] before [1, 2]; then 3, 2 | 1.
        ("memory_optimized", range(8, 0, -1), [[0, 3, 4, 7], [1, 2, 5, 6]]),
        ("memory_optimized", (9, 5, 1), [[1, 2], [0]]),
    ],
)
def test_placements_by_hand(strategy, rows, expected):
    result = plan_of(tables(*((n, 1) for n in rows)), len(expected), strategy=strategy)
    assert tables_by_rank(result) == expected
    assert result.strategy == strategy
    assert result.input_ids_list == tuple(map(tuple, expected))


@pytest.mark.parametrize(
    ("shapes", "hotness", "expected"),
    [
        ([(100, 16)] * 4, [50, 10, 10, 10], [[0], [1, 2, 3]]),
        # Largest first: 3 3 2 2 2 -> 3 2 2 | 3 2. The optimum is 3 3 | 2 2 2.
        ([(n, 1) for n in (300, 300, 200, 200, 200)], [3, 3, 2, 2, 2], [[0, 1], [2, 3, 4]]),
    ],
)
def test_placements_by_cost(shapes, hotness, expected):
    result = plan_of(tables(*shapes), 2, strategy="cost", hotness=hotness)
    assert sorted(tables_by_rank(result)) == expected


@pytest.mark.parametrize(
    ("hotness", "expected"), [([1] * 4, "memory_balanced"), ([9, 1, 1, 9], "cost")]
)
def test_choice_of_auto(hotness, expected):
    result = plan_of(tables(*[(100, 16)] * 4), 2, hotness=hotness)
    assert result.strategy == expected


def test_inclusive_thresholds():
    result = plan_of(
        tables((10, 2), (11, 2), (49, 2), (50, 2)), 2, strategy="basic",
        data_parallel_threshold=20, row_slice_threshold=100,
    )  # fmt: skip
    assert result.data_parallel_tables == (0,)
    assert result.table_parallel_tables == (1, 2)
    assert result.row_sliced_tables == (3,)
    assert tables_by_rank(result) == [[1], [2]]
    assert result.input_ids_list == ((1,), (2,))
    assert [(s.table, s.kind, s.rows) for s in result.local_shards(1)] == [
        (0, "data_parallel", 10),
        (2, "table_parallel", 49),
        (3, "row_sliced", 25),
    ]
    both = plan_of(tables((10, 2)), 2, data_parallel_threshold=20, row_slice_threshold=5)
    assert (both.data_parallel_tables, both.row_sliced_tables) == ((0,), ())


def test_bounds_of_row_slices():
    result = plan_of(tables((7, 2), (2, 2)), 3, strategy="basic", row_slice_threshold=1)
    assert result.row_bounds(0) == (0, 3, 5, 7)
    assert result.row_bounds(1) == (0, 1, 2, 2)
    assert [(s.table, s.row_start, s.row_end) for s in result.local_shards(2)] == [(0, 5, 7)]
    assert row_bounds(0, 2) == [0, 0, 0]


@pytest.mark.parametrize(
    ("elements", "dim", "threshold", "world_size", "expected"),
    [
        (64, 8, 64, 4, 1),  # not larger
        (65, 8, 64, 4, 2),
        (128, 8, 33, 8, 4),
        (128, 8, 31, 8, 8),
        (128, 8, 1, 4, 4),  # one per rank
        (128, 8, 1, 3, 3),  # one per rank, not a power of 2
        (128, 2, 1, 8, 2),  # one per column
        (128, 8, -1, 8, 8),
    ],
)
def test_number_of_column_slices(elements, dim, threshold, world_size, expected):
    assert num_column_slices(elements, dim, threshold, world_size) == expected


def test_order_of_column_slices():
    result = plan_of(tables((100, 5), (10, 5)), 2, strategy="basic", column_slice_threshold=300)
    assert columns_of(result, 0) == [(0, 0, 3), (1, 3, 5)]
    assert columns_of(result, 1) == [(0, 0, 5)]


def test_merged_slices():
    # In zigzag order: 100 and, on the way back, 1 to rank 0; both slices of 40 to rank 1.
    result = plan_of(
        tables((100, 1), (40, 2), (1, 1)), 2, strategy="memory_balanced", column_slice_threshold=50
    )
    assert tables_by_rank(result) == [[0, 2], [1]]
    assert columns_of(result, 1) == [(1, 0, 2)]
    assert result.input_ids_list == ((0, 2), (1,))
    alone = plan_of(tables((10, 4)), 1, strategy="basic", column_slice_threshold=1)
    assert columns_of(alone, 0) == [(0, 0, 4)]


def test_round_robin_slices():
    result = plan_of(tables((10, 4), (30, 4)), 4, strategy="basic", column_slice_threshold=30)
    assert tables_by_rank(result) == [[0, 1], [0, 1], [1], [1]]
    assert columns_of(result, 1) == [(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 4)]


def test_fewer_tables_than_ranks():
    result = plan_of(tables((100, 8), (10, 8)), 4, strategy="basic")
    assert columns_of(result, 0) == [(0, 0, 2), (1, 2, 4), (2, 4, 6), (3, 6, 8)]
    assert columns_of(result, 1) == [(0, 0, 8)]
    # 800, 80 -> 400 400 80 -> 400 200 200 80: larger than 399 is cut, into slices of at most 399.
    assert threshold_for_all_ranks([800, 80], 4) == 399
    assert threshold_for_all_ranks([800, 80], 2) is None
    assert threshold_for_all_ranks([], 2) is None


def test_more_ranks_than_columns():
    result = plan_of(tables((1, 1), (1, 2)), 5, strategy="memory_balanced")
    assert sum(map(bool, result.table_shards)) == 3
    assert result.input_ids_list.count(()) == 2
    assert "no table-parallel shard" in report(result)


@pytest.mark.parametrize("strategy", ["basic", "memory_balanced", "memory_optimized", "auto"])
def test_single_rank(strategy):
    result = plan_of(
        tables(*[(n, 1) for n in range(8, 0, -1)]), 1, strategy=strategy,
        data_parallel_threshold=3, row_slice_threshold=6, column_slice_threshold=2,
    )  # fmt: skip
    assert tables_by_rank(result) == [list(range(8))]
    assert result.input_ids_list == (tuple(range(8)),)
    assert traffic(result)[0].busiest_direction == 0


@pytest.mark.parametrize("strategy", ["basic", "memory_optimized", "auto", "cost"])
def test_no_tables(strategy):
    result = plan_of([], 3, strategy=strategy, device_memory_bytes=0)
    assert result.table_shards == ((), (), ())
    assert result.input_ids_list == ((), (), ())
    assert "0 tables" in report(result)


def test_table_without_features():
    result = plan_of(tables((9, 4), (5, 4)), 2, strategy="cost", input_table_map=[1])
    assert sorted(t for entry in tables_by_rank(result) for t in entry) == [0, 1]
    assert sorted(result.input_ids_list) == [(), (0,)]


def test_shared_variable_of_equal_widths():
    result = plan_of(
        [Table("a", 3, 4), Table("b", 5, 2), Table("c", 7, 4), Table("d", 2, 4, key="mean")],
        1, strategy="basic", input_table_map=[0, 1, 2, 3, 2],
    )  # fmt: skip
    groups = result.groups(0)
    assert [(g.rows, g.dim, g.row_offsets) for g in groups] == [
        (10, 4, (0, 3)),
        (5, 2, (0,)),
        (2, 4, (0,)),
    ]
    assert [(k.feature, k.group, k.row_offset) for k in result.lookups(0)] == [
        (0, 0, 0), (1, 1, 0), (2, 0, 3), (4, 0, 3), (3, 2, 0),
    ]  # fmt: skip


def test_lookups_of_row_sliced_and_data_parallel_tables():
    result = plan_of(
        tables((2, 4), (20, 4), (30, 4)), 2, strategy="basic", data_parallel_threshold=8,
        row_slice_threshold=80,
    )  # fmt: skip
    assert [(k.feature, k.group) for k in result.lookups(1, "data_parallel")] == [(0, 0)]
    rows = result.lookups(1, "row_sliced")
    assert [(k.feature, k.row_offset, k.shard.row_start) for k in rows] == [(1, 0, 10), (2, 10, 15)]
    assert result.groups(1)[1].rows == 25
    assert result.lookups(1) == ()


def test_attributes_in_merlins_numbering():
    result = plan_of(
        tables((2, 4), (20, 4), (10, 8), (90, 4), (12, 4)), 2, strategy="basic",
        input_table_map=[1, 0, 4, 3, 2, 1], data_parallel_threshold=8, row_slice_threshold=300,
        column_slice_threshold=79,
    )  # fmt: skip
    got = SimpleNamespace(**plan_attributes(result))
    assert got.table_groups == [[0], [1, 2, 4], [3]]
    assert got.input_groups == [[1], [0, 2, 4, 5], [3]]
    assert got.map_groups == [[0], [0, 2, 1, 0], [0]]
    assert got.rev_group_ids == [1, 0, 2, 5, 3, 4]
    # Slices: 1 1 2 2 4, round robin; of tables 0, 1, 2 within the group.
    assert got.table_ids == [[0, 1, 2], [0, 1]]
    assert got.input_ids_list == [[0, 3, 2, 1], [0, 3, 2]]
    assert got.local_maps == [[0, 0, 1, 1], [0, 0, 1]]
    assert got.local_input_offsets == [[0, 0, 0, 10], [0, 0, 0]]
    assert got.local_weight_offsets == [[[0, 20], [0, 10, 22]], [[0, 20], [0, 10]]]
    assert got.local_group_list == [[[0], [1, 2]], [[0], [1]]]
    assert got.widths_list_flat == [2, 2, 4, 4, 2, 2, 4]
    assert got.rev_tp_ids == [0, 4, 3, 2, 6, 1, 5]
    assert got.sliced_out_ranges == [[0, 2], [2, 4], [3, 5]]
    assert got.row_inputs_offsets == [[0], [-45]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "best"}, "strategy is one of basic, .*auto, got 'best'"),
        ({"world_size": 0}, "world_size must be at least 1, got 0"),
        ({"global_batch_size": 0}, "global_batch_size must be at least 1"),
        ({"column_slice_threshold": -1}, "column_slice_threshold must be at least 0, got -1"),
        ({"device_memory_bytes": float("nan")}, "device_bytes must be at least 0"),
        ({"reserved_fraction": 1.0}, r"reserved_fraction must be in \[0, 1\), got 1.0"),
        ({"input_table_map": [0, 2]}, r"input_table_map\[1\]: expected .* 0 to 1, got 2"),
        ({"hotness": [1, -1]}, r"hotness\[1\] must not be negative"),
        ({"tables": tables((0, 4))}, "rows, dim and itemsize of a table must be at least 1"),
        (
            {"dp_input": False, "row_slice_threshold": 5},
            "row_slice_threshold and data_parallel_threshold need dp_input=True",
        ),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        plan_of(**{"tables": tables((2, 2), (3, 2)), "world_size": 2, **arguments})


def test_traffic_of_many_ranks():
    """Seconds, not the hours of a loop over all pairs of ranks in Python."""
    result = plan_of(tables((10**6, 64), (10**5, 64)), world_size=2048)
    start = time.process_time()
    assert len(traffic(result, ranks_per_machine=8)) == 2048
    assert time.process_time() - start < 20
