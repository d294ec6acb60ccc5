"""Placement of tables on the device or the host."""

import pytest

from deployment.artifacts.table_files import table_bytes
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


@pytest.mark.parametrize(("quantize", "size"), [("none", 4000), ("fp16", 2000), ("int8", 1400)])
def test_bytes_of_stored_form(quantize, size):
    """int8 takes one byte per value, and four per row for the scale."""
    assert table_bytes(100, 10, quantize) == size
