"""Facts of the columns of a data set, and of the interactions that they hold.

A chunk is read once, a block of rows at a time. DuckDB counts the ids, so that memory stays bounded
for any cardinality and number of rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataloading.formats.split_tfrecords.chunk import RecordChunk
from dataloading.interactions.candidate_rules import broken_series, series_key
from dataloading.interactions.stored import length_of_series, stores_labels
from dataloading.pipeline.chunk_reader import spans_of, stored_dtype
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
from dataloading.table_input.duckdb_session import DuckDBSession

_BLOCK_BYTES = 8 << 20
_NUM_TOP = 5
_ROWS = 1 << 20  # rows of candidate lists that are checked together, or one longer list
_FEW = 0.5  # share of items in use below which ids are worth making dense
_ID_SCHEMA = pa.schema([("feature", pa.int32()), ("id", pa.int64())])


@dataclass
class IdFacts:
    """A column of ids.

    Attributes:
        num_used: different ids in range that occur.
        top: (id, share of all values) of the most frequent ids in range.
        faults: what a loader refuses.
    """

    feature: str
    cardinality: int
    num_used: int = 0
    top: list[tuple[int, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class NumberFacts:
    """A column of numbers. Infinities count for smallest and largest, not for the mean."""

    feature: str
    smallest: float = math.inf
    largest: float = -math.inf
    num_nan: int = 0
    num_infinite: int = 0
    faults: list[str] = field(default_factory=list)
    _sum: float = 0.0
    _num_finite: int = 0

    @property
    def mean(self) -> float:
        """The mean of the finite values; NaN without one."""
        return self._sum / self._num_finite if self._num_finite else math.nan

    def unusable(self) -> list[str]:
        """Returns the faults of numbers that a model cannot take: it receives float32."""
        bad = self.num_nan + self.num_infinite
        if bad:
            return [f"feature '{self.feature}': {bad} numerical values that are not finite"]
        if max(self.largest, -self.smallest) > np.finfo(np.float32).max:
            return [f"feature '{self.feature}': numerical values that float32 cannot hold"]
        return []

    def add(self, values: np.ndarray) -> None:
        """Takes in values [rows, hotness]."""
        if values.dtype == np.float16:
            values = values.astype(np.float32)
        total = float(values.sum(dtype=np.float64))
        count = values.size
        if not math.isfinite(total):
            nan, finite = np.isnan(values), np.isfinite(values)
            self.num_nan += int(nan.sum())
            self.num_infinite += int((~finite & ~nan).sum())
            total, count = float(values.sum(dtype=np.float64, where=finite)), int(finite.sum())
            values = values[~nan]
        self._sum += total
        self._num_finite += count
        if values.size:
            self.smallest = min(self.smallest, float(values.min()))
            self.largest = max(self.largest, float(values.max()))


class ChunkFacts:
    """Facts of the features of a chunk, whose files must hold whole rows.

    A feature with a cardinality holds ids, any other numbers. Faults are what a loader refuses:
    ids out of range, labels other than 0 and 1, numerical values that are not finite.

    Args:
        spec: the data set.
        chunk: of type split_binary or tfrecord.
        records: the tfrecord chunk, open.
    """

    def __init__(self, spec: FeatureSpec, chunk: Chunk, records: RecordChunk | None = None):
        self._spec, self._chunk, self._records = spec, chunk, records
        self._numerical = spec.channel_spec.get(NUMERICAL_CHANNEL, ())
        labels = spec.channel_spec.get(LABEL_CHANNEL, ())
        self._wrong_labels = {name: 0 for name in chunk.features if name in labels}
        self._facts: dict[str, IdFacts | NumberFacts] = {}
        for name in chunk.features:
            is_number = "cardinality" not in spec.feature_spec[name]
            if is_number or name in self._wrong_labels or name in self._numerical:
                self._facts[name] = NumberFacts(name)
            else:
                self._facts[name] = IdFacts(name, spec.cardinality(name))
        self._num_values = dict.fromkeys(chunk.features, 0)
        self._num_outside = dict.fromkeys(chunk.features, 0)

    def read(self, session: DuckDBSession) -> list[IdFacts | NumberFacts]:
        """Reads the chunk; returns the facts of each feature.

        Raises:
            ValueError: a damaged record.
        """
        ids = [facts for facts in self._facts.values() if isinstance(facts, IdFacts)]
        batches = self._id_batches()
        if ids:
            _count(session, batches)
        else:
            for _ in batches:
                pass
        for facts in ids:
            self._complete(facts, session)
        for name, count in self._wrong_labels.items():
            if count:
                fault = f"feature '{name}': {count} labels other than 0 and 1"
                self._facts[name].faults.append(fault)
        for name in self._numerical:
            if name in self._facts:
                self._facts[name].faults += self._facts[name].unusable()
        return list(self._facts.values())

    def _id_batches(self) -> Iterator[pa.RecordBatch]:
        """Takes in the numbers of the chunk; yields its ids in range, with their features."""
        for columns in column_blocks(self._spec, self._chunk, self._records):
            for name, values in columns.items():
                facts = self._facts[name]
                if isinstance(facts, NumberFacts):
                    facts.add(values)
                    if name in self._wrong_labels:
                        wrong = np.count_nonzero((values != 0) & (values != 1))
                        self._wrong_labels[name] += int(wrong)
                    continue
                ids = values.ravel().astype(np.int64)
                inside = ids[(ids >= 0) & (ids < facts.cardinality)]
                self._num_values[name] += len(ids)
                self._num_outside[name] += len(ids) - len(inside)
                number = np.full(len(inside), self._chunk.features.index(name), np.int32)
                yield pa.record_batch([pa.array(number), pa.array(inside)], _ID_SCHEMA)

    def _complete(self, facts: IdFacts, session: DuckDBSession) -> None:
        """Fills in the facts of counted ids."""
        name = facts.feature
        counts = f"FROM counts WHERE feature = {self._chunk.features.index(name)}"
        (facts.num_used,) = session.connection.execute(f"SELECT count(*) {counts}").fetchone()
        top = session.connection.execute(
            f"SELECT id, count {counts} ORDER BY count DESC, id LIMIT {_NUM_TOP}"
        ).fetchall()
        facts.top = [(number, count / self._num_values[name]) for number, count in top]
        if self._num_outside[name]:
            facts.faults.append(
                f"feature '{name}': {self._num_outside[name]} ids outside of "
                f"[0, {facts.cardinality})"
            )


def _count(session: DuckDBSession, batches: Iterator[pa.RecordBatch]) -> None:
    """Counts each id of each feature in the table `counts`."""
    import duckdb

    failures = []

    def watched():
        try:
            yield from batches
        except ValueError as error:  # DuckDB would report its text only
            failures.append(error)
            raise

    stream = pa.RecordBatchReader.from_batches(_ID_SCHEMA, watched())
    try:
        session.connection.register("ids", stream).execute(
            "CREATE OR REPLACE TEMP TABLE counts AS "
            "SELECT feature, id, count(*) AS count FROM ids GROUP BY ALL"
        )
    except duckdb.Error:
        if failures:
            raise failures[0] from None
        raise


def column_blocks(
    spec: FeatureSpec, chunk: Chunk, records: RecordChunk | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """The rows of a chunk: feature -> [rows, hotness]; [ids, 1] of one whose rows differ in
    length."""
    spans = spans_of(spec, chunk, 0)
    for rows in _stored(spec, chunk) if records is None else _recorded(spec, chunk, records):
        if isinstance(rows, Ragged):
            yield {chunk.features[0]: rows.values[:, None]}
        else:
            yield {name: rows[:, span.begin : span.end] for name, span in spans.items()}


def _stored(spec: FeatureSpec, chunk: Chunk) -> Iterator[np.ndarray]:
    dtype = stored_dtype(spec, chunk.features[0])
    row_bytes = spec.row_bytes(chunk)
    width = row_bytes // dtype.itemsize
    for file in chunk.files:
        with open(spec.base_directory / file, "rb") as stream:
            while len(
                values := np.fromfile(stream, dtype, max(1, _BLOCK_BYTES // row_bytes) * width)
            ):
                yield values.reshape(-1, width)


def _recorded(
    spec: FeatureSpec, chunk: Chunk, records: RecordChunk
) -> Iterator[np.ndarray | Ragged]:
    block_rows = max(1, _BLOCK_BYTES // spec.row_bytes(chunk))
    for start in range(0, records.num_rows, block_rows):
        yield records.read(slice(start, min(start + block_rows, records.num_rows)))


def has_interactions(spec: FeatureSpec) -> bool:
    """Returns whether rows are users and items."""
    return USER_CHANNEL in spec.channel_spec and ITEM_CHANNEL in spec.channel_spec


def interactions_of(
    spec: FeatureSpec, mapping: str, rows: dict[int, int], faults: list[str]
) -> str:
    """Returns the kind of the rows of a mapping, for people; appends to `faults`.

    Args:
        rows: chunk -> its rows, of the chunks of the mapping that can be read.
    """
    chunks = spec.source_spec[mapping]
    of_other_types = any(chunk.type != "split_binary" for chunk in chunks)
    if of_other_types or len(rows) < len(chunks) or len(set(rows.values())) > 1:
        return ""  # which is reported elsewhere
    try:
        length = length_of_series(spec, mapping)
    except ValueError as error:
        if str(error) not in faults:  # of another mapping
            faults.append(str(error))
        return ""
    labels = spec.channel(LABEL_CHANNEL) if stores_labels(spec, mapping) else ()
    if length is None:
        num_negatives = _num_negatives(spec, mapping, labels[0]) if labels else 0
        if not num_negatives:
            return ", each an interaction"
        faults.append(
            f"mapping '{mapping}': feature '{labels[0]}': {num_negatives:,} labels of 0; the rows "
            "there are interactions, and negatives are drawn while training"
        )
        return ""
    faults += _broken(spec, mapping, labels[0], length, next(iter(rows.values())))
    return f", {next(iter(rows.values())) // length:,} series of {length:,}"


def rare_items_note(spec: FeatureSpec, mapping: str, facts: IdFacts | NumberFacts) -> list[str]:
    """Returns a line if most items are in no row of `train`."""
    is_item = facts.feature in spec.channel_spec.get(ITEM_CHANNEL, ()) and has_interactions(spec)
    if not is_item or mapping != TRAIN or isinstance(facts, NumberFacts):
        return []
    if facts.num_used >= _FEW * facts.cardinality:
        return []
    return [
        f"    note: negatives are drawn from all {facts.cardinality:,} items, and '{TRAIN}' has "
        f"{facts.num_used:,} of them; --categorify of dataloading.transcode numbers these alone"
    ]


def _num_negatives(spec: FeatureSpec, mapping: str, label: str) -> int:
    return sum(np.count_nonzero(labels == 0) for labels in _column(spec, mapping, label))


def _broken(spec: FeatureSpec, mapping: str, label: str, length: int, num_rows: int) -> list[str]:
    """The faults of a mapping whose rows come in series of `length`."""
    (user,) = spec.channel(USER_CHANNEL)
    rows_at_a_time = max(1, _ROWS // length) * length
    mixed, wrong = [], []
    for users, labels in zip(
        _regrouped(_column(spec, mapping, user), rows_at_a_time),
        _regrouped(_column(spec, mapping, label), rows_at_a_time),
        strict=True,
    ):
        end = len(users) // length * length
        lists = (part[:end].reshape(-1, length) for part in (users, labels))
        for masks, mask in zip((mixed, wrong), broken_series(*lists), strict=True):
            masks.append(mask)
    faults = []
    if num_rows % length:
        faults.append(
            f"mapping '{mapping}': {num_rows:,} rows, not whole series of {length:,} "
            f"('{series_key(mapping)}' in the metadata)"
        )
    for masks, feature, what in (
        (mixed, user, "of more than one user"),
        (wrong, label, "without exactly one label of 1"),
    ):
        broken = np.flatnonzero(np.concatenate(masks))
        if len(broken):
            faults.append(
                f"mapping '{mapping}': feature '{feature}': {len(broken):,} series {what}, the "
                f"first in rows {broken[0] * length} to {(broken[0] + 1) * length - 1} (counted "
                "from 0)"
            )
    return faults


def _column(spec: FeatureSpec, mapping: str, feature: str) -> Iterator[np.ndarray]:
    """The values of a feature of one value a row, some rows at a time."""
    (chunk,) = (chunk for chunk in spec.source_spec[mapping] if feature in chunk.features)
    return (columns[feature][:, 0] for columns in column_blocks(spec, chunk))


def _regrouped(arrays: Iterator[np.ndarray], num_rows: int) -> Iterator[np.ndarray]:
    """Yields the same values, `num_rows` at a time; the last array may have fewer."""
    waiting, count = [], 0
    for array in arrays:
        waiting.append(array)
        count += len(array)
        if count >= num_rows:
            joined = np.concatenate(waiting)
            end = count // num_rows * num_rows
            yield from np.split(joined[:end], end // num_rows)
            waiting, count = [joined[end:]], count - end
    if count:
        yield np.concatenate(waiting)
