"""The plan's bytes are those that go through the world in a step (traffic_worker.py)."""

import pytest

from tests.ranks.traffic_worker import SCENARIOS


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long)])
def reports(request, run_ranks, quick_python):
    """Counted and planned bytes of each rank."""
    worker = "tests.ranks.traffic_worker"
    return run_ranks(request.param, worker, python=quick_python).results


@pytest.mark.parametrize("name", SCENARIOS)
def test_bytes_of_a_step(reports, name):
    for rank, report in enumerate(reports):
        scenario = report[name]
        for kind, counted in scenario["counted"].items():
            assert counted == pytest.approx(scenario["planned"][kind], abs=1e-6), (rank, kind)
        assert scenario["counted"]["sums"][0] > 0


def test_scenarios(reports):
    first = reports[0]
    assert first["all kinds"]["kinds"] == ["data_parallel", "row_sliced", "table_parallel"]
    assert first["column slices"]["slices"] > 1
    assert first["column slices"]["counted"] != first["column slices, row-wise"]["counted"]
    assert first["model-parallel input"]["counted"]["ids"] == [0, 0]
    assert first["row slices"]["kinds"] == ["row_sliced", "table_parallel"]
