"""Facts of the columns of a data set, and of the interactions that they hold.

A chunk is read once, a block of rows at a time. DuckDB counts the ids, so that memory stays bounded
for any cardinality and number of rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataloading.engines.duckdb_session import DuckDBSession
from dataloading.formats.raw_binary import BinaryChunk
from dataloading.interactions.candidate_rules import broken_lists, list_length_key
from dataloading.interactions.stored import length_of_lists, stores_labels
from dataloading.pipeline.chunk_reader import OpenChunk, spans_of
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import (
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    TRAIN,
    USER_CHANNEL,
    Chunk,
    FeatureSpec,
)

_BLOCK_BYTES = 8 << 20
_NUM_TOP = 5
_LARGEST = float(np.finfo(np.float32).max)
_FEW = 0.5  # share of items in use below which ids are worth making dense
_ID_SCHEMA = pa.schema([("feature", pa.int32()), ("id", pa.int64())])


@dataclass
class IdFacts:
    """A column of ids.

    Attributes:
        num_values: values of all rows.
        num_outside: those of them that are out of range.
        num_used: different ids in range that occur.
        top: (id, share of all values) of the most frequent ids in range.
    """

    feature: str
    cardinality: int
    num_values: int = 0
    num_outside: int = 0
    num_used: int = 0
    top: list[tuple[int, float]] = field(default_factory=list)

    def add(self, values: np.ndarray) -> np.ndarray:
        """Takes in values [rows, hotness]; returns those in range, int64 [n]."""
        ids = values.ravel().astype(np.int64)
        inside = ids[(ids >= 0) & (ids < self.cardinality)]
        self.num_values += len(ids)
        self.num_outside += len(ids) - len(inside)
        return inside

    @property
    def faults(self) -> list[str]:
        """Faults that a loader refuses."""
        if not self.num_outside:
            return []
        return [
            f"feature '{self.feature}': {self.num_outside} ids outside of [0, {self.cardinality})"
        ]


@dataclass
class NumberFacts:
    """A column of numbers. Infinities count for smallest and largest, not for the mean."""

    feature: str
    channel: str = ""
    smallest: float = math.inf
    largest: float = -math.inf
    num_nan: int = 0
    num_infinite: int = 0
    num_not_binary: int = 0  # labels other than 0 and 1
    _sum: float = 0.0
    _num_finite: int = 0

    @property
    def mean(self) -> float:
        """The mean of the finite values; NaN without one."""
        return self._sum / self._num_finite if self._num_finite else math.nan

    @property
    def faults(self) -> list[str]:
        """Faults that a loader refuses: wrong labels, numerical values that float32 cannot hold."""
        faults = []
        if self.num_not_binary:
            faults.append(f"{self.num_not_binary} labels other than 0 and 1")
        bad = self.num_nan + self.num_infinite
        if self.channel == NUMERICAL_CHANNEL and bad:
            faults.append(f"{bad} numerical values that are not finite")
        # As a float: NumPy 2 would compare in float32.
        elif self.channel == NUMERICAL_CHANNEL and max(self.largest, -self.smallest) > _LARGEST:
            faults.append("numerical values that float32 cannot hold")
        return [f"feature '{self.feature}': {fault}" for fault in faults]

    def add(self, values: np.ndarray) -> None:
        """Takes in values [rows, hotness]."""
        if self.channel == LABEL_CHANNEL:
            self.num_not_binary += int(np.count_nonzero((values != 0) & (values != 1)))
        if values.dtype == np.float16:
            values = values.astype(np.float32)
        finite = np.isfinite(values)
        self._num_finite += int(finite.sum())
        self._sum += float(values.sum(dtype=np.float64, where=finite))
        present = values[~np.isnan(values)]
        self.num_nan += values.size - present.size
        self.num_infinite += present.size - int(finite.sum())
        if present.size:
            self.smallest = min(self.smallest, float(present.min()))
            self.largest = max(self.largest, float(present.max()))


def chunk_facts(
    spec: FeatureSpec, chunk: Chunk, stored: OpenChunk, session: DuckDBSession
) -> list[IdFacts | NumberFacts]:
    """Returns the facts of the features of a chunk, ids or, without a cardinality, numbers.

    Args:
        stored: the open files of the chunk, which hold whole rows.
        session: counts the ids.

    Raises:
        ValueError: a damaged record.
    """
    facts: list[IdFacts | NumberFacts] = []
    for name in chunk.features:
        channels = (LABEL_CHANNEL, NUMERICAL_CHANNEL)
        channel = next((c for c in channels if name in spec.channel_spec.get(c, ())), "")
        if channel or "cardinality" not in spec.feature_spec[name]:
            facts.append(NumberFacts(name, channel))
        else:
            facts.append(IdFacts(name, spec.cardinality(name)))
    failures: list[ValueError] = []

    def ids_in_range() -> Iterator[pa.RecordBatch]:
        try:
            for columns in column_blocks(spec, chunk, stored):
                for number, column in enumerate(facts):
                    ids = column.add(columns[column.feature])
                    if ids is not None:
                        numbers = np.full(len(ids), number, np.int32)
                        yield pa.record_batch([pa.array(numbers), pa.array(ids)], _ID_SCHEMA)
        except ValueError as error:  # DuckDB would report its text only
            failures.append(error)

    stream = pa.RecordBatchReader.from_batches(_ID_SCHEMA, ids_in_range())
    session.connection.register("ids", stream).execute(
        "CREATE OR REPLACE TEMP TABLE counts AS "
        "SELECT feature, id, count(*) AS count FROM ids GROUP BY ALL"
    )
    if failures:
        raise failures[0]
    for number, column in enumerate(facts):
        if isinstance(column, IdFacts):
            rows = session.connection.execute(
                f"SELECT id, count, count(*) OVER () FROM counts WHERE feature = {number} "
                f"ORDER BY count DESC, id LIMIT {_NUM_TOP}"
            ).fetchall()
            column.num_used = rows[0][2] if rows else 0
            column.top = [(i, count / column.num_values) for i, count, _ in rows]
    return facts


def column_blocks(
    spec: FeatureSpec, chunk: Chunk, stored: OpenChunk
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the rows of a chunk: feature -> [rows, hotness]; [ids, 1] of one whose rows differ in
    length."""
    spans = spans_of(spec, [chunk])
    block_rows = max(1, _BLOCK_BYTES // spec.sample_bytes(chunk))
    for start in range(0, stored.num_samples, block_rows):
        rows = stored.read(range(start, min(start + block_rows, stored.num_samples)))
        if isinstance(rows, Ragged):
            yield {chunk.features[0]: rows.values[:, None]}
        else:
            yield {name: rows[:, span.begin : span.end] for name, span in spans.items()}


def has_interactions(spec: FeatureSpec) -> bool:
    """Returns whether rows are users and items."""
    return {USER_CHANNEL, ITEM_CHANNEL} <= spec.channel_spec.keys()


def interactions_of(spec: FeatureSpec, split: str, rows: dict[int, int], faults: list[str]) -> str:
    """Returns the kind of the rows of a split, for people; appends to `faults`. `rows` are those
    of the chunks that can be read."""
    chunks = spec.source_spec[split]
    of_other_types = any(chunk.type != "split_binary" for chunk in chunks)
    if of_other_types or len(rows) < len(chunks) or len(set(rows.values())) > 1:
        return ""  # which is reported elsewhere
    try:
        length = length_of_lists(spec, split)
    except ValueError as error:
        if str(error) not in faults:  # of another split
            faults.append(str(error))
        return ""
    if length is not None:
        faults += _list_faults(spec, split, length, rows[0])
        return f", {rows[0] // length:,} candidate lists of {length:,}"
    if stores_labels(spec, split):
        (label,) = spec.channel(LABEL_CHANNEL)
        num_negatives = np.count_nonzero(_column(spec, split, label, rows[0]) == 0)
        if num_negatives:
            return f", {num_negatives:,} of them stored negatives (label 0)"
    return ", each an interaction"


def _list_faults(spec: FeatureSpec, split: str, length: int, num_rows: int) -> list[str]:
    (user,), (label,) = spec.channel(USER_CHANNEL), spec.channel(LABEL_CHANNEL)
    users, labels = (_column(spec, split, name, num_rows) for name in (user, label))
    end = num_rows // length * length
    faults = []
    if end < num_rows:
        faults.append(
            f"split '{split}': {num_rows:,} rows, not whole candidate lists of {length:,} "
            f"('{list_length_key(split)}' in the metadata)"
        )
    masks = broken_lists(users[:end].reshape(-1, length), labels[:end].reshape(-1, length))
    rules = ((user, "of more than one user"), (label, "without exactly one label of 1"))
    for mask, (feature, rule) in zip(masks, rules, strict=True):
        broken = np.flatnonzero(mask)
        if len(broken):
            faults.append(
                f"split '{split}': feature '{feature}': {len(broken):,} candidate lists {rule}, "
                f"the first in rows {broken[0] * length} to {(broken[0] + 1) * length - 1} "
                "(counted from 0)"
            )
    return faults


def _column(spec: FeatureSpec, split: str, feature: str, num_rows: int) -> np.ndarray:
    """Returns the values of a feature of one value per row; training holds them in memory, too."""
    (chunk,) = (chunk for chunk in spec.source_spec[split] if feature in chunk.features)
    position = spans_of(spec, [chunk])[feature].begin
    return BinaryChunk(spec, chunk).read(range(num_rows))[:, position]


def rare_items_note(spec: FeatureSpec, split: str, facts: IdFacts | NumberFacts) -> list[str]:
    """Returns a line if most items are in no row of `train`."""
    is_item = facts.feature in spec.channel_spec.get(ITEM_CHANNEL, ()) and has_interactions(spec)
    if not is_item or split != TRAIN or isinstance(facts, NumberFacts):
        return []
    if facts.num_used >= _FEW * facts.cardinality:
        return []
    return [
        f"    note: negatives are drawn from all {facts.cardinality:,} items, and '{TRAIN}' has "
        f"{facts.num_used:,} of them; --categorify of dataloading.transcode numbers these alone"
    ]
