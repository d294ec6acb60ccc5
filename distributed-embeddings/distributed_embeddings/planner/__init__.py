"""Embedding sharding planner: decides which rank stores which shard of each table."""

from distributed_embeddings.planner.estimators import Workload
from distributed_embeddings.planner.plan_text import report
from distributed_embeddings.planner.planner import STRATEGIES, plan
from distributed_embeddings.planner.sharding_plan import Plan
from distributed_embeddings.planner.storage_reservation import MemoryBudget
from distributed_embeddings.planner.types import (
    DATA_PARALLEL,
    DEVICE,
    HOST,
    ROW_SLICED,
    TABLE_PARALLEL,
    Feature,
    Group,
    Hardware,
    Limits,
    Lookup,
    PlanError,
    Shard,
    Table,
)

__all__ = [
    "DATA_PARALLEL",
    "DEVICE",
    "HOST",
    "ROW_SLICED",
    "STRATEGIES",
    "TABLE_PARALLEL",
    "Feature",
    "Group",
    "Hardware",
    "Limits",
    "Lookup",
    "MemoryBudget",
    "Plan",
    "PlanError",
    "Shard",
    "Table",
    "Workload",
    "plan",
    "report",
]
