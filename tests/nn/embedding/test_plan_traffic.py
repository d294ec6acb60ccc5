"""Bytes of a step by hand; tests/ranks/test_traffic.py counts them where they really go."""

from dataclasses import replace

import pytest
from distributed_embeddings.planner import HOST, Hardware, report
from distributed_embeddings.planner.traffic import (
    COPIES,
    DENSE,
    GRADIENTS,
    IDS,
    VECTORS,
    expected_batch,
    traffic,
)
from distributed_embeddings.planner.types import WHOLE_TABLE_ELEMENTS
from embedding_testing.plans import plan_of, tables

# Batch 8 on 4 ranks, 2 samples each. Rank 0: 4 columns, hotness 3; ranks 1 to 3: 2 columns.
FOUR = plan_of(
    tables((10, 4), (10, 2), (10, 2), (10, 2)),
    4,
    strategy="basic",
    hotness=[3, 1, 1, 1],
    global_batch_size=8,
    exchange_itemsize=2,
    id_itemsize=8,
)


def test_traffic_of_whole_tables():
    first, second, *_ = traffic(FOUR)
    assert first.sent(IDS) == 3 * 2 * 1 * 8  # 2 samples' ids to each of 3 ranks
    assert first.received(IDS) == 3 * 2 * 3 * 8
    assert second.sent(IDS) == 2 * (3 + 1 + 1) * 8
    assert first.sent(VECTORS) == first.received(GRADIENTS) == 3 * 2 * 4 * 2
    assert first.received(VECTORS) == first.sent(GRADIENTS) == 3 * 2 * 2 * 2
    assert first.busiest_direction == 144 + 24 + 48  # what it receives; it sends 48 + 48 + 24


def test_traffic_within_machine():
    for rank in traffic(FOUR):
        assert sum(rank.sent_between.values()) == 0
        assert rank.busiest_direction_between == 0
    first, *_ = traffic(FOUR, ranks_per_machine=2, dense_bytes=100)
    assert first.sent_within[IDS] == 2 * 1 * 8
    assert first.sent_between[IDS] == 2 * 2 * 1 * 8
    assert first.received_between[VECTORS] == 2 * 2 * 2 * 2
    # 2 * 3/4 of 100 bytes; out of its machine 2 * 1/2 of them, half by this rank's link.
    assert (first.sent_between[DENSE], first.sent_within[DENSE]) == (50, 100)


def test_smaller_last_machine():
    first, *_, last = traffic(FOUR, ranks_per_machine=3, dense_bytes=90)
    assert (last.sent_between[DENSE], last.sent_within[DENSE]) == (90, 0)
    assert (first.sent_between[DENSE], first.sent_within[DENSE]) == (30, 120)
    assert last.sent_within[IDS] == 0


def test_single_rank():
    (alone,) = traffic(plan_of(tables((10, 4)), 1), dense_bytes=100)
    assert alone.busiest_direction == 0


def test_ranks_per_machine_out_of_range():
    with pytest.raises(ValueError, match="ranks_per_machine must be at least 1, got 0"):
        traffic(FOUR, ranks_per_machine=0)
    with pytest.raises(ValueError, match="ranks_per_machine must be at least 1, got 0"):
        report(FOUR, ranks_per_machine=0)


def test_vectors_without_combiner():
    combined, single = (
        plan_of(tables((10, 4), (10, 4)), 2, strategy="basic", hotness=[3, 3], combined=[flag] * 2)
        for flag in (True, False)
    )
    assert traffic(single)[0].sent(VECTORS) == 3 * traffic(combined)[0].sent(VECTORS) > 0


def test_ids_of_model_parallel_input():
    ranks = traffic(plan_of(tables((10, 4), (10, 2)), 2, strategy="basic", dp_input=False))
    assert [r.sent(IDS) for r in ranks] == [0, 0]
    assert ranks[0].sent(VECTORS) > 0


