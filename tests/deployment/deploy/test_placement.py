"""Which tables lie on the device."""

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
def test_the_smallest_as_far_as_they_fit(memory, device):
    assert place({"a": 4000, "b": 400, "c": 80_000, "d": 4000}, memory) == device


@pytest.mark.parametrize(("quantize", "size"), [("none", 4000), ("fp16", 2000), ("int8", 1400)])
def test_bytes_are_of_the_stored_form(quantize, size):
    """int8: a byte a value, four a row for its scale."""
    assert table_bytes(100, 10, quantize) == size
