"""Facts of a data set's columns, in one pass, a block of rows at a time.

Only where the ids of a chunk are too many to be counted at once, further passes count the others,
so that memory stays the same for any cardinality and number of rows:
`dataloading/describe/id_counts.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dataloading.describe.id_counts import BUDGET_BYTES, IdCount, IdFacts
from dataloading.formats.split_tfrecords.chunk import RecordChunk
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import LABEL_CHANNEL, NUMERICAL_CHANNEL, Chunk, FeatureSpec

_BLOCK_BYTES = 8 << 20


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
    num_values = _num_values(spec, chunk, records)
    ids = {
        name: IdCount(name, spec.cardinality(name), num_values)
        for name in chunk.features
        if name not in numbers
    }
    wrong_labels = dict.fromkeys(labels, 0)
    first_pass, waiting = True, ids
    while first_pass or waiting:
        counted = _counted_together(waiting)
        for columns in column_blocks(spec, chunk, records):
            for name, count in counted.items():
                count.add(columns[name].ravel())
            for name, facts in numbers.items() if first_pass else ():
                facts.add(columns[name])
            for name in labels if first_pass else ():
                values = columns[name]
                wrong_labels[name] += int(np.count_nonzero((values != 0) & (values != 1)))
        done = {name for name, count in counted.items() if count.end_pass()}
        waiting = {name: count for name, count in waiting.items() if name not in done}
        first_pass = False
    for name, facts in numbers.items():
        if wrong_labels.get(name):
            facts.faults.append(f"feature '{name}': {wrong_labels[name]} labels other than 0 and 1")
        if name in numericals:
            facts.faults += facts.unusable()
    for name in chunk.features:
        yield numbers[name] if name in numbers else ids[name].facts


def _counted_together(waiting: dict[str, IdCount]) -> dict[str, IdCount]:
    """Those that one pass has the memory for, the small ones first; at least one."""
    chosen, size_bytes = {}, 0
    for name, count in sorted(waiting.items(), key=lambda item: item[1].size_bytes):
        size_bytes += count.size_bytes
        if chosen and size_bytes > BUDGET_BYTES:
            break
        chosen[name] = count
    return chosen


def _num_values(spec: FeatureSpec, chunk: Chunk, records: RecordChunk | None) -> int:
    """Values of all features of the chunk."""
    if records is not None:
        return records.num_values
    size_bytes = sum((spec.base_directory / file).stat().st_size for file in chunk.files)
    return size_bytes // spec.dtype(chunk.features[0]).itemsize


def column_blocks(
    spec: FeatureSpec, chunk: Chunk, records: RecordChunk | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """The rows of a chunk: feature -> [rows, hotness]; [ids, 1] of one whose rows differ in
    length."""
    widths = [spec.hotness(name) for name in chunk.features]
    ends = np.cumsum(widths)
    for rows in _stored(spec, chunk) if records is None else _recorded(spec, chunk, records):
        if isinstance(rows, Ragged):
            yield {chunk.features[0]: rows.values[:, None]}
            continue
        yield {
            name: rows[:, end - width : end]
            for name, end, width in zip(chunk.features, ends, widths, strict=True)
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
