"""Flags of the distribution over processes."""

from dataclasses import dataclass

from config.flag import OWN, Rules, excludes, requires

_MODEL = excludes("plan_only")
_ALL_IDS = excludes("model_parallel_input")

_PLAN = (requires("plan_only"),)


@dataclass(frozen=True)
class DistributionConfig:
    """Sharding of the embedding tables over ranks (horovodrun -np N, mpirun, srun)."""

    dist_strategy: str = Rules(
        choices=("auto", "cost", "basic", "memory_balanced", "memory_optimized")
    ).flag("auto", "placement strategy; auto chooses the better one of cost and memory_balanced")
    column_slice_threshold: int | None = Rules(at_least=1).flag(
        None,
        "elements above which tables are sharded column-wise; by default those tables that do not "
        "fit the memory otherwise",
    )
    row_slice_threshold: int | None = Rules(at_least=1, needs=(_ALL_IDS,)).flag(
        None,
        "elements from which tables are sharded row-wise over all ranks; by default the largest "
        "tables if they do not fit the memory otherwise",
    )
    data_parallel_threshold: int | None = Rules(at_least=1, needs=(_ALL_IDS,)).flag(
        None, "elements up to which tables are replicated (data parallel)"
    )
    cpu_offloading_threshold_gb: float | None = Rules(at_least=0).flag(
        None, "GB of tables per device; the largest tables above it are placed in host memory"
    )
    exchange_dtype: str = Rules(choices=("auto", "float32", "bfloat16", "float16")).flag(
        "auto",
        "dtype of exchanged embedding vectors; auto is that of the model's activations",
    )
    rank_timeout_s: float = Rules(resume=OWN, at_least=1, needs=(_MODEL,)).flag(
        600.0, "seconds after which a rank that does not respond ends the training"
    )
    model_parallel_input: bool = Rules(part="ranking").flag(
        False,
        "each rank reads the ids of its own tables; it does so for the whole global batch, which "
        "saves the exchange of ids (excludes row-wise sharded and replicated tables)",
    )
    plan_only: bool = Rules(resume=OWN).flag(
        False,
        "print the sharding plan and exit; the plan names the rank that stores each shard of each "
        "table; nothing is allocated",
    )
    plan_world_size: int = Rules(resume=OWN, at_least=1, at_most=4096, needs=_PLAN).flag(
        8, "world size of the plan (--plan_only)"
    )
    plan_ranks_per_machine: int = Rules(resume=OWN, at_least=1, needs=_PLAN).flag(
        8, "ranks per machine assumed by the plan; the last machine may have fewer (--plan_only)"
    )
    plan_device_memory_gb: float | None = Rules(at_least=0).flag(
        None,
        "memory per device; in GB (10^9 bytes), of which the plan may use 85 %; by default that "
        "of the GPU, without one the available memory divided by the number of processes "
        "(--plan_only: 80). A plan for a stated memory also shards tables to balance the load",
    )
    plan_host_memory_gb: float | None = Rules(at_least=0).flag(
        None,
        "host memory per process; in GB, for tables that do not fit its device; by default 85 % "
        "of the available memory divided by the number of processes (with GPUs; --plan_only: "
        "none)",
    )
