"""Placement of tables on the device or the host."""

from deployment.triton.gpu_models import place


def test_smallest_tables_on_device():
    sizes = {"a": 4000, "b": 400, "c": 80_000, "d": 4000}
    for memory, device in ((399, ""), (400, "b"), (8399, "ba"), (8400, "bad"), (88_400, "badc")):
        assert place(sizes, memory) == tuple(device)
