"""Plans for the table sizes of the recipes: automatic, within memory, and fast."""

import time

import pytest
from distributed_embeddings.planner import PlanError, Table, report
from embedding_testing.plans import plan_of

# Cardinalities of the Criteo 1TB logs without a frequency threshold ("extra large", 421 GiB at 128
# float32 columns), one more than the number of values each: `criteo_t0_synthetic` in
# dataloading/generate_feature_spec.py of NVIDIA DeepLearningExamples, DLRM_and_DCNv2.
EXTRA_LARGE = (
    227605432, 39061, 3067956, 405283, 11, 2209, 11939, 155, 4, 977, 15, 292775614, 17296,
    40790948, 187188510, 590152, 12974, 109, 37, 7425, 20266, 4, 7123, 1544, 64, 130229467,
)  # fmt: skip
GIB = 2**30
A100 = 80 * 10**9


def criteo(dim):
    return [Table(f"cat_{i}", rows, dim) for i, rows in enumerate(EXTRA_LARGE)]


def seconds_of(function):
    """Least CPU time of two calls: other jobs on the machine do not count."""
    times = []
    for _ in range(2):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def test_criteo_with_adagrad_on_8_devices():
    with pytest.raises(PlanError, match="more ranks: 14 are sufficient") as error:
        plan_of(criteo(128), 8, device_memory_bytes=A100, state_bytes_per_element=4)
    assert "none (SGD) is sufficient" in str(error.value)
    fits = plan_of(criteo(128), 14, device_memory_bytes=A100, state_bytes_per_element=4)
    assert max(c.device_bytes for c in fits.costs) <= 0.85 * A100
    # Row-wise Adagrad keeps 4 bytes for each row of a slice and fits.
    plan_of(criteo(128), 8, device_memory_bytes=A100, state_bytes_per_row=4)


def test_thresholds_of_the_recipe():
    """column_slice_threshold 5e9, row_slice_threshold 1e10, as the recipes' defaults are."""
    result = plan_of(
        criteo(128), 8, strategy="memory_balanced", column_slice_threshold=5 * 10**9,
        row_slice_threshold=10**10, data_parallel_threshold=10**6,
    )  # fmt: skip
    names = [table.name for table in result.tables]
    assert [names[t] for t in result.row_sliced_tables] == ["cat_0", "cat_11", "cat_14", "cat_25"]
    assert [len(result.column_slices[t]) for t in (2, 13)] == [1, 2]
    assert len(result.data_parallel_tables) == 13


def many_tables(count):
    """Sizes from 100 to 100 million rows, spread by a multiplicative hash."""
    spread = [(i * 2654435761 % 2**32) / 2**32 for i in range(count)]
    return [
        Table(f"t{i}", int(10 ** (2 + 6 * x)), (16, 32, 64, 128)[i % 4])
        for i, x in enumerate(spread)
    ]


@pytest.mark.quick("no limit", "data-parallel")
@pytest.mark.parametrize(
    "options",
    [{}, {"device_memory_bytes": 10 * GIB}, {"data_parallel_threshold": 10**5}],
    ids=["no limit", "10 GiB", "data-parallel"],
)
def test_a_thousand_tables_on_a_thousand_ranks(options):
    tables = many_tables(1000)

    def make():
        return plan_of(tables, 1024, state_bytes_per_element=4, **options)

    result = make()
    assert sum(s.rows * s.columns for entry in result.column_slices for s in entry) == sum(
        tables[t].num_elements for t in result.table_parallel_tables
    )
    if "device_memory_bytes" in options:
        assert max(c.device_bytes for c in result.costs) <= 0.85 * 10 * GIB
    assert seconds_of(make) < 5


def test_report_of_the_extra_large_model():
    text = report(plan_of(criteo(128), 8, device_memory_bytes=A100))
    lines = text.splitlines()
    assert lines[0].startswith(
        "26 tables, 26 features, 112,995,145,600 parameters: 420.9 GiB of weights, "
        "0 B of optimizer state on 8 ranks, strategy cost"
    )
    assert lines[1] == "device memory for tables: 63.33 GiB per rank"
    assert lines[2].split()[:4] == ["rank", "shards", "rows", "columns"]
    assert [line.split()[0] for line in lines[3:12]] == [*"01234567", "all"]
    assert lines[11].split()[3] == "3,328"
    assert lines[12].startswith("imbalance (max / mean): memory 1.")
    assert "cat_11[:, " in text
    assert max(map(len, lines)) < 250


def test_report_of_many_ranks():
    result = plan_of(
        many_tables(40), 16, data_parallel_threshold=10**4, row_slice_threshold=10**9,
        cpu_offloading_threshold_bytes=10**6,
    )  # fmt: skip
    text = report(result, max_ranks=2)
    assert "(fullest)" in text
    assert "rank 1: " in text
    assert "rank 2: " not in text
    assert "on every rank (data-parallel): " in text
    assert "rows on every rank (row-sliced): " in text
    assert " (host)" in text
    total = sum(c.weight_bytes for c in result.costs)
    assert f"{total / GIB:.4g} GiB" in text
