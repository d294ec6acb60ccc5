"""Histories as ranges of sorted events, in `ragged_binary` files that are mapped into memory."""

import numpy as np

from dataloading.pipeline import gather
from dataloading.pipeline.gather import aligned
from dataloading.pipeline.ragged import ranges
from dataloading.spec.feature_spec import Chunk, FeatureSpec

_BLOCK = 1 << 20  # events that are checked at a time


class Events:
    """The events of all users, and the ranges of a split's samples.

    Every event is checked once: its ids lie in [1, cardinality), 0 being padding.

    Attributes:
        columns: feature -> its ids of all events, [events].
        num_events: events of all users.
        num_samples: rows of the split.

    Raises:
        ValueError: a file is missing, incomplete, or has an invalid id.
    """

    def __init__(self, spec: FeatureSpec, split: str, chunk: Chunk):
        self._where = f"{spec.origin}: split '{split}': file"
        self._file = chunk.files[0]
        self._ranges = _mapped(spec, self._file, np.dtype("<i8")).reshape(-1, 2)
        self.num_samples = len(self._ranges)
        self.columns = {}
        for feature, file in zip(chunk.features, chunk.files[1:], strict=True):
            ids = _mapped(spec, file, spec.dtype(feature).newbyteorder("<"))
            self.columns[feature] = ids
            end = spec.cardinality(feature)
            if len(ids) and not 0 < ids.min() <= ids.max() < end:
                event = int(np.argmax((ids < 1) | (ids >= end)))
                raise ValueError(
                    f"{self._where} '{file}': feature '{feature}': found {ids[event]} in event "
                    f"{event} (counted from 0); ids of events lie in [1, {end}), 0 is padding. "
                    "Prepare the data again"
                )
        self.num_events = len(ids)

    def ranges(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first event of each row's history and the end, int64 [n] each."""
        first, end = np.ascontiguousarray(self._ranges[rows].T)
        invalid = (first < 0) | (first > end) | (end > self.num_events)
        if invalid.any():
            row = int(np.argmax(invalid))
            raise ValueError(
                f"{self._where} '{self._file}': found the range {first[row]} to {end[row]} in row "
                f"{rows[row]} (counted from 0); expected events of 0 to {self.num_events}, the "
                "end not before the first. Prepare the data again"
            )
        return first, end

    def last(self, feature: str, ends: np.ndarray, lengths: np.ndarray, steps: int) -> np.ndarray:
        """Returns the ids of the events before each end, right-aligned after zeros, [n, steps].

        Args:
            lengths: the number of events, at most `steps`, int64 [n].
        """
        ids = self.columns[feature]
        size = ids.itemsize
        out = aligned(len(ends) * steps * size).view(ids.dtype).reshape(len(ends), steps)
        function = gather.compiled("last_events")
        if function is not None:
            function(ids, ends, lengths, len(ends), steps, size, out)
            return out
        out[:] = 0
        out[np.arange(steps, 0, -1) <= lengths[:, None]] = ids[ranges(ends - lengths, lengths)]
        return out

    def features_of_items(self, spec: FeatureSpec, features: tuple[str, ...]) -> list[np.ndarray]:
        """Returns the ids of each feature by item, [num_ids] each; the first one is the item.

        Items that are in no event have zeros.

        Raises:
            ValueError: an item has two values of a feature.
        """
        item, *others = features
        items, size = self.columns[item], spec.cardinality(item)
        tables = [np.arange(size, dtype=items.dtype)]
        for feature in others:
            ids = self.columns[feature]
            table = np.zeros(size, ids.dtype)
            blocks = [slice(i, i + _BLOCK) for i in range(0, len(items), _BLOCK)]
            for block in blocks:
                table[items[block]] = ids[block]
            for block in blocks:
                differs = table[items[block]] != ids[block]
                if differs.any():
                    event = block.start + int(np.argmax(differs))
                    values = f"{ids[event]} and {table[items[event]]}"
                    raise ValueError(
                        f"{spec.origin}: item {items[event]} has two values of '{feature}': "
                        f"{values}; a negative item needs one. Prepare the data again"
                    )
            tables.append(table)
        return tables


def _mapped(spec: FeatureSpec, file: str, dtype: np.dtype) -> np.ndarray:
    path = spec.base_directory / file
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r").view(np.ndarray)
