"""Which tables lie in the memory of the device and which in that of its host; a pure function."""

from collections.abc import Sequence
from typing import NamedTuple

from deployment.artifacts.table_files import table_bytes


class TablePlacement(NamedTuple):
    """Where the tables of a served model lie.

    Attributes:
        device: names of the tables on the device, smallest first.
        host: names of the others, in the order of the model.
        device_bytes, host_bytes: what they take, scales of quantized rows included.
    """

    device: tuple[str, ...]
    host: tuple[str, ...]
    device_bytes: int
    host_bytes: int

    def report(self) -> str:
        """One line."""
        return (
            f"{len(self.device)} tables on the device ({self.device_bytes / 1e9:.3f} GB), "
            f"{len(self.host)} on the host ({self.host_bytes / 1e9:.3f} GB)"
        )


def place(
    tables: Sequence[tuple[str, int, int]], device_memory_bytes: int, quantize: str
) -> TablePlacement:
    """The smallest tables on the device, as many as fit; the rest on the host.

    Small tables are looked up as often as large ones, once for each id of a row, so that this order
    saves the most lookups over the bus for the memory it takes. Tables are not cut: the first that
    does not fit, and all that are larger, stay on the host.

    Args:
        tables: (name, rows, columns) of each.
        device_memory_bytes: what tables may take of the device's memory, 0 or more.
        quantize: how they are stored, `--quantize_tables`.

    Raises:
        ValueError: `device_memory_bytes` is negative.
    """
    if device_memory_bytes < 0:
        raise ValueError(
            f"--device_memory_gb must be 0 or more, got {device_memory_bytes / 1e9:g}: 0 leaves "
            "all tables on the host"
        )
    sizes = {name: table_bytes(rows, dim, quantize) for name, rows, dim in tables}
    on_device, used = [], 0
    for name in sorted(sizes, key=sizes.__getitem__):
        if used + sizes[name] > device_memory_bytes:
            break
        on_device.append(name)
        used += sizes[name]
    host = tuple(name for name in sizes if name not in on_device)
    return TablePlacement(tuple(on_device), host, used, sum(sizes[name] for name in host))
