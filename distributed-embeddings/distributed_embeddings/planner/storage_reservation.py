"""Memory budget of a rank: its origin, the reserve for a training step, the rest for tables."""

from dataclasses import dataclass

from distributed_embeddings.planner.estimators import Workload
from distributed_embeddings.planner.plan_text import format_bytes
from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.types import HOST, RESERVED_FRACTION, check_minimum

# Float32 copies of a step's vectors and rows that are in memory at a time, in one process and for
# other ranks. Measured on a CPU with 26 tables of 128 columns, the peak memory of DLRM grows by 4.6
# times the vectors of a sample with 1 id per feature, and with 10 by 1.2 times the further rows.
VECTOR_COPIES = 5
EXCHANGE_COPIES = 2
ROW_COPIES = 1.5


def step_bytes(workload: Workload) -> int:
    """Estimates the memory of a rank for the vectors of one step.

        4 * global_batch_size / world_size * (copies * V + (ROW_COPIES + state) * R)

    `V` are elements of a sample's vectors, `R` those of the rows that are looked up for it, `state`
    numbers of optimizer state per element; copies: VECTOR_COPIES + EXCHANGE_COPIES on several
    ranks.
    """
    copies = VECTOR_COPIES + EXCHANGE_COPIES * (workload.world_size > 1)
    row_copies = ROW_COPIES + workload.state_bytes_per_element / 4
    elements = sum(
        table.dim * (copies * vectors + row_copies * ids)
        for table, vectors, ids in zip(workload.tables, workload.vectors, workload.ids, strict=True)
    )
    return int(4 * workload.global_batch_size / workload.world_size * elements)


@dataclass(frozen=True)
class MemoryBudget:
    """Memory of a rank; None for memory without a limit.

    Attributes:
        device_bytes: Device memory, of which the share `reserved_fraction` is not for tables.
        host_bytes: Host memory for tables that do not fit the device.
        source: Origin of `device_bytes`.
        dense_bytes: Weights, gradients and optimizer state that are not of tables.
        only_to_fit: Whether memory shapes the plan only where the plan without limits does not fit;
            the reserve then also covers what a step needs. False: within a limit, tables are also
            cut where that evens out the ranks.
    """

    device_bytes: int | None = None
    host_bytes: int | None = None
    source: str = ""
    dense_bytes: float = 0.0
    only_to_fit: bool = True
    reserved_fraction: float = RESERVED_FRACTION

    def __post_init__(self) -> None:
        check_minimum(self, 0, "device_bytes", "host_bytes", "dense_bytes")
        if not 0 <= self.reserved_fraction < 1:
            raise ValueError(f"reserved_fraction must be in [0, 1), got {self.reserved_fraction}")

    def table_bytes(self, workload: Workload) -> int | None:
        """Device memory of a rank for tables and their optimizer state, None without a limit.

            device_bytes - max(reserved_fraction * device_bytes,
                               min(dense_bytes + step_bytes, device_bytes / 2))

        At most half is reserved for a step: small tables must not be refused because of a large
        batch. Without `only_to_fit` the reserve is the fraction.
        """
        if self.device_bytes is None:
            return None
        size_bytes = int(self.device_bytes * (1 - self.reserved_fraction))
        if self.only_to_fit:
            needed = min(self.dense_bytes + step_bytes(workload), self.device_bytes / 2)
            size_bytes = min(size_bytes, int(self.device_bytes - needed))
        return size_bytes

    @property
    def origin(self) -> str:
        """Device memory of a rank and its source, "" without a limit."""
        if self.device_bytes is None:
            return ""
        return f"device memory per rank: {format_bytes(self.device_bytes)} ({self.source})"

    @property
    def advice(self) -> str:
        """Last line for the report of tables that do not fit, where no flag states the memory."""
        if not (self.only_to_fit and self.origin):
            return ""
        return f"\n{self.origin}: if the ranks may use more, state it with --plan_device_memory_gb"

    def describe(self, plan: Plan) -> str:
        """Returns one line for a log: memory of a rank, its part for tables, how they fit."""
        table_bytes = self.table_bytes(plan.workload)
        if table_bytes is None:
            return ""
        largest = max(cost.device_bytes for cost in plan.costs)
        text = (
            f"{self.origin}, {format_bytes(table_bytes)} of it for tables; "
            f"they take at most {format_bytes(largest)}"
        )
        if plan.limits.device_memory_bytes is None:
            return f"{text}; no table is sharded for lack of memory"
        return f"{text} ({_sharding_summary(plan)})"


def _sharding_summary(plan: Plan) -> str:
    """Numbers of tables that are cut, or offloaded."""
    host_tables = {s.table for shards in plan.table_shards for s in shards if s.device == HOST}
    counts = {
        "in column slices": sum(len(slices) > 1 for slices in plan.column_slices),
        "in row slices": len(plan.row_sliced_tables),
        "in host memory": len(host_tables),
    }
    texts = [f"{count} {kind}" for kind, count in counts.items() if count] or ["all whole"]
    if host_tables and plan.limits.host_memory_bytes:
        texts[-1] += f", of {format_bytes(plan.limits.host_memory_bytes)} per rank"
    return f"of {len(plan.tables)} tables {', '.join(texts)}"
