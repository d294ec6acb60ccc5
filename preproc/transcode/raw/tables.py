"""Raw rows of a run: their tables in the engine, and what their columns hold."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ibis.expr.types as ir

from dataloading.spec.feature_spec import TRAIN
from preproc.engines.engine import Engine, count_rows
from preproc.fitting.infer import NUMBERS, ColumnFacts, column_facts, count_values
from preproc.fitting.whole_numbers import FEW_VALUES, KindChoice, choose, measure
from preproc.transcode.write import SPLIT


@dataclass
class RawTables:
    """Tables of the raw splits.

    Attributes:
        tables: raw split -> its rows; those that are divided have the column `SPLIT`.
        missing: spellings of missing values.
    """

    engine: Engine
    tables: dict[str, ir.Table]
    missing: tuple[str, ...]
    _counts: dict[str, ir.Table] = field(default_factory=dict)
    _facts: dict[str, ColumnFacts] = field(default_factory=dict)

    @functools.cached_property
    def num_rows(self) -> dict[str, int]:
        """Raw split -> number of rows."""
        return {split: count_rows(self.engine, table) for split, table in self.tables.items()}

    @property
    def train_rows(self) -> ir.Table:
        """The rows of train; those of the first split where there is no train."""
        table = self.tables[TRAIN if TRAIN in self.tables else next(iter(self.tables))]
        return table.filter(table[SPLIT] == 0) if SPLIT in table.columns else table

    def counts(self, columns: Sequence[str]) -> Mapping[str, ir.Table]:
        """Returns the different values of columns in train; see `count_values`."""
        for name in columns:
            if name not in self._counts:
                stored = f"values_{len(self._counts)}"
                self._counts[name] = count_values(
                    self.engine, self.train_rows, name, self.missing, stored
                )
        return self._counts

    def facts(self, columns: Sequence[str], lists: Sequence[str] = ()) -> Mapping[str, ColumnFacts]:
        """Returns the facts of columns in train; `lists`: those that are known to be lists."""
        counts = self.counts(columns)
        for name in columns:
            if name not in self._facts:
                self._facts[name] = column_facts(
                    self.engine, counts[name], self.missing, name in lists
                )
        return self._facts

    def choices(self, columns: Sequence[str], label: str | None) -> dict[str, KindChoice]:
        """Returns which columns of whole numbers hold ids; see `whole_numbers`."""
        facts = self.facts(columns)
        whole = [n for n in columns if facts[n].kind == NUMBERS and facts[n].is_whole]
        many = [n for n in whole if facts[n].distinct > FEW_VALUES]
        advantages: dict[str, float | None] = {}
        if label is not None and many:
            num_rows = self.num_rows[TRAIN]
            advantages = measure(self.engine, self.train_rows, many, label, self.missing, num_rows)
        return {
            name: choose(name, facts[name].present, facts[name].distinct, advantages.get(name))
            for name in whole
        }
