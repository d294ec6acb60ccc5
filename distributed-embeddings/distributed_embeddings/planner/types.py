"""Types of the embedding sharding planner: tables, features, shards, limits."""

from dataclasses import dataclass

# Sharding type of a shard.
TABLE_PARALLEL = "table_parallel"  # on one rank, all rows, some or all columns
ROW_SLICED = "row_sliced"  # row-wise: a run of rows on every rank
DATA_PARALLEL = "data_parallel"  # a replica on every rank

# Memory that stores a shard.
DEVICE = "device"  # that of the compute device: the GPU, or in a CPU run the process's memory
HOST = "host"  # host memory next to the device

ROW_SLICED_ID_BYTES = 8  # per id sent to the owner of a row-sliced table, always int64

# Share of device memory for the dense model, activations, exchange buffers, the runtime's own and
# fragmentation.
RESERVED_FRACTION = 0.15

# The gradient of a replicated table of at most this size is summed as a whole, that of a larger one
# by the rows that the ranks touched. 16 MiB of float32: a ring carries it in about the time of a
# batch's vectors.
WHOLE_TABLE_ELEMENTS = 2**22


class PlanError(ValueError):
    """The tables do not fit the available memory; the message lists solutions."""


@dataclass(frozen=True, slots=True)
class Table:
    """Embedding table of `rows` x `dim` elements of `itemsize` bytes.

    Tables of one rank share a variable if their width, itemsize, device and `key` are equal: `key`
    stands for everything else that must be equal (dtype, class of a custom layer).
    """

    name: str
    rows: int
    dim: int
    itemsize: int = 4
    key: str = ""

    @property
    def num_elements(self) -> int:
        return self.rows * self.dim


@dataclass(frozen=True, slots=True)
class Feature:
    """Input whose ids are looked up in `table` (its number).

    Attributes:
        hotness: Ids per sample, the mean where they vary.
        combined: Whether the rows of a sample are pooled into one vector.
    """

    table: int
    hotness: float = 1.0
    combined: bool = True

    @property
    def num_vectors(self) -> float:
        """Output vectors per sample."""
        return 1.0 if self.combined else self.hotness


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows [row_start, row_end) and columns [column_start, column_end) of a table on a rank."""

    table: int
    rank: int
    row_start: int
    row_end: int
    column_start: int
    column_end: int
    kind: str = TABLE_PARALLEL
    device: str = DEVICE

    @property
    def rows(self) -> int:
        return self.row_end - self.row_start

    @property
    def columns(self) -> int:
        return self.column_end - self.column_start


@dataclass(frozen=True, slots=True)
class Group:
    """Shards of one rank in one variable [rows, dim]; shard i starts at `row_offsets[i]`."""

    kind: str
    device: str
    rows: int
    dim: int
    itemsize: int
    key: str
    shards: tuple[Shard, ...]
    row_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Lookup of a feature in a shard of a rank.

    Attributes:
        group: Number of the group in `Plan.groups(rank)` that holds the shard.
        row_offset: Row of the group's variable at which the shard starts.
    """

    feature: int
    group: int
    row_offset: int
    shard: Shard


@dataclass(frozen=True)
class Hardware:
    """Bandwidths that weigh a plan's costs against each other; only their ratios change a plan.

    The defaults are about half of the published peaks of an A100-80GB in a DGX (2.0e12 B/s of
    device memory, 3.0e11 B/s of NVLink per direction) and of a GPU's eighth of its host's memory
    bandwidth (4.1e11 B/s of two sockets): rows are read at random.
    """

    device_bytes_per_s: float = 1.0e12
    host_bytes_per_s: float = 2.5e10
    exchange_bytes_per_s: float = 1.5e11


@dataclass(frozen=True)
class Limits:
    """Sharding thresholds in elements, and memory limits of a rank.

    Attributes:
        column_slice_threshold: A table with more elements is cut into the smallest power of 2 of
            column slices that are at most this large, but at most one per rank. None or 0: only if
            there are fewer tables than ranks, or, with `cost` and `auto`, if `device_memory_bytes`
            requires it.
        row_slice_threshold: A table with at least this many elements is row-sliced. None: with
            `cost` and `auto` the largest tables if they do not fit otherwise. 0: none.
        data_parallel_threshold: A table with at most this many elements is data-parallel. None or
            0: none.
        cpu_offloading_threshold_bytes: Bytes of weights of a rank's table-parallel shards that stay
            on its device: in order of increasing size, those beyond go to host memory. None: off.
        device_memory_bytes: Device memory of a rank for tables and optimizer state, without the
            reserve (see `MemoryBudget`). None: no limit.
        host_memory_bytes: Host memory of a rank for table-parallel shards that do not fit its
            device; those with the fewest lookups per byte are moved first. None: none (but no limit
            to `cpu_offloading_threshold_bytes`).

    Raises:
        ValueError: A negative value.
    """

    column_slice_threshold: int | None = None
    row_slice_threshold: int | None = None
    data_parallel_threshold: int | None = None
    cpu_offloading_threshold_bytes: int | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        check_minimum(self, 0, *self.__dataclass_fields__)


def check_minimum(record: object, minimum: int, *names: str) -> None:
    """Raises ValueError if an attribute of `record` is less than `minimum`, or NaN."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not value >= minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {value}")
