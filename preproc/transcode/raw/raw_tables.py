"""Raw rows of a run: their tables in the engine, and what their columns hold."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ibis
import ibis.expr.types as ir

from dataloading.spec.feature_spec import TRAIN
from preproc.encoding.encodings import Label
from preproc.engines.engine import SPLIT, Engine, count_rows
from preproc.fitting.continuous import continuous_columns, continuous_facts, sample_of
from preproc.fitting.infer import (
    NUMBERS,
    ColumnFacts,
    column_facts,
    count_values,
)
from preproc.fitting.near_numbers import refuse_near_numbers
from preproc.fitting.whole_numbers import (
    FEW_VALUES,
    KindChoice,
    choose,
    has_id_name,
    measure,
)


@dataclass
class RawTables:
    """Tables of the raw splits.

    Attributes:
        tables: raw split -> its rows; those that are divided have the column `SPLIT`.
        missing: spellings of missing values.
        label: of clicks.
    """

    engine: Engine
    tables: dict[str, ir.Table]
    missing: tuple[str, ...]
    label: Label | None = None
    _facts: dict[str, ColumnFacts] = field(default_factory=dict)
    _counts: dict[str, ir.Table] = field(default_factory=dict)

    @functools.cached_property
    def num_rows(self) -> dict[str, int]:
        """Raw split -> number of rows."""
        return {split: count_rows(self.engine, table) for split, table in self.tables.items()}

    @property
    def fitted(self) -> str:
        """`train`; the first split where there is no train."""
        return TRAIN if TRAIN in self.tables else next(iter(self.tables))

    @property
    def train_rows(self) -> ir.Table:
        """The rows of `fitted`."""
        table = self.tables[self.fitted]
        return table.filter(table[SPLIT] == 0) if SPLIT in table.columns else table

    def train_sample(self, most: int) -> ir.Table:
        """Returns at most this number of the rows of train, the same ones on every engine."""
        table = sample_of(self.tables[self.fitted], self.most_rows, most)
        return table.filter(table[SPLIT] == 0) if SPLIT in table.columns else table

    def numbered(self, columns: Sequence[str]) -> ir.Table:
        """Returns columns of all rows and the number of the split of each as `SPLIT`.

        That of rows that are divided is theirs, that of others the position of their raw split,
        train first.
        """
        first = self.tables[self.fitted]
        if SPLIT in first.columns:
            return first.select(SPLIT, *columns)
        tables = [first, *(own for own in self.tables.values() if own is not first)]
        parts = [
            table.select(*columns).mutate(**{SPLIT: ibis.literal(i, "int64")})
            for i, table in enumerate(tables)
        ]
        return ibis.union(*parts) if len(parts) > 1 else parts[0]

    @property
    def most_rows(self) -> int:
        """An upper bound of the number of `train_rows`."""
        return self.num_rows[self.fitted]

    def counts(self, column: str) -> ir.Table:
        """Returns the different values of a column in train, which are counted once."""
        if column not in self._counts:
            rows, name = self.train_rows, f"values_{len(self._counts)}"
            self._counts[column] = count_values(self.engine, rows, column, self.missing, name)
        return self._counts[column]

    def num_distinct(self, column: str) -> float:
        """Returns the number of different values of a column in train, 0 where it is not known."""
        facts = self._facts.get(column)
        return 0 if facts is None else math.inf if facts.is_continuous else facts.distinct

    def facts(
        self, columns: Sequence[str], lists: Sequence[str] | None = None
    ) -> Mapping[str, ColumnFacts]:
        """Returns the facts of columns in train; `lists`: those that are lists; None: inferred."""
        engine, missing = self.engine, self.missing
        others = [n for n in columns if n not in self._facts and n not in (lists or ())]
        table = self.tables[self.fitted]
        for name in continuous_columns(engine, table, others, missing, self.most_rows):
            if facts := continuous_facts(engine, self.train_rows, name, missing):
                self._facts[name] = facts
        for name in columns:
            if name not in self._facts:
                is_list = None if lists is None else name in lists
                self._facts[name] = column_facts(engine, self.counts(name), missing, is_list)
        return self._facts

    def refuse_near_numbers(self, columns: Sequence[str]) -> None:
        """Raises ValueError where a few texts make ids of a column of numbers; `columns`: those
        whose kind is not stated."""
        for name in columns:
            near = self.facts(columns)[name].near_numbers
            if near is not None and near.is_error and not has_id_name(name):
                table = self.tables[self.fitted]
                refuse_near_numbers(self.engine, table, name, near, self.missing)

    def choices(self, columns: Sequence[str]) -> dict[str, KindChoice]:
        """Returns which columns of whole numbers hold ids; see `whole_numbers`."""
        facts = self.facts(columns)
        whole = [n for n in columns if facts[n].kind == NUMBERS and facts[n].is_whole]
        many = [n for n in whole if facts[n].distinct > FEW_VALUES]
        advantages: dict[str, float | None] = {}
        if self.label is not None and many:
            advantages = measure(
                self.engine, self.train_rows, many, self.label, self.missing, self.most_rows
            )
        return {
            name: choose(name, facts[name].present, facts[name].distinct, advantages.get(name))
            for name in whole
        }
