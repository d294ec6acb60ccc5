"""Results of checks_worker.py on several ranks: one start for each launcher and number of ranks."""

import functools
import sys
from typing import Any

import pytest

from tests.ranks import backward_worker, checks_worker

LONG_LAUNCHES = [("mpi", 2), ("gloo", 3)]
LAUNCHES = [("gloo", 2), *(pytest.param(*x, marks=pytest.mark.long) for x in LONG_LAUNCHES)]


@pytest.fixture(scope="module")
def checked(run_ranks, quick_python):
    """`checked(launcher, num_ranks)`: results of the checks, by rank."""

    @functools.cache
    def results(launcher: str, num_ranks: int) -> list[Any]:
        python = quick_python if launcher == "gloo" else sys.executable
        worker = checks_worker.__name__
        return run_ranks(num_ranks, worker, launcher=launcher, python=python).results

    return results


@pytest.mark.parametrize(("launcher", "num_ranks"), LAUNCHES)
def test_collectives(checked, launcher, num_ranks):
    for rank, results in enumerate(checked(launcher, num_ranks)):
        outcomes = dict(results["collectives"])
        assert outcomes.pop("world") == [rank, num_ranks, rank, num_ranks]
        assert len(outcomes) >= 10
        assert set(outcomes.values()) == {"ok"}, "\n".join(
            v for v in outcomes.values() if v != "ok"
        )


@pytest.mark.parametrize(("launcher", "num_ranks"), LAUNCHES)
def test_steps_with_idle_ranks(checked, launcher, num_ranks):
    """Weights and outputs, eager and compiled."""
    for results in checked(launcher, num_ranks):
        assert results["backward"] == {case: [True] * 4 for case in backward_worker.CASES}


@pytest.mark.parametrize(("launcher", "num_ranks"), LAUNCHES)
def test_several_uses_of_one_lookup(checked, launcher, num_ranks):
    """Two calls of an inner `tf.function`, two gradients in other name scopes."""
    results = checked(launcher, num_ranks)
    assert [rank["compiled"] for rank in results] == ["equal"] * num_ranks
