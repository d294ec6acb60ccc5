"""Ranks without anything to train come to every exchange of the backward pass, too."""

import pytest

from tests.ranks import backward_worker


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_odd_plans_equal_one_rank(run_ranks, num_ranks):
    run = run_ranks(num_ranks, backward_worker.__name__, timeout=100)
    for report in run.results:
        assert report == {case: [True, True] for case in backward_worker.CASES}
