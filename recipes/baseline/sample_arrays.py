"""Samples of a ranking data set as arrays in memory, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataloading.formats.open_chunk import open_chunks
from dataloading.pipeline.chunk_reader import ChunkReader
from dataloading.pipeline.columns import Role
from dataloading.pipeline.ragged import Ragged
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.spans import spans_of

BLOCK_ROWS = 1 << 17  # rows that are read and scored at a time
_SEED = 0  # of the sample of the training rows
_ROLES = {
    fs.NUMERICAL_CHANNEL: Role.NUMERICAL,
    fs.CATEGORICAL_CHANNEL: Role.CATEGORICAL,
    fs.LABEL_CHANNEL: Role.LABEL,
}


@dataclass(frozen=True)
class ClickRows:
    """Rows of a split.

    Attributes:
        numbers: numerical features, float32 [rows, values].
        ids: feature -> its ids, integers [rows], of the features with one id per row.
        bags: feature -> its ids, of the other categorical features.
        cardinalities: categorical feature -> number of its ids.
        labels: bool [rows].
    """

    numbers: NDArray[np.float32]
    ids: dict[str, NDArray[Any]]
    bags: dict[str, Ragged]
    cardinalities: dict[str, int]
    labels: NDArray[np.bool_]


class ClickSplit:
    """A split of a ranking data set.

    Raises:
        ValueError: the spec or a file does not fit, or the split is empty.
    """

    def __init__(self, spec: FeatureSpec, split: str):
        spec.require("recipes.baseline", channels=tuple(_ROLES), splits=(split,))
        chunks = spec.source_spec[split]
        spans = spans_of(spec, chunks)
        columns = [
            (role, spans[feature])
            for channel, role in _ROLES.items()
            for feature in spec.channel(channel)
        ]
        used = sorted({span.chunk for _, span in columns})
        opened, num_rows = open_chunks(spec, split, used)
        self._reader = ChunkReader(spec, split, columns, opened, num_rows)
        self.split, self.num_rows = split, num_rows

    def read(self, rows: range | NDArray[np.int64]) -> ClickRows:
        """Returns some rows, in ascending order."""
        values = self._reader.read(rows, self._reader.columns)
        numbers, ids, bags, labels = [np.empty((len(rows), 0), np.float32)], {}, {}, None
        for column, array in zip(self._reader.columns, values, strict=True):
            if column.role is Role.NUMERICAL:
                numbers.append(np.asarray(array, np.float32))
            elif column.role is Role.LABEL:
                labels = np.asarray(array).ravel() == 1
            elif column.width == 1:
                ids[column.feature] = np.asarray(array).ravel()
            elif isinstance(array, Ragged):
                bags[column.feature] = array
            else:
                lengths = np.full(len(array), array.shape[1])
                bags[column.feature] = Ragged.from_lengths(array.ravel(), lengths)
        assert labels is not None
        cardinalities = {
            column.feature: column.cardinality
            for column in self._reader.columns
            if column.cardinality is not None
        }
        return ClickRows(np.concatenate(numbers, axis=1), ids, bags, cardinalities, labels)

    def blocks(self) -> Iterator[ClickRows]:
        """Yields all rows, a block at a time."""
        for start in range(0, self.num_rows, BLOCK_ROWS):
            yield self.read(range(start, min(start + BLOCK_ROWS, self.num_rows)))


@dataclass(frozen=True)
class FittingRows:
    """Rows to fit models to, and rows to choose their settings by.

    Attributes:
        train, choosing: the rows.
        description: the rows in words.
    """

    train: ClickRows
    choosing: ClickRows
    description: str


def read_fitting_rows(spec: FeatureSpec, evaluated: str, max_rows: int) -> FittingRows:
    """Reads the training rows, and the validation rows or else the last tenth of train.

    Args:
        spec: the data set.
        evaluated: the split of the metrics, by which nothing is chosen.
        max_rows: of more rows in a split, a random sample of this number is read.

    Raises:
        ValueError: the spec or a file does not fit, or a split is empty.
    """
    train = ClickSplit(spec, fs.TRAIN)
    end, choosing, start = train.num_rows, train, 0
    if fs.VALIDATION in spec.source_spec and evaluated != fs.VALIDATION:
        choosing = ClickSplit(spec, fs.VALIDATION)
        name = fs.VALIDATION
    else:
        end = start = train.num_rows - max(1, train.num_rows // 10)
        name = f"the last tenth of {fs.TRAIN}"
    rows = [
        _sample(first, last, max_rows) for first, last in ((0, end), (start, choosing.num_rows))
    ]
    texts = [
        f"{len(part):,} {'sampled ' if len(part) < total else ''}rows"
        for part, total in zip(rows, (end, choosing.num_rows - start), strict=True)
    ]
    description = f"fitted to {texts[0]} of {fs.TRAIN}, settings chosen by {texts[1]} of {name}"
    return FittingRows(train.read(rows[0]), choosing.read(rows[1]), description)


def _sample(start: int, stop: int, max_rows: int) -> range | NDArray[np.int64]:
    """Returns the rows start to stop - 1, or a sample of them in ascending order."""
    if stop - start <= max_rows:
        return range(start, stop)
    chosen = np.random.default_rng(_SEED).choice(stop - start, max_rows, replace=False)
    return np.sort(chosen).astype(np.int64) + start
