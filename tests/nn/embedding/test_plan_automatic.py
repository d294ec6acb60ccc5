"""Default plans: shaped by memory only where they do not fit; published models fit."""

import time
from dataclasses import replace

import pytest
from distributed_embeddings.planner import HOST, MemoryBudget, PlanError, Table, report
from distributed_embeddings.planner.storage_reservation import step_bytes
from embedding_testing.plans import plan_of
from embedding_testing.random_plans import (
    MANY,
    check_cover,
    check_lookups,
    tight_cases,
)
from hypothesis import given
from hypothesis import strategies as st

from config.config import Config
from dataloading.generate_feature_spec import VARIANTS
from dataloading.synthetic.rows import synthetic_spec
from recipes.from_flags import make_plan
from recipes.registry import DLRM
from runtime.hardware.memory import RankMemory

GIB = 2**30
A100 = 85 * 10**9  # total memory of an A100-80GB, as its driver reports it


def published(ranks, memory, *, dim=128, recipe="dlrm", variant="criteo_t0_synthetic", **flags):
    """The plan of a published model without any flag of the plan, and the seconds that it took."""
    if recipe == "dcnv2":
        flags = {"interaction": "cross", "optimizer": "adam", **flags}
    config = Config(DLRM).replace(
        dataset_type="synthetic", embedding_dim=str(dim), bottom_mlp_dims=(512, 256, dim), **flags
    )
    started = time.process_time()
    result = make_plan(config, synthetic_spec(VARIANTS[variant]), ranks, memory)
    return result, time.process_time() - started


def fits(result, device_bytes, host_bytes=0):
    limit = MemoryBudget(device_bytes).table_bytes(result.workload)
    for cost in result.costs:
        assert cost.device_bytes <= limit
        assert cost.host_bytes <= host_bytes


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize(("ranks", "dim"), [(8, 128), (32, 512)])
def test_published_models_of_421_and_1684_gib(ranks, dim, optimizer):
    memory = RankMemory(A100, None, "total memory of the GPU")
    result, seconds = published(ranks, memory, dim=dim, embedding_optimizer=optimizer)
    fits(result, A100)
    assert not result.row_sliced_tables
    assert "in column slices" in result.memory_note
    assert "GiB (total memory of the GPU)" in result.memory_note
    work_s = [
        sum(result.workload.work_s(s.table, s.columns, s.device) for s in shards)
        for shards in result.table_shards
    ]
    assert max(work_s) <= 1.15 * sum(work_s) / ranks
    assert seconds < 2


@pytest.mark.parametrize(
    ("recipe", "ranks", "device_bytes", "host_bytes"),
    [
        pytest.param("dlrm", 1, A100, 600 * GIB, id="one device, the rest in host memory"),
        pytest.param("dlrm", 8, 42 * 10**9, 120 * GIB, id="8 devices of 40 GB"),
        pytest.param("dcnv2", 8, A100, 240 * GIB, id="Adam, three times the bytes"),
        pytest.param("dcnv2", 32, A100, 0, id="Adam on 32 devices"),
    ],
)
def test_published_model_in_host_memory(recipe, ranks, device_bytes, host_bytes):
    result, _ = published(ranks, RankMemory(device_bytes, host_bytes or None, "-"), recipe=recipe)
    fits(result, device_bytes, int(0.85 * host_bytes))
    assert any(cost.host_bytes for cost in result.costs) == bool(host_bytes)
    assert ("in host memory, of " in result.memory_note) == bool(host_bytes)


def test_plan_with_ample_memory():
    today = published(8, None, variant="criteo_t3_synthetic")[0]
    for gigabytes in (40, 80, 1000):
        memory = RankMemory(gigabytes * 10**9, 10**9, "-")
        result = published(8, memory, variant="criteo_t3_synthetic")[0]
        assert result == today
        note = "; no table is sharded for lack of memory" if gigabytes < 1000 else ""
        assert result.memory_note.endswith(note) and bool(result.memory_note) == bool(note)
    assert published(8, RankMemory(24 * 10**9), variant="criteo_t3_synthetic")[0] != today
    assert today.memory_note == ""


def test_precedence_of_stated_memory():
    read = RankMemory(4 * 10**9, None, "-")
    stated = {"plan_device_memory_gb": 85.0, "plan_host_memory_gb": 0.0}
    assert published(8, read, **stated)[0] == published(8, None, **stated)[0]
    with pytest.raises(ValueError, match="do not fit") as error:
        published(8, read)
    assert str(error.value).endswith(
        "device memory per rank: 3.725 GiB (-): if the ranks may use more, state it with "
        "--plan_device_memory_gb"
    )


