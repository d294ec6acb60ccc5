"""Sharding plan: shards, variables and lookups of every rank."""

from dataclasses import dataclass, field
from functools import cached_property

from distributed_embeddings.planner.estimators import RankCost, Workload, rank_costs
from distributed_embeddings.planner.partitioners import row_bounds
from distributed_embeddings.planner.types import (
    DATA_PARALLEL,
    ROW_SLICED,
    TABLE_PARALLEL,
    Feature,
    Group,
    Limits,
    Lookup,
    Shard,
    Table,
)


@dataclass(frozen=True)
class Plan:
    """Rank and memory of every row and column of every table, and the lookups of every rank.

    Tables and features are numbered in the order of the workload.

    Attributes:
        strategy: The strategy that placed the table-parallel shards.
        table_shards: For each rank its table-parallel shards; the columns of a table in column
            slices increase with the rank.
        data_parallel_tables: Tables that every rank replicates.
        row_sliced_tables: Tables of which every rank has a run of rows, see `row_bounds`.
        objective: See `estimators.Objective`; less is better.
        memory_note: Description of the memory that the plan is made for, and of what it changed.
    """

    workload: Workload
    limits: Limits
    strategy: str
    table_shards: tuple[tuple[Shard, ...], ...]
    data_parallel_tables: tuple[int, ...]
    row_sliced_tables: tuple[int, ...]
    objective: float
    memory_note: str = field(default="", compare=False)

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.workload.tables

    @property
    def features(self) -> tuple[Feature, ...]:
        return self.workload.features

    @property
    def world_size(self) -> int:
        return self.workload.world_size

    @cached_property
    def table_parallel_tables(self) -> tuple[int, ...]:
        others = {*self.data_parallel_tables, *self.row_sliced_tables}
        return tuple(t for t in range(len(self.tables)) if t not in others)

    def features_of(self, tables: tuple[int, ...]) -> tuple[int, ...]:
        """Features that read any of `tables`, in order."""
        chosen = set(tables)
        return tuple(f for f, feature in enumerate(self.features) if feature.table in chosen)

    @cached_property
    def input_ids_list(self) -> tuple[tuple[int, ...], ...]:
        """For each rank the features that it looks up in table-parallel shards, shard by shard."""
        of_table = self.workload.features_of
        return tuple(
            tuple(f for shard in shards for f in of_table[shard.table])
            for shards in self.table_shards
        )

    def row_bounds(self, table: int) -> tuple[int, ...]:
        """Rank r holds rows [bounds[r], bounds[r + 1]) of a row-sliced table; runs may be empty."""
        return tuple(row_bounds(self.tables[table].rows, self.world_size))

    def local_shards(self, rank: int) -> tuple[Shard, ...]:
        """All non-empty shards of a rank: data-parallel, table-parallel, row-sliced."""
        shards = []
        for t in self.data_parallel_tables:
            table = self.tables[t]
            shards.append(Shard(t, rank, 0, table.rows, 0, table.dim, DATA_PARALLEL))
        shards += self.table_shards[rank]
        for t in self.row_sliced_tables:
            first, end = self.row_bounds(t)[rank : rank + 2]
            if end > first:
                shards.append(Shard(t, rank, first, end, 0, self.tables[t].dim, ROW_SLICED))
        return tuple(shards)

    def groups(self, rank: int) -> tuple[Group, ...]:
        """A rank's variables: shards of one kind, device, width, itemsize and key.

        Tables that no feature reads have variables of their own, without gradient: Adam moves all
        rows of a variable that has one.
        """
        members: dict[tuple[str, str, int, int, str, bool], list[Shard]] = {}
        for s in self.local_shards(rank):
            table = self.tables[s.table]
            is_read = bool(self.workload.features_of[s.table])
            shared = (s.kind, s.device, s.columns, table.itemsize, table.key, is_read)
            members.setdefault(shared, []).append(s)
        groups = []
        for (kind, device, dim, itemsize, key, _), shards in members.items():
            offsets, rows = [], 0
            for s in shards:
                offsets.append(rows)
                rows += s.rows
            groups.append(
                Group(kind, device, rows, dim, itemsize, key, tuple(shards), tuple(offsets))
            )
        return tuple(groups)

    def lookups(self, rank: int, kind: str = TABLE_PARALLEL) -> tuple[Lookup, ...]:
        """A rank's lookups of one kind; of the table-parallel kind, in `input_ids_list` order."""
        location = {
            shard: (g, offset)
            for g, group in enumerate(self.groups(rank))
            for shard, offset in zip(group.shards, group.row_offsets, strict=True)
        }
        return tuple(
            Lookup(f, *location[shard], shard)
            for shard in self.local_shards(rank)
            if shard.kind == kind
            for f in self.workload.features_of[shard.table]
        )

    @cached_property
    def column_slices(self) -> tuple[tuple[Shard, ...], ...]:
        """For each table its table-parallel shards in the order of the columns."""
        slices: list[list[Shard]] = [[] for _ in self.tables]
        for shards in self.table_shards:
            for s in shards:
                slices[s.table].append(s)
        return tuple(tuple(sorted(row, key=lambda s: s.column_start)) for row in slices)

    @cached_property
    def costs(self) -> tuple[RankCost, ...]:
        """Memory and estimated time of lookups of each rank."""
        local_shards = [self.local_shards(rank) for rank in range(self.world_size)]
        return tuple(rank_costs(self.workload, local_shards))
