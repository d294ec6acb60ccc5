"""Samples of which one feature has the values of other samples."""

from collections.abc import Sequence

import numpy as np

from dataloading.pipeline.columns import Column, SampleReader
from dataloading.pipeline.ragged import Samples


class PermutedReader:
    """A `SampleReader` with the values of one feature permuted across the samples.

    Args:
        reader: reads the samples.
        feature: name of the feature; all values of a sample move together.
        order: sample that each sample has the feature's values of, a permutation.
    """

    def __init__(self, reader: SampleReader, feature: str, order: np.ndarray):
        self.columns, self.num_samples = reader.columns, reader.num_samples
        self._reader, self._feature, self._order = reader, feature, order

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[Samples]:
        """See `SampleReader`."""
        arrays = self._reader.read(samples, columns)
        if isinstance(samples, range):
            samples = np.arange(samples.start, samples.stop)
        others = self._order[samples].astype(np.int64)
        for number, column in enumerate(columns):
            features = column.features or (column.feature,)
            if self._feature not in features:
                continue
            (values,) = self._reader.read(others, [column])
            if set(features) == {self._feature}:
                arrays[number] = values
            else:
                places = np.flatnonzero([name == self._feature for name in features])
                arrays[number][:, places] = values[:, places]
        return arrays
