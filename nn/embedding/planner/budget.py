"""Memory budget of a rank: where it comes from, what of it is for tables, what it did to a plan."""

from dataclasses import dataclass

from nn.embedding.planner.memory import table_memory_bytes
from nn.embedding.planner.report import format_bytes
from nn.embedding.planner.sharding_plan import Plan
from nn.embedding.planner.types import HOST, RESERVED_FRACTION


@dataclass(frozen=True)
class MemoryBudget:
    """Memory of a rank for `plan`; None for memory without a limit.

    Attributes:
      device_bytes: device memory, of which the plan keeps a reserve (plan_memory.py).
      host_bytes: host memory for tables that do not fit the device.
      source: where `device_bytes` comes from.
      dense_bytes: see `plan`.
      only_to_fit: see `plan`.
    """

    device_bytes: int | None = None
    host_bytes: int | None = None
    source: str = ""
    dense_bytes: float = 0.0
    only_to_fit: bool = True

    @property
    def origin(self) -> str:
        """Device memory of a rank and its source, "" without a limit."""
        if self.device_bytes is None:
            return ""
        return f"device memory per rank: {format_bytes(self.device_bytes)} ({self.source})"

    @property
    def advice(self) -> str:
        """A last line for the report of tables that do not fit, where no flag states the memory."""
        if not (self.only_to_fit and self.origin):
            return ""
        return f"\n{self.origin}: if the ranks may use more, state it with --plan_device_memory_gb"

    def describe(self, plan: Plan) -> str:
        """Returns one line for a log: memory of a rank, what of it is for tables, how they fit."""
        if self.device_bytes is None:
            return ""
        table_bytes = table_memory_bytes(
            plan.workload,
            self.device_bytes,
            RESERVED_FRACTION,
            self.dense_bytes if self.only_to_fit else None,
        )
        largest = max(cost.device_bytes for cost in plan.costs)
        text = (
            f"{self.origin}, {format_bytes(table_bytes)} of it for tables; "
            f"they take at most {format_bytes(largest)}"
        )
        if plan.limits.device_memory_bytes is None:
            return f"{text} and are not cut for it"
        return f"{text} ({_kinds(plan)})"


def _kinds(plan: Plan) -> str:
    """Numbers of tables that are cut, or held elsewhere."""
    host_tables = {s.table for shards in plan.table_shards for s in shards if s.device == HOST}
    counts = {
        "in column slices": sum(len(slices) > 1 for slices in plan.column_slices),
        "in row slices": len(plan.row_sliced_tables),
        "in host memory": len(host_tables),
    }
    texts = [f"{count} {where}" for where, count in counts.items() if count] or ["all whole"]
    if host_tables and plan.limits.host_memory_bytes:
        texts[-1] += f", of {format_bytes(plan.limits.host_memory_bytes)} per rank"
    return f"of {len(plan.tables)} tables {', '.join(texts)}"
