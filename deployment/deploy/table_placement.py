"""Placement of tables in device or host memory."""

from collections.abc import Sequence
from typing import NamedTuple

from deployment.artifacts.table_files import table_bytes


class TablePlacement(NamedTuple):
    """Names of the tables on the device and on the host, and their sizes with scales."""

    device: tuple[str, ...]
    host: tuple[str, ...]
    device_bytes: int
    host_bytes: int

    def report(self) -> str:
        """Returns a line for the report."""
        return (
            f"{len(self.device)} tables on the device ({self.device_bytes / 1e9:.3f} GB), "
            f"{len(self.host)} on the host ({self.host_bytes / 1e9:.3f} GB)"
        )


def place(
    tables: Sequence[tuple[str, int, int]], device_memory_bytes: int, quantize: str
) -> TablePlacement:
    """Places the smallest tables on the device as far as they fit, the others on the host.

    Small tables have as many lookups as large ones, so this order saves the most lookups over the
    bus per byte. Tables are not split.

    Args:
        tables: (name, rows, columns) per table.
        device_memory_bytes: device memory for tables.
        quantize: storage of tables, `--quantize_tables`.
    """
    sizes = {name: table_bytes(rows, dim, quantize) for name, rows, dim in tables}
    on_device, used = [], 0
    for name in sorted(sizes, key=sizes.__getitem__):
        if used + sizes[name] > device_memory_bytes:
            break
        on_device.append(name)
        used += sizes[name]
    host = tuple(name for name in sizes if name not in on_device)
    return TablePlacement(tuple(on_device), host, used, sum(sizes[name] for name in host))
