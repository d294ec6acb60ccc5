"""Samples of histories that are stored as ranges of events, with negatives that are drawn."""

from collections.abc import Iterable, Sequence

import numpy as np

from dataloading.formats.open_chunk import open_features
from dataloading.histories.events import Events
from dataloading.histories.negatives import Negatives, features_of_items
from dataloading.pipeline.chunk_reader import ChunkReader
from dataloading.pipeline.columns import Column, Role
from dataloading.spec.feature_spec import LABEL_CHANNEL, FeatureSpec
from dataloading.spec.history_channels import RANGES_TYPE, draws_labels, sequence_channels


class RangeReader:
    """Reads samples of a split by their numbers; a `SampleReader`. Safe for several threads.

    Histories are right-aligned, with zeros before. Where the label is requested and not stored,
    each stored row is two samples: number 2 i is row i with label 1, number 2 i + 1 the same row
    with a drawn target and label 0. Negative histories are always drawn. Negatives are functions of
    the seed in the metadata, the first feature of the user, the number of the user's earlier
    events, the label, the step, and the pass over the data: a number of p * num_samples + i is
    sample i with the negatives of pass p.

    Args:
        spec: see `sequence_channels`.
        features: names of features to read, in this order.

    Raises:
        ValueError: a file is missing or incomplete, or an event is invalid.
    """

    prebatch = 1

    def __init__(self, spec: FeatureSpec, split: str, features: Iterable[str]):
        features = tuple(features)
        has_labels = LABEL_CHANNEL in spec.channel_spec
        self._channels = channels = sequence_channels(
            spec, (split,), with_labels=has_labels, with_negatives=False
        )
        draws_targets = draws_labels(spec, split) and channels.label[0] in features
        self._samples_per_row = 2 if draws_targets else 1
        chunks = spec.source_spec[split]
        ranges = next(chunk for chunk in chunks if chunk.type == RANGES_TYPE)
        self._rows = _rows(spec, split, (*features, *channels.user[:1], *channels.target))
        self._stored = [column.feature for column in self._rows.columns]
        self.num_samples = self._samples_per_row * self._rows.num_samples
        self._events = Events(spec, split, ranges)
        self._negatives = None
        if draws_targets or set(features).intersection(channels.negative):
            if not channels.user:
                raise ValueError(
                    f"{spec.origin}: channel_spec: expected a feature of the user, by which "
                    "negatives are drawn, got none"
                )
            self._tables = self._events.features_of_items(spec, channels.positive)
            items = self._events.columns[channels.positive[0]]
            self._negatives = Negatives.from_spec(spec, len(self._tables[0]) - 1, items)
        self.columns = tuple(self._column(spec, feature) for feature in features)

    def _column(self, spec: FeatureSpec, feature: str) -> Column:
        if feature in self._stored:
            return self._rows.columns[self._stored.index(feature)]
        if feature in self._channels.label:
            return Column(Role.LABEL, feature, np.dtype(np.int8), 1)
        pairs = zip(self._channels.negative, self._channels.positive, strict=False)
        dtype = self._events.columns[dict(pairs).get(feature, feature)].dtype
        width = self._channels.history_length
        return Column(Role.CATEGORICAL, feature, dtype, width, spec.cardinality(feature))

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        """See `SampleReader`."""
        passes, numbers = np.divmod(np.asarray(samples, np.int64), self.num_samples)
        rows, number = np.divmod(numbers, self._samples_per_row)
        arrays = dict(zip(self._stored, self._rows.read(rows, self._rows.columns), strict=True))
        first, end = self._events.ranges(rows)
        channels, num_before = self._channels, end - first
        steps = channels.history_length
        lengths = np.minimum(num_before, steps)
        if self._samples_per_row == 2:
            arrays[channels.label[0]] = (1 - number)[:, None].astype(np.int8)
        wanted = {column.feature for column in columns}
        has_negatives = bool(wanted.intersection(channels.negative))
        for feature in channels.positive:
            if feature in wanted or has_negatives:
                arrays[feature] = self._events.last(feature, end, lengths, steps)
        if self._negatives is not None:
            label = arrays[channels.label[0]] if channels.label else np.ones_like(rows)
            users = arrays[channels.user[0]][:, 0]
            keys = self._negatives.keys(passes, users, num_before, label.ravel())
            if self._samples_per_row == 2:
                self._draw_targets(arrays, np.flatnonzero(number), keys)
            if has_negatives:
                items = arrays[channels.positive[0]]
                arrays[channels.negative[0]] = drawn = self._negatives.draw_histories(
                    keys, lengths, items
                )
                for feature, table in zip(channels.negative[1:], self._tables[1:], strict=True):
                    arrays[feature] = features_of_items(table, drawn)
        return [arrays[column.feature] for column in columns]

    def _draw_targets(self, arrays: dict, samples: np.ndarray, keys: np.ndarray) -> None:
        """Replaces the targets of some samples by negative items."""
        targets = [arrays[name] for name in self._channels.target]
        positives = targets[0][samples, 0].astype(np.int64)
        items = self._negatives.draw(keys[samples], np.zeros_like(samples), positives)
        for target, table in zip(targets, self._tables, strict=True):
            target[samples, 0] = table[items]


def _rows(spec: FeatureSpec, split: str, features: Iterable[str]) -> ChunkReader:
    """Returns the reader of those features that have one value per row."""
    chunks, labels = spec.source_spec[split], spec.channel_spec.get(LABEL_CHANNEL, ())
    stored = {name for chunk in chunks if chunk.type != RANGES_TYPE for name in chunk.features}
    roles = {}
    for name in dict.fromkeys(features):
        if name in stored:
            role = Role.CATEGORICAL if "cardinality" in spec.feature_spec[name] else Role.NUMERICAL
            roles[name] = Role.LABEL if name in labels else role
    return open_features(spec, split, roles, range(len(chunks)))