def test_rank_without_rows():
    plan = plan_of(tables((1, 4)), 2, row_slice_threshold=1, global_batch_size=2)
    ranks = traffic(plan)
    assert [r.sent(IDS) for r in ranks] == [0, 8]
    assert [r.sent(VECTORS) for r in ranks] == [4 * 4, 0]
    assert [r.sent(GRADIENTS) for r in ranks] == [0, 4 * 4]


def test_lengths_of_ragged_ids():
    plain, ragged = (
        traffic(FOUR, expected_batch(FOUR, ragged=features))[1].sent(IDS) for features in ((), (0,))
    )
    assert ragged - plain == 2 * 4  # of its 2 samples


def test_distinct_ids_of_row_slices():
    plan = plan_of(tables((2, 4)), 2, row_slice_threshold=1, hotness=[3], global_batch_size=2)
    # 3 ids of 2 rows: each row is missing with probability 1/8.
    assert expected_batch(plan).distinct == {0: ((7 / 8, 7 / 8), (7 / 8, 7 / 8))}
    [first, _] = traffic(plan)
    assert first.sent(IDS) == 7 / 8 * 8
    assert first.sent(VECTORS) == first.sent(GRADIENTS) == 7 / 8 * 4 * 4


def test_row_means_of_column_slices():
    def gradients(**options):
        plan = plan_of(tables((1, 4)), 2, strategy="basic", global_batch_size=2, **options)
        assert len(plan.column_slices[0]) == 2
        return traffic(plan)[0].sent(GRADIENTS)

    assert gradients(state_bytes_per_row=4) - gradients() == 4  # one row, to the other holder


def test_traffic_of_copied_tables():
    plan = plan_of(tables((3, 4)), 2, data_parallel_threshold=12, global_batch_size=8)
    assert traffic(plan)[0].sent(COPIES) == 3 * 4 * 4 + 3 * 4  # and which rows were touched
    rows = WHOLE_TABLE_ELEMENTS + 1
    plan = plan_of(tables((rows, 1)), 3, data_parallel_threshold=rows, global_batch_size=9)
    assert traffic(plan)[0].sent(COPIES) == 2 * 3 * (4 + 4)  # 3 rows and ids to 2 ranks
    first, _, last = traffic(plan, ranks_per_machine=2)
    # A machine of two gets 3 rows; of each of them the other half comes from the neighbour.
    assert first.received_between[COPIES] == 1.5 * 8
    assert first.received_within[COPIES] == 4.5 * 8
    assert (last.received_between[COPIES], last.received_within[COPIES]) == (6 * 8, 0)


def test_tables_without_features():
    plan = plan_of(tables((3, 4), (3, 4)), 2, input_table_map=[0], data_parallel_threshold=12)
    assert traffic(plan)[0].sent(COPIES) == 3 * 4 * 4 + 3 * 4  # of the first table
    idle = plan_of(tables((3, 4)), 2, input_table_map=[], data_parallel_threshold=12)
    assert traffic(idle)[0].busiest_direction == 0


SIXTEEN = plan_of(tables(*[(10, 128)] * 16), 16, global_batch_size=16_000)


def test_report_of_link_traffic():
    lines = report(SIXTEEN, ranks_per_machine=8).splitlines()
    (first,) = (i for i, line in enumerate(lines) if line.strip().startswith("network, per step"))
    # 1,000 samples of a rank: to and from 15 others 15 vectors of 512 bytes, twice, and 15 ids.
    sent = 15 * 1000 * (2 * 512 + 8)
    assert lines[first + 1].split()[:6] == ["between", "ranks", "14.76", "MiB", "14.76", "MiB"]
    assert f"{sent * 8 / 10e9 * 1e3:.3g} ms" in lines[first + 1]
    assert lines[first + 2].split()[:5] == ["between", "machines", "of", "8", "ranks"]
    assert f"{sent * 8 / 15 * 8 / 10e9 * 1e3:.3g} ms" in lines[first + 2]  # 8 of the 15
    assert "row slices" not in lines[first + 3]