def test_precedence_of_thresholds():
    result, _ = published(8, RankMemory(A100), row_slice_threshold=10**10)
    assert len(result.row_sliced_tables) == 4


def test_default_memory_of_plan_only():
    result, _ = published(8, None, plan_only=True)
    line = report(result).splitlines()[1]
    assert line.startswith("device memory per rank: 74.51 GiB (80 GB assumed; --plan_device_memory")
    stated, _ = published(8, None, plan_only=True, plan_device_memory_gb=80.0)
    assert stated.table_shards == result.table_shards


def test_row_slices_of_narrow_tables():
    """Each of 8 ranks has room for a quarter of the rows, but a table has 2 columns only."""
    tables = [Table("wide", 1000, 2), Table("small", 10, 2)]
    result = plan_of(tables, 8, device_memory_bytes=2000, reserved_fraction=0, only_to_fit=True,
                global_batch_size=1)  # fmt: skip
    assert result.row_sliced_tables == (0,)
    with pytest.raises(PlanError):
        plan_of(tables, 8, device_memory_bytes=2000, reserved_fraction=0, row_slice_threshold=0)
    # Host memory would do, too, but is slower.
    both = plan_of(
        tables, 8, device_memory_bytes=2000, reserved_fraction=0, host_memory_bytes=10**6
    )
    assert both.row_sliced_tables == (0,)
    assert not any(s.device == HOST for shards in both.table_shards for s in shards)
    # With model-parallel input no rank has the ids of all tables.
    by_host = plan_of(tables, 8, device_memory_bytes=2000, reserved_fraction=0,
                   host_memory_bytes=10**6, dp_input=False)  # fmt: skip
    assert not by_host.row_sliced_tables


def test_memory_of_a_step():
    """64 samples of 2 features of 100 columns: 5 copies of vectors, 1.5 of rows, in float32."""
    tables = [Table("a", 500, 100), Table("b", 500, 100)]
    options = {"global_batch_size": 64, "reserved_fraction": 0, "only_to_fit": True}
    result = plan_of(tables, 1, **options)
    assert step_bytes(result.workload) == 4 * 64 * 200 * 6.5
    needed = 2 * 500 * 100 * 4 + step_bytes(result.workload)
    assert plan_of(tables, 1, device_memory_bytes=needed + 8, dense_bytes=8, **options) == result
    with pytest.raises(PlanError):
        plan_of(tables, 1, device_memory_bytes=needed + 8, dense_bytes=9, **options)
    with_state = replace(result.workload, state_bytes_per_element=8.0, world_size=2)
    assert step_bytes(with_state) == 4 * 32 * 200 * (7 + 3.5)
    # A step that needs more than there is leaves half.
    assert MemoryBudget(10).table_bytes(result.workload) == 5


def test_scratch_memory_of_adam():
    [cost] = plan_of(
        [Table("a", 10, 4)], 1, state_bytes_per_element=8, scratch_bytes_per_element=8
    ).costs
    assert (cost.weight_bytes, cost.state_bytes, cost.device_bytes) == (160, 320, 800)


@MANY
@given(tight_cases(), st.floats(0, 10_000))
def test_fit_or_report(arguments, dense_bytes):
    arguments |= {"only_to_fit": True, "dense_bytes": dense_bytes}
    arguments |= {"global_batch_size": 8, "row_slice_threshold": None}
    today = plan_of(
        **{
            name: value
            for name, value in arguments.items()
            if name not in ("device_memory_bytes", "host_memory_bytes")
        }
    )
    device, host = arguments["device_memory_bytes"], arguments["host_memory_bytes"]
    budget = MemoryBudget(
        device, dense_bytes=dense_bytes, reserved_fraction=arguments["reserved_fraction"]
    )
    limit = budget.table_bytes(today.workload)

    def fits_in(result):
        return all(
            cost.device_bytes <= limit and (host is None or cost.host_bytes <= host)
            for cost in result.costs
        )

    try:
        result = plan_of(**arguments)
    except PlanError as error:
        assert "Possible solutions:" in str(error)
        assert not fits_in(today)
        return
    assert fits_in(result)
    assert plan_of(**arguments) == result
    if fits_in(today):
        assert result == today
    check_cover(result)
    check_lookups(result)
