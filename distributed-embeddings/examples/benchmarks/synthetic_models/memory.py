"""Memory of a synthetic model: its plan, and whether it fits this machine."""

from pathlib import Path

from distributed_embeddings import planner
from distributed_embeddings.collectives import World
from distributed_embeddings.planner.report import format_bytes
from model_sizes import ModelSizes

# Of the available memory; the rest is for activations, exchange buffers and TensorFlow.
USABLE = 0.85
STATE_BYTES = {"sgd": 0, "adagrad": 4, "adam": 8}  # per element of a table


def make_plan(
    sizes: ModelSizes,
    world_size: int,
    limits: planner.Limits,
    *,
    optimizer: str,
    batch_size: int,
    dp_input: bool,
) -> planner.Plan:
    """Returns the plan that the benchmark's `DistributedEmbedding` makes, with its costs."""
    tables = [planner.Table(f"t{t}", rows, dim) for t, (rows, dim) in enumerate(sizes.tables)]
    if not dp_input:  # of model-parallel input every table is column-sliced or whole
        limits = planner.Limits(limits.column_slice_threshold)
    workload = planner.Workload(
        tuple(tables),
        planner.make_features(*zip(*sizes.features, strict=True)),
        world_size,
        global_batch_size=batch_size,
        state_bytes_per_element=STATE_BYTES[optimizer],
        # Adam moves all rows in each step.
        scratch_bytes_per_element=8 if optimizer == "adam" else 0,
        dp_input=dp_input,
    )
    return planner.plan(workload, limits, "memory_balanced")


def available_bytes() -> int | None:
    """Returns the host memory that processes can still allocate; None: unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kib = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    limits = [1024 * int(kib)]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container
        limit = Path("/sys/fs/cgroup") / name
        if limit.exists() and limit.read_text().strip().isdigit():
            limits.append(int(limit.read_text()))
    return min(limits)


def why_too_large(plan: planner.Plan, world: World, memory_bytes: float | None) -> str | None:
    """Returns the error for tables that do not fit, or None.

    Args:
        plan: Plan of the tables.
        world: The ranks that share this machine.
        memory_bytes: Memory of each rank; None: the ranks of this machine share what is available.
    """
    if memory_bytes is None:
        total = available_bytes()
        if total is None:
            return None
        memory_bytes = USABLE * total / world.local_size
    largest = max(cost.memory_bytes for cost in plan.costs)
    if largest <= memory_bytes:
        return None
    needed = sum(cost.memory_bytes for cost in plan.costs)
    return (
        f"the model does not fit: the fullest of {world.size} ranks needs {format_bytes(largest)} "
        f"for tables and optimizer state ({format_bytes(needed)} in all), and "
        f"{format_bytes(memory_bytes)} per rank are available. Possible solutions: 1) start at "
        f"least {-int(-needed // memory_bytes)} ranks with this much memory each; 2) cut large "
        "tables with a lower --column_slice_threshold; 3) choose a smaller --model; 4) print the "
        "plan of N ranks with --plan_only --plan_world_size N"
    )
