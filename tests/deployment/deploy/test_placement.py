"""Placement of tables on the device or the host."""

import pytest

from deployment.triton.gpu_models import place


@pytest.mark.parametrize(
    ("memory", "device"),
    [
        (0, ()),
        (399, ()),
        (400, ("b",)),
        (8399, ("b", "a")),
        (8400, ("b", "a", "d")),
        (88399, ("b", "a", "d")),
        (88400, ("b", "a", "d", "c")),
    ],
)
def test_smallest_tables_on_device(memory, device):
    assert place({"a": 4000, "b": 400, "c": 80_000, "d": 4000}, memory) == device
