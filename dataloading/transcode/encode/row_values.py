"""Values of raw rows as they are staged, checked, and the facts about them.

Engines share this module, so that values, messages and facts are equal: rows become staged columns
block by block, in any process; the facts of parts of the rows add up.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataloading.spec.feature_spec import LABEL_CHANNEL
from dataloading.table_input import values as table_values
from dataloading.table_input.files import Block
from dataloading.table_input.values import BadValue
from dataloading.transcode.encode.numericals import NumericalFeature
from dataloading.transcode.encode.texts import without_point
from dataloading.transcode.encode.vocabulary import bucket_ids
from dataloading.transcode.encoding import Encoding
from dataloading.transcode.raw_spec import RawSpec


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


class RowValues:
    """Staged columns of raw rows.

    Args:
        raw: the raw data.
        encoding: of its features.
        numerical_features: those of the channel `numerical`, by name.
        float_integers: file -> features whose values there need `without_point`.
    """

    def __init__(
        self,
        raw: RawSpec,
        encoding: Encoding,
        numerical_features: Mapping[str, NumericalFeature],
        float_integers: Mapping[str, set[str]],
    ):
        self._raw, self._encoding = raw, encoding
        self._numericals = numerical_features
        self._float_integers = float_integers
        self.columns = {name: f"c{number}" for number, name in enumerate(raw.features)}

    def read(
        self, split: str, block_of: Mapping[str, Block], facts: RowFacts
    ) -> dict[str, pa.Array]:
        """Returns by feature the values of all rows of blocks, checked, `hotness` per row.

        Raises:
            ValueError: a value breaks a rule; the message names file and row.
        """
        names = [name for name in self._raw.features if self._raw.has(split, name)]
        return {name: self._values(name, block_of[name], facts) for name in names}

    def staged(self, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Returns the staged columns of values."""
        return pa.record_batch(
            {self.columns[name]: self._rows_of(name, column) for name, column in values.items()}
        )

    def count(self, split: str, rows: pa.RecordBatch, facts: RowFacts) -> None:
        """Adds staged rows of a split of the data set to the facts."""
        facts.rows[split] += rows.num_rows
        for name in self._numericals:
            values = staged_numbers(rows, self.columns[name])
            facts.missing[split, name] += int(np.count_nonzero(np.isnan(values)))
        for name in self._raw.channels[LABEL_CHANNEL]:
            if self.columns[name] in rows.schema.names:
                clicks = np.count_nonzero(staged_numbers(rows, self.columns[name]))
                facts.clicks[split] += int(clicks)

    def _values(self, feature: str, block: Block, facts: RowFacts) -> pa.Array:
        hotness = self._raw.hotness(feature)
        values_per_index = 1
        try:
            flat = table_values.flat(block.columns[feature], hotness)
            values_per_index = hotness
            if feature in self._float_integers.get(block.where, ()):
                flat = without_point(flat)
            values = self._converted(feature, flat, facts)
        except BadValue as bad:
            raise block.value_error(f"feature '{feature}'", bad, values_per_index) from None
        return values if isinstance(values, pa.Array) else pa.array(values)

    def _converted(self, feature: str, values: pa.Array, facts: RowFacts) -> np.ndarray | pa.Array:
        if feature in self._numericals:
            return self._numericals[feature].read(values)
        if feature in self._raw.channels[LABEL_CHANNEL]:
            return table_values.labels(values, np.int64)
        if feature in self._encoding.categorify:
            return table_values.texts(values)
        if feature in self._encoding.hash_buckets:
            buckets = self._encoding.hash_buckets[feature]
            return bucket_ids(table_values.texts(values), buckets)
        cardinality = self._raw.features[feature].get("cardinality")
        ids = table_values.ids(values, cardinality)
        if cardinality is None:
            facts.see_ids(feature, int(ids.max(initial=-1)))
        return ids

    def _rows_of(self, feature: str, values: pa.Array) -> pa.Array:
        hotness = self._raw.hotness(feature)
        return values if hotness == 1 else pa.FixedSizeListArray.from_arrays(values, hotness)

    def stored(
        self, rows: pa.RecordBatch, names: Iterable[str], split: str, first_row: int
    ) -> np.ndarray:
        """Returns the values of the features of a file, [rows, values].

        Args:
            rows: staged rows of a split.
            names: features; indicators follow from the numerical features.
            split: of the data set.
            first_row: number of the first row in the split, from 0.
        """
        arrays = []
        for name in names:
            values = staged_numbers(rows, self.columns[name])
            values = values.reshape(-1, self._raw.hotness(name))
            if name in self._numericals:
                arrays += self._numericals[name].stored(values, split, first_row)
            else:
                arrays.append(values)
        return np.concatenate(arrays, axis=1)


def staged_values(rows: pa.RecordBatch, column: str) -> pa.Array:
    """Returns the values of all rows of a staged column."""
    values = rows.column(column)
    kinds = (pa.types.is_fixed_size_list, pa.types.is_list)
    return values.flatten() if any(kind(values.type) for kind in kinds) else values


def staged_numbers(rows: pa.RecordBatch, column: str) -> np.ndarray:
    """Returns the values of all rows of a staged column of numbers."""
    return staged_values(rows, column).to_numpy()
