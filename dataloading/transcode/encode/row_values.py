"""Values of raw rows as they are staged, checked, and the facts about them.

Engines share this module, so that values, messages and facts are equal: rows become staged columns
block by block, in any process; the facts of parts of the rows add up.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataloading.spec.feature_spec import LABEL_CHANNEL
from dataloading.table_input import values as table_values
from dataloading.table_input.files import Block
from dataloading.table_input.values import BadValue
from dataloading.transcode.candidate_lists import CandidateListCheck
from dataloading.transcode.encode.numericals import NumericalFeature
from dataloading.transcode.encode.texts import without_point
from dataloading.transcode.encode.vocabulary import bucket_ids
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.raw_spec import RawSpec
from dataloading.transcode.split import Route
from dataloading.transcode.stored_files import StagedRows


@dataclass
class RowFacts:
    """Facts about rows.

    Attributes:
        rows, clicks: split -> number of rows, and of labels that are 1.
        largest: feature whose cardinality follows from its ids -> the largest id.
        missing: (split, numerical feature) -> missing values.
    """

    rows: Counter[str] = field(default_factory=Counter)
    clicks: Counter[str] = field(default_factory=Counter)
    largest: dict[str, int] = field(default_factory=dict)
    missing: Counter[tuple[str, str]] = field(default_factory=Counter)

    def update(self, other: "RowFacts") -> None:
        """Adds the facts about other rows."""
        self.rows.update(other.rows)
        self.clicks.update(other.clicks)
        self.missing.update(other.missing)
        for name, largest in other.largest.items():
            self.see_ids(name, largest)

    def see_ids(self, feature: str, largest: int) -> None:
        """Takes in the largest of some ids."""
        self.largest[feature] = max(self.largest.get(feature, -1), largest)


@dataclass
class RowValues:
    """Staged columns of raw rows.

    Attributes:
        float_integers: file -> features whose values there need `without_point`.
        columns: feature -> staged column.
    """

    raw: RawSpec
    encoding: Encoding
    numericals: Mapping[str, NumericalFeature]  # by name
    float_integers: Mapping[str, set[str]]

    def __post_init__(self):
        self.columns = {name: f"c{number}" for number, name in enumerate(self.raw.features)}

    def read(
        self, split: str, block_of: Mapping[str, Block], facts: RowFacts
    ) -> dict[str, pa.Array]:
        """Returns by feature the values of all rows of blocks, checked, `hotness` per row.

        Raises:
            ValueError: a value breaks a rule; the message names file and row.
        """
        names = [name for name in self.raw.features if self.raw.has(split, name)]
        return {name: self._values(name, block_of[name], facts) for name in names}

    def staged(self, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
        columns = {}
        for name, column in values.items():
            if (hotness := self.raw.hotness(name)) > 1:
                column = pa.FixedSizeListArray.from_arrays(column, hotness)
            columns[self.columns[name]] = column
        return pa.record_batch(columns)

    def count(self, split: str, rows: pa.RecordBatch, facts: RowFacts) -> None:
        facts.rows[split] += rows.num_rows
        for name in self.numericals:
            values = staged_numbers(rows, self.columns[name])
            facts.missing[split, name] += int(np.count_nonzero(np.isnan(values)))
        for name in self.raw.channels[LABEL_CHANNEL]:
            if self.columns[name] in rows.schema.names:
                clicks = np.count_nonzero(staged_numbers(rows, self.columns[name]))
                facts.clicks[split] += int(clicks)

    def _values(self, feature: str, block: Block, facts: RowFacts) -> pa.Array:
        hotness = self.raw.hotness(feature)
        values_per_index = 1
        try:
            flat = table_values.flat(block.columns[feature], hotness)
            values_per_index = hotness
            if feature in self.float_integers.get(block.where, ()):
                flat = without_point(flat)
            values = self._converted(feature, flat, facts)
        except BadValue as bad:
            raise block.value_error(f"feature '{feature}'", bad, values_per_index) from None
        return values if isinstance(values, pa.Array) else pa.array(values)

    def _converted(self, feature: str, values: pa.Array, facts: RowFacts) -> np.ndarray | pa.Array:
        if feature in self.numericals:
            return self.numericals[feature].read(values)
        if feature in self.raw.channels[LABEL_CHANNEL]:
            return table_values.labels(values, np.int64)
        if feature in self.encoding.categorify:
            return table_values.texts(values)
        if feature in self.encoding.hash_buckets:
            buckets = self.encoding.hash_buckets[feature]
            return bucket_ids(table_values.texts(values), buckets)
        cardinality = self.raw.features[feature].get("cardinality")
        ids = table_values.ids(values, cardinality)
        if cardinality is None:
            facts.see_ids(feature, int(ids.max(initial=-1)))
        return ids

    def stored(
        self, rows: pa.RecordBatch, names: Iterable[str], split: str, first_row: int
    ) -> np.ndarray:
        """Returns the values of the features of a file, [rows, values].

        Args:
            names: features; indicators follow from the numerical features.
            first_row: number of the first row in the split, from 0.
        """
        arrays = []
        for name in names:
            values = staged_numbers(rows, self.columns[name])
            values = values.reshape(-1, self.raw.hotness(name))
            if name in self.numericals:
                arrays += self.numericals[name].stored(values, split, first_row)
            else:
                arrays.append(values)
        return np.concatenate(arrays, axis=1)


def stage_rows(
    values: RowValues,
    route: Route,
    rows: Iterable[list[Block]],
    first_row: int,
    path_of: Callable[[str], Path],
    facts: RowFacts,
    check: CandidateListCheck | None,
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Reads, checks and stages rows of a raw split; yields the staged rows of each target.

    Args:
        rows: from `first_row` on, counted from 0, as `split_blocks` yields them.
        path_of: target -> the file of its staged rows.
        facts: receives those about the rows.
    """
    with contextlib.ExitStack() as stack:
        staged = {
            target: stack.enter_context(contextlib.closing(StagedRows(path_of(target))))
            for target in route.targets
        }
        for blocks in rows:
            block_of = {name: block for block in blocks for name in block.columns}
            columns = values.read(route.source, block_of, facts)
            if check:
                check.add(columns, block_of)
            batch, rows_of = values.staged(columns), {}
            for target, mask in route.parts(first_row, block_of):
                rows_of[target] = batch if mask is None else batch.filter(pa.array(mask))
                values.count(target, rows_of[target], facts)
                staged[target].append(rows_of[target])
            yield rows_of
            first_row += batch.num_rows


def staged_values(rows: pa.RecordBatch, column: str) -> pa.Array:
    """Returns the values of all rows of a staged column."""
    values = rows.column(column)
    kinds = (pa.types.is_fixed_size_list, pa.types.is_list)
    return values.flatten() if any(kind(values.type) for kind in kinds) else values


def staged_numbers(rows: pa.RecordBatch, column: str) -> np.ndarray:
    """Returns the values of all rows of a staged column of numbers."""
    return staged_values(rows, column).to_numpy()
