"""Which tables lie on the device."""

import pytest

from deployment.triton.gpu_models import place

# Of 4,000, 400, 80,000 and 4,000 bytes in float32.
TABLES = [("a", 100, 10), ("b", 10, 10), ("c", 1000, 20), ("d", 250, 4)]


@pytest.mark.parametrize(
    ("memory", "device", "host"),
    [
        (0, (), ("a", "b", "c", "d")),
        (399, (), ("a", "b", "c", "d")),
        (400, ("b",), ("a", "c", "d")),
        (8399, ("b", "a"), ("c", "d")),
        (8400, ("b", "a", "d"), ("c",)),
        (88399, ("b", "a", "d"), ("c",)),
        (88400, ("b", "a", "d", "c"), ()),
    ],
)
def test_the_smallest_as_far_as_they_fit(memory, device, host):
    placed = place(TABLES, memory, "none")
    assert (placed.device, placed.host) == (device, host)
    sizes = {"a": 4000, "b": 400, "c": 80_000, "d": 4000}
    assert placed.device_bytes == sum(sizes[name] for name in device) <= memory
    assert placed.host_bytes == sum(sizes[name] for name in host)


def test_bytes_are_of_the_stored_form():
    """int8: a byte a value, four a row for its scale; fp16: two a value."""
    assert place(TABLES, 10**9, "int8").device_bytes == (
        (1000 + 400) + (100 + 40) + (20_000 + 4000) + (1000 + 1000)
    )
    assert place(TABLES, 10**9, "fp16").device_bytes == 88400 // 2


def test_report():
    assert place([("a", 10**6, 16), ("b", 10**6, 32)], 64 * 10**6, "none").report() == (
        "1 tables on the device (0.064 GB), 1 on the host (0.128 GB)"
    )
