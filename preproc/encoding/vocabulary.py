"""Encoding of values as ids by a vocabulary, and vocabularies that grow."""

import datetime
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from preproc.encoding.arrow_columns import (
    FEW_VALUES,
    by_distinct,
    integer_texts,
    refuse,
    trimmed_texts,
)
from preproc.encoding.encodings import IdEncoding, smallest_dtype
from preproc.encoding.lists import FlatValues
from preproc.encoding.vocabulary_lookup import TextIndex

_BOOLEAN_WORDS = pa.array(["true", "1", "false", "0"])
_KINDS = {
    "values": pa.string(),
    "counts": pa.int64(),
    "last_seen": pa.date32(),
    "previous_ids": pa.int64(),
}


@dataclass(frozen=True, kw_only=True)
class Vocabulary(IdEncoding):
    """Values with ids from `first_id` on.

    Attributes:
        values: distinct canonical texts in the order of their ids, string.
        counts: occurrences of each in the training split, int64.
        first_id: 1: id 0 is missing and unknown values; 0: these are errors.
        is_integer: values are integers, so that texts such as `7.0` are `7`.
        threshold: occurrences that a value needed; a new one needs as many when it grows.
        last_seen: last day on which each value occurred, date32; None: not kept.
        previous_ids: id of each value before others were evicted, int64, null for a new value;
            None: no value was evicted.
        attributes: feature -> its id of each value, int64: features that follow from the value,
            such as the category of an item, and are made with it; 0 for id 0.
    """

    kind = "vocabulary"
    values: pa.Array
    counts: pa.Array
    first_id: int = 1
    is_integer: bool = False
    threshold: int = 0
    last_seen: pa.Array | None = None
    previous_ids: pa.Array | None = None
    attributes: Mapping[str, pa.Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_id not in (0, 1):
            raise self.invalid("first id", "0 or 1", self.first_id)
        arrays = {name: (getattr(self, name), kind) for name, kind in _KINDS.items()}
        arrays |= {f"attribute '{n}'": (ids, pa.int64()) for n, ids in self.attributes.items()}
        for name, (array, kind) in arrays.items():
            if array is not None and (array.type != kind or len(array) != len(self.values)):
                rule = f"{len(self.values):,} values of {kind}"
                raise self.invalid(name, rule, f"{len(array):,} of {array.type}")
        if self.attributes and not self.first_id:
            raise self.invalid("attributes", "the first id 1", self.first_id)

    @property
    def _num_values(self) -> int:
        return self.first_id + len(self.values)

    @property
    def features(self) -> tuple[str, ...]:
        """Features that the encoding makes: its own, and the attributes."""
        return (self.name, *self.attributes)

    def to_json(self) -> dict[str, Any]:
        """Returns the settings of the encoding, without arrays, as JSON has them."""
        fields = super().to_json()
        attributes = list(fields.pop("attributes"))
        return fields | ({"attributes": attributes} if attributes else {})

    @functools.cached_property
    def _attribute_ids(self) -> dict[str, NDArray]:
        """Ids of each attribute by the id of the value."""
        arrays = {name: array.to_numpy() for name, array in self.attributes.items()}
        return {name: np.append(0, ids).astype(self.dtype) for name, ids in arrays.items()}

    @functools.cached_property
    def index(self) -> TextIndex:
        """Index of the values."""
        try:
            return TextIndex(self.values)
        except ValueError as error:
            raise ValueError(f"feature '{self.name}': vocabulary: {error}") from None

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        ids = values.convert(lambda flat: self._ids(flat))
        return {self.name: ids} | {name: table[ids] for name, table in self._attribute_ids.items()}

    def positions(self, values: pa.Array) -> NDArray[np.int64]:
        """Returns the position of each of `plain` values in the vocabulary; -1 for others."""
        if pa.types.is_string(values.type):
            return by_distinct(values, self._find)
        return self._find(values)

    def _find(self, values: pa.Array) -> NDArray[np.int64]:
        # Missing values need no check: no vocabulary has their spellings.
        keys = trimmed_texts(values)
        if self.is_integer and pa.types.is_string(values.type):
            keys = integer_texts(keys)
        positions = self.index.find(keys)
        if self.boolean_positions is not None and (positions < 0).any():
            words = pc.index_in(pc.utf8_lower(keys), _BOOLEAN_WORDS)
            spelled = self.boolean_positions[pc.fill_null(words, -1).to_numpy()]
            positions = np.where(positions < 0, spelled, positions)
        return positions

    @functools.cached_property
    def boolean_positions(self) -> NDArray[np.int64] | None:
        """Position of the value for each of `_BOOLEAN_WORDS`, and -1 for other words.

        None unless the values contain both booleans, in any spelling, or are a single one.
        """
        if len(self.values) > FEW_VALUES:
            return None
        both = pc.index_in(pa.array(["true", "false"]), pc.utf8_lower(self.values))
        if both.null_count > (len(self.values) == 1):
            return None
        return np.append(np.repeat(pc.fill_null(both, -1).to_numpy(), 2), -1)

    def _ids(self, values: pa.Array) -> NDArray:
        positions = self.positions(values)
        if not self.first_id:
            examples = ", ".join(self.values.slice(0, 3).to_pylist())
            rule = f"one of the {len(self.values):,} values of the vocabulary, such as {examples}"
            refuse(positions < 0, values, rule)
        return (positions + self.first_id).astype(self._plain_dtype)

    def decode(self, values: ArrayLike) -> pa.Array:
        """Returns the texts of ids; null for id 0 where it is missing and unknown values."""
        positions = self._checked_ids(values) - self.first_id
        return self.values.take(pa.array(positions, mask=positions < 0))

    def grown(
        self,
        counts: pa.Table,
        least: int,
        date: datetime.date | None = None,
        evict_after: int | None = None,
    ) -> "Vocabulary":
        """Returns the vocabulary with the values of new training rows.

        Known values keep their order and add their counts. New ones follow, by falling count, ties
        by the bytes of their text. Evicted values leave no gap: later ids move up.

        Args:
            counts: the distinct values of the new rows that are not missing: canonical texts
                `value`, and `count`.
            least: occurrences that a new value needs.
            date: day of the new rows; None: days are not kept.
            evict_after: values that did not occur in the last `evict_after` days, that of `date`
                included, are evicted; None: all stay.

        Raises:
            ValueError: days are kept and `date` is absent, or values are to be evicted without it.
        """
        if date is None and (self.last_seen is not None or evict_after is not None):
            raise self.invalid("date", "the day of the new rows, as days are kept", date)
        texts = counts["value"].combine_chunks().cast(pa.string())
        occurrences = counts["count"].combine_chunks().cast(pa.int64())
        positions = self.positions(texts)
        is_known, added = positions >= 0, occurrences.to_numpy(zero_copy_only=False)
        new = pa.table({"value": texts, "count": occurrences}).filter(
            pa.array(~is_known & (added >= least))
        )
        new = new.sort_by([("count", "descending"), ("value", "ascending")]).combine_chunks()
        sums = self.counts.to_numpy().copy()
        np.add.at(sums, positions[is_known], added[is_known])  # a value has several spellings
        days = None if date is None else self._days(date, positions[is_known])
        stays = np.ones(len(self.values), bool)
        if evict_after is not None:
            stays = np.datetime64(date) - days < np.timedelta64(evict_after, "D")
        kept = np.flatnonzero(stays)
        num_new = new.num_rows
        previous_ids = last_seen = None
        if len(kept) < len(stays):
            ids = pa.array(kept + self.first_id, pa.int64())
            previous_ids = pa.concat_arrays([ids, pa.nulls(num_new, pa.int64())])
        if days is not None:
            today = np.full(num_new, np.datetime64(date))
            last_seen = pa.array(np.concatenate([days[kept], today]), pa.date32())
        new_values = pa.concat_arrays([pa.array([], pa.string()), *new["value"].chunks])
        num_ids = self.first_id + len(kept) + num_new
        wider = max((self.dtype, smallest_dtype(num_ids)), key=lambda name: np.dtype(name).itemsize)
        return replace(
            self,
            values=pa.concat_arrays([self.values.take(pa.array(kept)), new_values]),
            counts=pa.array(np.concatenate([sums[kept], new["count"].to_numpy()]), pa.int64()),
            last_seen=last_seen,
            previous_ids=previous_ids,
            dtype=wider,
        )

    def _days(self, date: datetime.date, positions: NDArray[np.int64]) -> NDArray[np.datetime64]:
        """Returns the last day of each value if those at `positions` occurred on a date."""
        today = np.datetime64(date)
        if self.last_seen is None:
            return np.full(len(self.values), today)
        days = self.last_seen.to_numpy(zero_copy_only=False).astype("datetime64[D]").copy()
        days[positions] = np.maximum(days[positions], today)
        return days
