"""Cost estimates of a plan: bytes of memory, and time of the slowest rank."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from distributed_embeddings.planner.types import (
    DATA_PARALLEL,
    DEVICE,
    HOST,
    ROW_SLICED_ID_BYTES,
    Feature,
    Hardware,
    Shard,
    Table,
    check_minimum,
)

# Memory moves in pieces of 64 bytes (a cache line of x86; two sectors of an NVIDIA GPU): a narrower
# row costs as much.
LINE_BYTES = 64


@dataclass(frozen=True)
class Workload:
    """The tables, the features that read them, and what a training step does with them.

    Attributes:
        tables: The tables; may be empty.
        features: The inputs.
        global_batch_size: Samples per step of all ranks together.
        state_bytes_per_element: Optimizer state per element of a table: SGD 0, momentum or Adagrad
            4, Adam 8.
        state_bytes_per_row: Optimizer state per row: row-wise Adagrad 4.
        scratch_bytes_per_element: Temporary memory of an update per element of a table: 8 for an
            Adam that moves all rows; others need it for the rows of a batch only.
        exchange_itemsize: Bytes per element of an exchanged vector.
        dp_input: Whether ids are exchanged, see `DistributedEmbedding`.
        hardware: Bandwidths that weigh lookups against exchange.

    Raises:
        ValueError: A value is out of range.
    """

    tables: tuple[Table, ...]
    features: tuple[Feature, ...]
    world_size: int
    global_batch_size: int = 65536
    state_bytes_per_element: float = 0.0
    state_bytes_per_row: float = 0.0
    scratch_bytes_per_element: float = 0.0
    exchange_itemsize: int = 4
    id_itemsize: int = 8
    dp_input: bool = True
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        check_minimum(
            self, 1, "world_size", "global_batch_size", "exchange_itemsize", "id_itemsize"
        )
        check_minimum(
            self, 0, "state_bytes_per_element", "state_bytes_per_row", "scratch_bytes_per_element"
        )
        for table in self.tables:
            if min(table.rows, table.dim, table.itemsize) < 1:
                raise ValueError(
                    f"rows, dim and itemsize of a table must be at least 1, got {table}"
                )
        for f, feature in enumerate(self.features):
            if not 0 <= feature.table < len(self.tables):
                raise ValueError(
                    f"input_table_map[{f}]: expected the number of a table, 0 to "
                    f"{len(self.tables) - 1}, got {feature.table}"
                )
            if not feature.hotness >= 0:
                raise ValueError(f"hotness[{f}] must not be negative, got {feature.hotness}")

    @cached_property
    def features_of(self) -> tuple[tuple[int, ...], ...]:
        """For each table the features that read it."""
        features: list[list[int]] = [[] for _ in self.tables]
        for f, feature in enumerate(self.features):
            features[feature.table].append(f)
        return tuple(map(tuple, features))

    @cached_property
    def ids(self) -> tuple[float, ...]:
        """For each table the ids per sample."""
        return tuple(sum(self.features[f].hotness for f in fs) for fs in self.features_of)

    @cached_property
    def vectors(self) -> tuple[float, ...]:
        """For each table the output vectors per sample."""
        return tuple(sum(self.features[f].num_vectors for f in fs) for fs in self.features_of)

    def weight_bytes(self, t: int, rows: int, columns: int) -> int:
        return rows * columns * self.tables[t].itemsize

    def state_bytes(self, rows: int, columns: int) -> int:
        """Optimizer state of a shard; a column slice has its own state for each row."""
        return int(rows * (columns * self.state_bytes_per_element + self.state_bytes_per_row))

    def size_bytes(self, t: int, rows: int, columns: int) -> int:
        """Weights, optimizer state, and temporary memory of an update of all rows."""
        scratch = int(rows * columns * self.scratch_bytes_per_element)
        return self.weight_bytes(t, rows, columns) + self.state_bytes(rows, columns) + scratch

    def table_bytes(self, t: int) -> int:
        return self.size_bytes(t, self.tables[t].rows, self.tables[t].dim)

    def row_traffic_bytes(self, t: int, columns: int) -> int:
        """Memory traffic of one id in a step: read; then read and write weights and state."""
        traffic = 3 * line_bytes(columns * self.tables[t].itemsize)
        state = columns * self.state_bytes_per_element + self.state_bytes_per_row
        return traffic + 2 * line_bytes(state)

    def lookup_s(self, t: int, columns: int, device: str, num_ids: float) -> float:
        speed = self.hardware.device_bytes_per_s
        if device == HOST:
            speed = self.hardware.host_bytes_per_s
        return num_ids * self.row_traffic_bytes(t, columns) / speed

    def work_s(self, t: int, columns: int, device: str) -> float:
        """Time per step of the rank that holds these columns, for lookups and exchange."""
        batch = self.global_batch_size
        seconds = self.lookup_s(t, columns, device, batch * self.ids[t])
        ids = self.ids[t] * self.id_itemsize if self.dp_input else 0.0
        exchanged = ids + 2 * self.vectors[t] * columns * self.exchange_itemsize
        others = (self.world_size - 1) / self.world_size
        return seconds + batch * others * exchanged / self.hardware.exchange_bytes_per_s

    def row_sliced_work_s(self, t: int) -> float:
        """Time per step of each rank for a row-sliced table, as if all ids were different."""
        columns = self.tables[t].dim
        ids = self.global_batch_size * self.ids[t] / self.world_size
        bytes_per_element = self.exchange_itemsize + max(4, self.tables[t].itemsize)
        exchanged = ROW_SLICED_ID_BYTES + columns * bytes_per_element
        others = (self.world_size - 1) / self.world_size
        seconds = self.lookup_s(t, columns, DEVICE, ids)
        return seconds + ids * others * exchanged / self.hardware.exchange_bytes_per_s


def line_bytes(size_bytes: float) -> int:
    """Returns a size rounded up to whole cache lines."""
    return -int(-size_bytes // LINE_BYTES) * LINE_BYTES


@dataclass(frozen=True)
class Objective:
    """Objective of the `cost` strategy: the greatest load of a rank.

    load = work_s / mean work_s + memory_weight x bytes / mean bytes, summed over the rank's
    table-parallel shards; both means are of a perfectly even distribution of unsliced tables.
    Loads are whole numbers (2^32 is a load of 1), so that every rank computes the same plan.
    """

    workload: Workload
    mean_work_s: float
    mean_bytes: float
    memory_weight: float

    @classmethod
    def from_workload(
        cls, workload: Workload, tables: Sequence[int], memory_weight: float
    ) -> "Objective":
        """Returns the objective for placing `tables` (numbers)."""
        work = sum(workload.work_s(t, workload.tables[t].dim, DEVICE) for t in tables)
        size = sum(workload.table_bytes(t) for t in tables)
        return cls(workload, work / workload.world_size, size / workload.world_size, memory_weight)

    def load(self, t: int, columns: int, device: str) -> int:
        work = size = 0.0
        if self.mean_work_s:
            work = self.workload.work_s(t, columns, device) / self.mean_work_s
        if self.mean_bytes:
            rows = self.workload.tables[t].rows
            size = self.workload.size_bytes(t, rows, columns) / self.mean_bytes
        return int(2**32 * (work + self.memory_weight * size))

    def value(self, shards_by_rank: Sequence[Sequence[Shard]]) -> int:
        return max(
            sum(self.load(s.table, s.columns, s.device) for s in shards)
            for shards in shards_by_rank
        )


@dataclass(frozen=True)
class RankCost:
    """Memory and lookup time of one rank; traffic.py has what it sends and receives.

    Attributes:
        num_shards, rows, columns: Sums over the rank's shards, including replicated tables.
        weight_bytes, state_bytes: On device and host together.
        device_bytes, host_bytes: `Workload.size_bytes` on the device and in host memory.
        lookup_s: Estimated time of lookups, as if all ids were different.
    """

    rank: int
    num_shards: int
    rows: int
    columns: int
    weight_bytes: int
    state_bytes: int
    device_bytes: int
    host_bytes: int
    lookup_s: float

    @property
    def memory_bytes(self) -> int:
        return self.device_bytes + self.host_bytes


def rank_costs(workload: Workload, local_shards: Sequence[Sequence[Shard]]) -> list[RankCost]:
    """Returns the costs of each rank, with uniform ids of row-sliced tables."""
    w = workload
    costs = []
    for rank, shards in enumerate(local_shards):
        weights = [w.weight_bytes(s.table, s.rows, s.columns) for s in shards]
        states = [w.state_bytes(s.rows, s.columns) for s in shards]
        sizes = {DEVICE: 0, HOST: 0}
        for s in shards:
            sizes[s.device] += w.size_bytes(s.table, s.rows, s.columns)
        costs.append(
            RankCost(
                rank=rank,
                num_shards=len(shards),
                rows=sum(s.rows for s in shards),
                columns=sum(s.columns for s in shards),
                weight_bytes=sum(weights),
                state_bytes=sum(states),
                device_bytes=sizes[DEVICE],
                host_bytes=sizes[HOST],
                lookup_s=sum(
                    w.lookup_s(s.table, s.columns, s.device, _looked_up_ids(w, s)) for s in shards
                ),
            )
        )
    return costs


def _looked_up_ids(workload: Workload, s: Shard) -> float:
    """Ids of a batch that are looked up in a shard."""
    ids = workload.global_batch_size * workload.ids[s.table]
    if s.kind == DATA_PARALLEL:
        return ids / workload.world_size
    return ids * s.rows / workload.tables[s.table].rows


def imbalance(values: Sequence[float]) -> float:
    """Maximum over mean; 1 is even, also where all are zero."""
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0
