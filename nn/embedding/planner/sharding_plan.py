"""A plan as a layer obeys it: shards, variables, look-ups and the way back of their results."""

from dataclasses import dataclass, field
from functools import cached_property

from nn.embedding.planner.cost import RankCost, Workload, rank_costs
from nn.embedding.planner.placement import row_bounds
from nn.embedding.planner.report import report
from nn.embedding.planner.types import (
    DATA_PARALLEL,
    ROW_SLICED,
    TABLE_PARALLEL,
    Feature,
    Group,
    Limits,
    Lookup,
    Piece,
    Shard,
    Table,
)


@dataclass(frozen=True)
class Plan:
    """Where every row and column of every table lives, and who looks up what.

    Ranks, tables and features are numbers in the order in which `plan` got them.

    Attributes:
      strategy: the placement that was taken.
      table_shards: for each rank its table-parallel shards, in a stable order; of a table cut into
        column slices, columns rise with the rank.
      data_parallel_tables: tables of which every rank has a copy.
      row_sliced_tables: tables of which every rank has a run of rows, see `row_bounds`.
      objective: see plan_cost.Objective; less is better.
      memory_note: description of the memory that the plan is made for, and of what it changed.
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
        """The features that read any of `tables`, in order."""
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
        """All shards of a rank: data-parallel, table-parallel, row-sliced; none is empty."""
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

        Tables that no feature reads have variables of their own. They have no gradient, so that no
        optimizer moves them, while Adam moves all rows of a variable that has one.
        """
        members: dict[tuple, list[Shard]] = {}
        for s in self.local_shards(rank):
            table = self.tables[s.table]
            is_read = bool(self.workload.features_of[s.table])
            kind = (s.kind, s.device, s.columns, table.itemsize, table.key, is_read)
            members.setdefault(kind, []).append(s)
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
        """A rank's look-ups of one kind; of the table-parallel kind, in `input_ids_list` order."""
        place = {
            shard: (g, offset)
            for g, group in enumerate(self.groups(rank))
            for shard, offset in zip(group.shards, group.row_offsets, strict=True)
        }
        return tuple(
            Lookup(f, *place[shard], shard)
            for shard in self.local_shards(rank)
            if shard.kind == kind
            for f in self.workload.features_of[shard.table]
        )

    @cached_property
    def output_pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """For each feature the look-ups whose results, side by side, are its output.

        One piece for a whole table, several for column slices, in the order of the columns; none
        for a feature of a data-parallel or row-sliced table.
        """
        pieces: list[list[Piece]] = [[] for _ in self.features]
        for rank, shards in enumerate(self.table_shards):
            position = 0
            for s in shards:
                for f in self.workload.features_of[s.table]:
                    pieces[f].append(Piece(rank, position, s.column_start, s.column_end))
                    position += 1
        return tuple(tuple(sorted(of, key=lambda p: p.column_start)) for of in pieces)

    @cached_property
    def column_slices(self) -> tuple[tuple[Shard, ...], ...]:
        """For each table its table-parallel shards in the order of the columns."""
        slices: list[list[Shard]] = [[] for _ in self.tables]
        for shards in self.table_shards:
            for s in shards:
                slices[s.table].append(s)
        return tuple(tuple(sorted(of, key=lambda s: s.column_start)) for of in slices)

    @cached_property
    def costs(self) -> tuple[RankCost, ...]:
        """Memory and estimated time of look-ups of each rank."""
        local_shards = [self.local_shards(rank) for rank in range(self.world_size)]
        return tuple(rank_costs(self.workload, local_shards))

    def report(
        self,
        max_ranks: int = 32,
        *,
        ranks_per_machine: int | None = None,
        dense_bytes: float | None = None,
    ) -> str:
        """The plan as text: a line a rank, totals, imbalance, the network, what each rank holds.

        Args:
          max_ranks: show so many ranks at most; totals and imbalance are of all.
          ranks_per_machine: consecutive ranks that share a machine, of which the last may have
            fewer; None: one machine has all.
          dense_bytes: gradients of all weights that are not in tables; None: not known here.

        Raises:
          ValueError: ranks_per_machine below 1.
        """
        return report(self, max_ranks, ranks_per_machine, dense_bytes)
