"""Optional parts of DLRM and DCNv2: N ranks equal one rank, compiled, under every plan."""

import pytest


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_ranks(run_ranks, num_ranks):
    for report in run_ranks(num_ranks, "tests.ranks.ctr_parts_worker").results:
        assert len(report) == 12
        assert {name: text for name, text in report.items() if text} == {}
