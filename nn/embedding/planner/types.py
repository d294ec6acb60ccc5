"""What a plan of embedding tables is made of: tables, features, shards, and the limits it obeys."""

from dataclasses import dataclass

# How a shard takes part in a step.
TABLE_PARALLEL = "table_parallel"  # on one rank, all rows, some or all columns
ROW_SLICED = "row_sliced"  # a run of rows on every rank
DATA_PARALLEL = "data_parallel"  # a whole copy on every rank

# Where a shard lives.
DEVICE = "device"  # with the compute: the GPU, or on a CPU run the process's memory
HOST = "host"  # host memory beside the device

ROW_SLICED_ID_BYTES = 8  # of an id that asks for a row of a row-sliced table, always int64


# Share of device memory that is not for tables: dense model, activations, exchange buffers, the
# runtime's own and fragmentation.
RESERVED_FRACTION = 0.15

# A copied table of up to so many elements is summed as a whole, a larger one by the rows that the
# ranks touched. 16 MiB of float32: a ring carries it in about the time of a batch's vectors.
WHOLE_TABLE_ELEMENTS = 2**22


class PlanError(ValueError):
    """The tables do not fit the memory that there is; the message says what would help."""


@dataclass(frozen=True, slots=True)
class Table:
    """One embedding table, `rows` x `dim` elements of `itemsize` bytes.

    Tables of one rank share a variable if their width, itemsize, device and `key` are equal: put
    into `key` what else must be equal (combiner, class of a custom layer).
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
    """One input: ids that are looked up in `table` (its number).

    Attributes:
      hotness: ids a sample, the mean where they vary.
      combined: the rows of a sample are summed or averaged into one vector (a combiner); without,
        every id's row is an output.
    """

    table: int
    hotness: float = 1.0
    combined: bool = True

    @property
    def num_vectors(self) -> float:
        """Output vectors a sample."""
        return 1.0 if self.combined else self.hotness


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows [row_start, row_end) and columns [column_start, column_end) of a table, on a rank."""

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
    """Shards of one rank that share one variable, [rows, dim].

    Attributes:
      row_offsets: shard i starts at row `row_offsets[i]` of the variable.
    """

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
    """One look-up of a rank: a feature's ids, plus `row_offset`, in the rank's group `group`.

    Attributes:
      feature: number of the feature.
      group: number of the group in `Plan.groups(rank)`.
      row_offset: to be added to ids that count from the shard's first row.
      shard: what is looked up; its columns say where the result belongs in the feature's output.
    """

    feature: int
    group: int
    row_offset: int
    shard: Shard


@dataclass(frozen=True, slots=True)
class Piece:
    """A look-up's result on its way back: entry `position` of the rank's look-ups."""

    rank: int
    position: int
    column_start: int
    column_end: int


@dataclass(frozen=True)
class Hardware:
    """Speeds that weigh a plan's costs against each other; only their ratios change a plan.

    The defaults are about half of the published peaks of an A100-80GB in a DGX (2.0e12 B/s of
    device memory, 3.0e11 B/s of NVLink a direction) and of a GPU's eighth of its host's memory
    bandwidth (4.1e11 B/s of two sockets): rows are read at random.
    """

    device_bytes_per_s: float = 1.0e12
    host_bytes_per_s: float = 2.5e10
    exchange_bytes_per_s: float = 1.5e11


@dataclass(frozen=True)
class Limits:
    """Thresholds and memory, as `plan` describes them; None is no limit.

    Attributes:
      row_slice_threshold: 0 is no row slices, None those that memory asks for.
      device_memory_bytes: a rank's device memory for tables and optimizer state, after the reserve.
    """

    column_slice_threshold: int | None = None
    row_slice_threshold: int | None = None
    data_parallel_threshold: int | None = None
    cpu_offloading_threshold_bytes: int | None = None
    device_memory_bytes: int | None = None
    host_memory_bytes: int | None = None
