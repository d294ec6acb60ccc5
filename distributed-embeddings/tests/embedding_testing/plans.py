"""Plans from keyword arguments."""

from dataclasses import fields
from itertools import starmap

from distributed_embeddings.planner import (
    Feature,
    Limits,
    MemoryBudget,
    Plan,
    Table,
    Workload,
    plan,
)

_LIMITS = {field.name for field in fields(Limits)}
_BUDGET = {"reserved_fraction", "only_to_fit", "dense_bytes"}


def tables(*shapes) -> list[Table]:
    """Tables t0, t1, ... of these (rows, columns)."""
    return [Table(f"t{i}", rows, dim) for i, (rows, dim) in enumerate(shapes)]


def plan_of(
    tables,
    world_size,
    strategy="auto",
    input_table_map=None,
    hotness=None,
    combined=None,
    device_memory_bytes=None,
    host_memory_bytes=None,
    **options,
) -> Plan:
    """Plans tables.

    Args:
        device_memory_bytes: Device memory of a rank, including the reserve.
        **options: Attributes of `Limits`, `MemoryBudget` and `Workload`; by default, memory also
            shapes plans that fit without limits.
    """
    inputs = range(len(tables)) if input_table_map is None else input_table_map
    hotness = [1.0] * len(inputs) if hotness is None else hotness
    combined = [True] * len(inputs) if combined is None else combined
    features = tuple(starmap(Feature, zip(inputs, hotness, combined, strict=True)))
    limits = {name: options.pop(name) for name in _LIMITS & options.keys()}
    budget = {name: options.pop(name) for name in _BUDGET & options.keys()}
    if host_memory_bytes is not None:
        host_memory_bytes = int(host_memory_bytes)
    return plan(
        Workload(tuple(tables), features, world_size, **options),
        Limits(**limits),
        strategy,
        MemoryBudget(device_memory_bytes, host_memory_bytes, **{"only_to_fit": False, **budget}),
    )
