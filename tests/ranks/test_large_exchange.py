"""Exchanges count rows in 32 bits, not elements."""

import pytest

from tests.ranks.large_exchange_worker import ROWS, WIDTH


@pytest.mark.long  # 7 GiB of memory
def test_more_than_2_to_the_31_elements(run_ranks):
    first, second = run_ranks(2, "tests.ranks.large_exchange_worker", timeout=400).results
    assert first == {"elements": 0, "sizes": [0, 0], "last": []}
    assert second["elements"] == ROWS * WIDTH > 2**31
    assert second["sizes"] == [ROWS, 0]
    assert second["last"] == [5, 1]


@pytest.mark.long
def test_mpi_error(run_ranks):
    run = run_ranks(
        2, "tests.ranks.large_exchange_worker", launcher="mpi", timeout=400, check=False
    )
    assert run.returncode != 0
    assert "MPI counts elements in 32 bits" in run.output
