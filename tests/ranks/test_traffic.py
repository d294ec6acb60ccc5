"""The plan's bytes are those that go through the world in a step (traffic_worker.py)."""

import pytest

from tests.ranks.traffic_worker import SCENARIOS


@pytest.fixture(scope="module")
def three_ranks(run_ranks):
    """What each of three ranks counted, and what their plan says."""
    return run_ranks(3, "tests.ranks.traffic_worker").results


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_step_sends_what_the_plan_says(three_ranks, name):
    for rank, report in enumerate(three_ranks):
        found = report[name]
        for kind, counted in found["counted"].items():
            assert counted == pytest.approx(found["planned"][kind], abs=1e-6), (rank, kind)
        assert found["counted"]["sums"][0] > 0


def test_the_scenarios_are_what_their_names_say(three_ranks):
    first = three_ranks[0]
    assert first["all kinds"]["kinds"] == ["data_parallel", "row_sliced", "table_parallel"]
    assert first["column slices"]["slices"] > 1
    assert first["column slices"]["counted"] != first["column slices, row-wise"]["counted"]
    assert first["model-parallel input"]["counted"]["ids"] == [0, 0]
    assert first["row slices"]["kinds"] == ["row_sliced", "table_parallel"]
