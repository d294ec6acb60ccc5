"""Saving and reading may take one rank longer than --rank_timeout_s."""

import pytest

from tests.ranks.slow_save_worker import SLOW_S


@pytest.mark.long
def test_slow_rank(run_ranks, tmp_path):
    run = run_ranks(2, "tests/ranks/slow_save_worker.py", tmp_path / "model")
    for rank, result in enumerate(run.results):
        assert result["values"] == [rank + 1]
        assert min(result["saved_s"], result["restored_s"]) > 0.99 * SLOW_S, (
            "rank 0 was slow indeed"
        )
