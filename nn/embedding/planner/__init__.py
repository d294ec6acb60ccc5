"""Embedding sharding planner: decides which rank stores which shard of each table."""

from nn.embedding.planner.estimators import Workload
from nn.embedding.planner.planner import STRATEGIES, plan
from nn.embedding.planner.report import report
from nn.embedding.planner.sharding_plan import Plan
from nn.embedding.planner.storage_reservation import MemoryBudget
from nn.embedding.planner.types import (
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
    make_features,
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
    "make_features",
    "plan",
    "report",
]
