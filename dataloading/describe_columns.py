"""Facts of a data set's columns, in one pass, a block of rows at a time.

Only where ids are counted and a feature has more than `_COUNTED_IDS` of them, further passes count
the others, so that memory stays the same for any cardinality and number of rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dataloading.feature_spec import (
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    Chunk,
    FeatureSpec,
)
from dataloading.ragged import Ragged
from dataloading.split_tfrecords_chunk import RecordChunk

_BLOCK_BYTES = 8 << 20
_COUNTED_IDS = 1 << 24  # in a pass: 128 MiB
_SMALL_CARDINALITY = 1 << 17  # below it, counting into an array of its size beats sorting
_TOP = 5


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
        """Of the finite values; NaN where there is none."""
        return self._sum / self._num_finite if self._num_finite else math.nan

    def unusable(self) -> list[str]:
        """What a model cannot take: it gets float32."""
        bad = self.num_nan + self.num_infinite
        if bad:
            return [f"feature '{self.feature}': {bad} numericals that are not finite"]
        if max(self.largest, -self.smallest) > np.finfo(np.float32).max:
            return [f"feature '{self.feature}': numericals that float32 cannot hold"]
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


@dataclass
class IdFacts:
    """A column of ids. top: (id, share of all values) of the most frequent ids in range."""

    feature: str
    cardinality: int
    num_used: int = 0
    top: list[tuple[int, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def chunk_facts(
    spec: FeatureSpec, chunk: Chunk, records: RecordChunk | None = None
) -> Iterator[IdFacts | NumberFacts]:
    """The facts of each feature of a split_binary chunk whose files hold whole rows, or of a
    tfrecord chunk.

    A feature with a cardinality is ids, any other is numbers. `faults` say what a loader refuses:
    ids out of range, labels other than 0 and 1, numericals that are not finite.

    Args:
        records: the tfrecord chunk, open.

    Raises:
        ValueError: a damaged record.
    """
    labels = [n for n in chunk.features if n in spec.channel_spec.get(LABEL_CHANNEL, ())]
    numericals = spec.channel_spec.get(NUMERICAL_CHANNEL, ())
    numbers = {
        name: NumberFacts(name)
        for name in chunk.features
        if name in labels or name in numericals or "cardinality" not in spec.feature_spec[name]
    }
    wrong_labels = dict.fromkeys(labels, 0)
    for columns in _blocks(spec, chunk, records):
        for name, facts in numbers.items():
            facts.add(columns[name])
        for name in labels:
            values = columns[name]
            wrong_labels[name] += int(np.count_nonzero((values != 0) & (values != 1)))
    for name, facts in numbers.items():
        if wrong_labels.get(name):
            facts.faults.append(f"feature '{name}': {wrong_labels[name]} labels other than 0 and 1")
        if name in numericals:
            facts.faults += facts.unusable()
    for name in chunk.features:
        yield numbers[name] if name in numbers else _id_facts(spec, chunk, name, records)


def _id_facts(
    spec: FeatureSpec, chunk: Chunk, feature: str, records: RecordChunk | None
) -> IdFacts:
    cardinality = spec.cardinality(feature)
    facts = IdFacts(feature, cardinality)
    candidates, num_values = [], 0
    for first in range(0, cardinality, _COUNTED_IDS):
        counts = np.zeros(min(_COUNTED_IDS, cardinality - first), np.int64)
        outside, num_values = 0, 0
        for columns in _blocks(spec, chunk, records, feature):
            ids = columns[feature].ravel()
            outside += _count(ids, first, cardinality, counts)
            num_values += ids.size
        if first == 0 and outside:
            facts.faults.append(f"feature '{feature}': {outside} ids outside of [0, {cardinality})")
        facts.num_used += int(np.count_nonzero(counts))
        candidates += [(-int(counts[i]), first + int(i)) for i in _most_frequent(counts)]
    facts.top = [(i, -count / num_values) for count, i in sorted(candidates)[:_TOP]]
    return facts


def _most_frequent(counts: np.ndarray) -> np.ndarray:
    """The places of the `_TOP` largest counts that are not 0; of equal ones, the first."""
    least = 1
    if len(counts) > _TOP:
        least = max(1, np.partition(counts, -_TOP)[-_TOP])
    above = np.flatnonzero(counts > least)
    equal = np.flatnonzero(counts == least)[: max(0, _TOP - len(above))]
    return np.union1d(above, equal)


def _count(ids: np.ndarray, first: int, cardinality: int, counts: np.ndarray) -> int:
    """Adds to `counts` of the ids from `first` on; returns how many are not in [0, cardinality)."""
    inside = ids
    outside = 0
    if ids.size and (ids.min() < 0 or ids.max() >= cardinality):
        chosen = (ids >= 0) & (ids < cardinality)
        inside = ids[chosen]
        outside = ids.size - inside.size
    if len(counts) != cardinality:
        inside = inside[(inside >= first) & (inside < first + len(counts))]
    if len(counts) <= _SMALL_CARDINALITY:
        counts += np.bincount(inside.astype(np.intp) - first, minlength=len(counts))
    else:
        found, times = np.unique(inside, return_counts=True)
        counts[found.astype(np.intp) - first] += times
    return outside


def _blocks(
    spec: FeatureSpec, chunk: Chunk, records: RecordChunk | None, feature: str | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """The rows of a chunk: feature -> [rows, hotness], of all features or of one; [ids, 1] of one
    whose rows differ in length."""
    widths = [spec.hotness(name) for name in chunk.features]
    ends = np.cumsum(widths)
    for rows in _stored(spec, chunk) if records is None else _recorded(spec, chunk, records):
        if isinstance(rows, Ragged):
            yield {chunk.features[0]: rows.values[:, None]}
            continue
        yield {
            name: rows[:, end - width : end]
            for name, end, width in zip(chunk.features, ends, widths, strict=True)
            if feature in (None, name)
        }


def _stored(spec: FeatureSpec, chunk: Chunk) -> Iterator[np.ndarray]:
    stored = spec.dtype(chunk.features[0])
    dtype = np.dtype("u1") if stored.kind == "b" else stored.newbyteorder("<")
    per_row = sum(map(spec.hotness, chunk.features))
    block_rows = max(1, _BLOCK_BYTES // spec.row_bytes(chunk))
    for file in chunk.files:
        with open(spec.base_directory / file, "rb") as stream:
            while len(values := np.fromfile(stream, dtype, block_rows * per_row)):
                yield values.reshape(-1, per_row)


def _recorded(
    spec: FeatureSpec, chunk: Chunk, records: RecordChunk
) -> Iterator[np.ndarray | Ragged]:
    block_rows = max(1, _BLOCK_BYTES // spec.row_bytes(chunk))
    for start in range(0, records.num_rows, block_rows):
        yield records.read(slice(start, min(start + block_rows, records.num_rows)))