@pytest.mark.parametrize(
    ("ranks_per_machine", "machines", "to_others"),
    [
        (1, "between machines of 1 rank ", 15),
        (2, "between machines of 2 ranks ", 14),
        (5, "between machines of 5 ranks, the last of 1 ", 15),
        (16, "one machine has all 16 ranks", None),
        (20, "one machine has all 16 ranks", None),
        (None, None, None),
    ],
)
def test_report_of_ranks_per_machine(ranks_per_machine, machines, to_others):
    lines = report(SIXTEEN, ranks_per_machine=ranks_per_machine).splitlines()
    actual = [line.strip() for line in lines if "machine" in line]
    assert len(actual) == (machines is not None)
    if to_others:
        # Each of the others gets 1,000 vectors of 512 bytes, sends their gradients, and 1,000 ids.
        largest = to_others * 1000 * (2 * 512 + 8)
        assert actual[0].startswith(machines)
        assert actual[0].endswith(f" {largest * 8 / 2400e9 * 1e3:.3g} ms")
    elif machines:
        assert actual[0].endswith(f"at the speed of its own link; {machines}; " + NO_DENSE)


NO_DENSE = "without gradients of the dense layers"


def test_report_of_dense_gradients():
    plan = plan_of(tables((10, 4)), 2, row_slice_threshold=1)
    text, notes = report(plan), report(plan, dense_bytes=2**20)
    assert "all-reduce (gradients of copied tables);" in text
    assert "all-reduce (gradients of copied tables and of the dense layers);" in notes
    assert "1 MiB" not in text and "1 MiB" in notes
    assert f"; {NO_DENSE}\n" in text
    assert "without gradients" not in notes
    assert "row slices as if ids were uniform" in text
    assert "network" not in report(plan_of(tables((10, 4)), 1))


def printed_work_ms(plan):
    """The last column of the report's lines of two ranks."""
    lines = report(plan).splitlines()
    return [float(line.split()[-1]) for line in lines if line.strip().startswith(("0 ", "1 "))]


def test_reported_work_of_whole_tables():
    plan = plan_of(tables((10, 64), (10, 16), (10, 32)), 2, hotness=[30, 9, 20], strategy="basic")
    expected = [
        1e3 * sum(plan.workload.work_s(s.table, s.columns, s.device) for s in shards)
        for shards in plan.table_shards
    ]
    assert min(expected) > 0.1
    assert printed_work_ms(plan) == pytest.approx(expected, abs=5e-4)


def test_reported_work_of_copies_and_row_slices():
    """Batch 2,000 on 2 ranks, so that each reads 1,000 copied rows and exchanges 100 of slices."""
    plan = plan_of(
        tables((50, 16), (200, 32)), 2, data_parallel_threshold=800, row_slice_threshold=801,
        global_batch_size=2000, hotness=[1, 40], hardware=Hardware(1e9, 1e9, 1e8),
    )  # fmt: skip
    # A row of 64 bytes is read, read and written; so are 128 bytes of the other table, for half
    # of all ids.
    looked_up = 1000 * 3 * 64 + 2000 * 40 / 2 * 3 * 128
    # A rank requests all of the 200 rows for 40,000 uniform ids: int64, vector, gradient.
    exchanged = 100 * (8 + 2 * 32 * 4)
    copied = 50 * 16 * 4 + 50 * 4  # and which rows were touched
    expected = 1e3 * (looked_up / 1e9 + (exchanged + copied) / 1e8)
    assert printed_work_ms(plan) == pytest.approx([expected] * 2, abs=5e-4)


def test_columns_on_device_and_in_host_memory():
    (whole, *_), others = FOUR.table_shards[0], FOUR.table_shards[1:]
    parts = (replace(whole, column_end=1), replace(whole, column_start=1, device=HOST))
    parted = traffic(replace(FOUR, table_shards=(parts, *others)))[0]
    assert parted.received(IDS) == 2 * traffic(FOUR)[0].received(IDS)
    assert parted.sent(VECTORS) == traffic(FOUR)[0].sent(VECTORS)
