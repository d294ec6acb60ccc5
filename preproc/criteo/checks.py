"""Checks of a prepared Criteo log: its encoded rows, and those of its vocabulary's data set.

Large splits are sampled: blocks of neighboring rows at equal distances.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from preproc.checks.drift import moved_numbers
from preproc.checks.one_class import one_class
from preproc.checks.repeated_rows import RepeatedRows
from preproc.checks.report import PASSED, WARNING, Check
from preproc.checks.unknown_values import KNOWN, OWN, MoreUnknown
from preproc.criteo.encodings import CATEGORICALS, LABEL, NUMERICALS, label_encoding
from preproc.criteo.output.binary_files import LABEL_DTYPE, NUMERICAL_DTYPE

_BLOCKS, _BLOCK_ROWS = 20, 10_000
_MOST_ROWS = 1_000_000  # of a log in which repeated rows are looked for
_LEAST_ROWS = 20
_MIX = np.uint64(0x9E3779B97F4A7C15)


class LogRows:
    """Encoded rows of a split, or a sample of them.

    Args:
        spec: of the data set.
        split: name.
        most: number of rows from which on they are sampled.

    Attributes:
        count: number of all rows.
    """

    def __init__(self, spec: FeatureSpec, split: str, most: int = _BLOCKS * _BLOCK_ROWS):
        self._spec, self._folder = spec, Path(spec.base_directory) / split
        self.count = spec.num_samples(split)
        starts = [self.count * block // _BLOCKS for block in range(_BLOCKS)]
        self._blocks = [slice(start, start + _BLOCK_ROWS) for start in starts]
        if self.count <= most:
            self._blocks = [slice(None)]

    def _read(self, name: str, dtype: np.dtype, width: int = 1) -> NDArray:
        rows = np.memmap(self._folder / f"{name}.bin", dtype, "r").reshape(self.count, width)
        return np.concatenate([rows[block] for block in self._blocks])

    def labels(self) -> NDArray[np.bool_]:
        """Returns the labels, [rows]."""
        return self._read(LABEL, LABEL_DTYPE)[:, 0]

    def ids(self, column: str) -> NDArray[np.integer]:
        """Returns the ids of a categorical column, [rows]."""
        return self._read(column, self._spec.dtype(column))[:, 0]

    def numbers(self) -> NDArray[np.float64]:
        """Returns the numbers of the log, NaN where they are missing, [rows, columns]."""
        encoded = self._read("numerical", NUMERICAL_DTYPE, len(NUMERICALS)).astype(np.float64)
        return np.where(encoded == 0, np.nan, np.exp(encoded) - 3)

    def keys(self) -> NDArray[np.uint64]:
        """Returns a hash of the features of each row, [rows]."""
        numbers = self._read("numerical", NUMERICAL_DTYPE, len(NUMERICALS)).view(np.uint16)
        keys = np.zeros(len(numbers), np.uint64)
        for column in (*numbers.T, *map(self.ids, CATEGORICALS)):
            keys = (keys ^ column.astype(np.uint64)) * _MIX
            keys ^= keys >> np.uint64(29)
        return keys


@dataclass(frozen=True)
class ConstantFeature(Check):
    """A feature with one encoded value in all rows of train.

    Attributes:
        feature: its name.
        rows: number of rows.
        is_constant: whether all have the same value.
        is_rare: whether that value is id 0.
    """

    name = "constant_column"
    why = "nothing follows from a value that each row has"
    feature: str
    rows: int
    is_constant: bool
    is_rare: bool

    @property
    def level(self) -> str:
        return WARNING if self.is_constant and self.rows >= _LEAST_ROWS else PASSED

    @property
    def seen(self) -> str:
        what = "id 0, which stands for missing and rare values," if self.is_rare else "one value"
        return f"'{self.feature}' has {what} in all rows of train"

    @property
    def remedy(self) -> str:
        rest = f"remove '{self.feature}' from the channels of the feature spec"
        if not self.is_rare:
            return rest
        threshold = f"15,{self.feature.removeprefix('cat_')}:1"
        return f"possible solutions: a smaller threshold, --frequency_threshold {threshold}; {rest}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.feature,)


@dataclass(frozen=True)
class MoreUnknownIds(MoreUnknown):
    """Share of id 0 in a split of a log, with the remedies of logs."""

    @property
    def remedy(self) -> str:
        if self.vocabulary == KNOWN:
            return (
                f"compare '{self.column}' in both logs; values that are right get ids when both "
                "are prepared together"
            )
        number = self.column.removeprefix("cat_")
        return f"a larger threshold of the column, e.g. --frequency_threshold 15,{number}:60"


def check_log(spec: FeatureSpec, known: FeatureSpec | None, with_labels: bool) -> list[Check]:
    """Returns the checks of a prepared log.

    Args:
        known: of the data set whose vocabulary encodes it; None: it has its own.
        with_labels: whether it has labels.
    """
    checks: list[Check] = []
    splits = {split: LogRows(spec, split) for split in spec.source_spec}
    if known is None and with_labels:
        counts = {split: rows.count for split, rows in splits.items()}
        rates = {split: clicks / counts[split] for split, clicks in spec.metadata["clicks"].items()}
        checks += one_class(counts, rates, label_encoding(), "")
    if known is not None:
        if TRAIN not in known.source_spec:  # a vocabulary without rows
            return checks
        trained = LogRows(known, TRAIN)
        (rows,) = splits.values()
        numbers = zip(NUMERICALS, rows.numbers().T, trained.numbers().T, strict=True)
        checks += [moved_numbers(name, values, others) for name, values, others in numbers]
        return checks + _unknown(splits, trained, KNOWN)
    train = splits.pop(TRAIN)
    checks += _constant(train)
    checks += _unknown(splits, train, OWN)
    if splits and with_labels and train.count + sum(r.count for r in splits.values()) <= _MOST_ROWS:
        names = (TRAIN, *splits)
        checks.append(_repeated({split: LogRows(spec, split, _MOST_ROWS) for split in names}))
    return checks


def _constant(train: LogRows) -> list[ConstantFeature]:
    checks = []
    for name, values in zip(NUMERICALS, train.numbers().T, strict=True):
        is_constant = bool(np.all(np.isnan(values)) or np.all(values == values[0]))
        checks.append(ConstantFeature(name, train.count, is_constant, False))
    for name in CATEGORICALS:
        ids = train.ids(name)
        checks.append(ConstantFeature(name, train.count, bool((ids == ids[0]).all()), ids[0] == 0))
    return checks


def _unknown(splits: dict[str, LogRows], train: LogRows, vocabulary: str) -> list[Check]:
    """Returns for each column the share of id 0 of the split that has the largest one."""
    checks: list[Check] = []
    for name in CATEGORICALS if splits else ():
        trained = float(np.mean(train.ids(name) == 0))
        shares = {}
        for split, rows in splits.items():
            ids = rows.ids(name)
            shares[split] = (float(np.mean(ids == 0)), len(ids))
        split = max(shares, key=lambda split: shares[split])
        share, count = shares[split]
        own = MoreUnknownIds(name, name, split, share, trained, count, vocabulary=vocabulary)
        checks.append(own)
    return checks


def _repeated(splits: dict[str, LogRows]) -> RepeatedRows:
    """Returns how many rows are in train, too, of the split with the largest share."""
    sizes = [rows.count for rows in splits.values()]
    labels = np.concatenate([rows.labels() for rows in splits.values()])
    keys = np.concatenate([rows.keys() for rows in splits.values()])
    _, groups = np.unique(keys, return_inverse=True)
    counts, clicks = np.bincount(groups), np.bincount(groups[labels], minlength=groups.max() + 1)
    is_mixed = (clicks > 0) & (clicks < counts)
    is_known = np.bincount(groups[: sizes[0]], minlength=len(counts)) > 0
    rate = float(labels[: sizes[0]].mean())
    checks, start = [], sizes[0]
    for split, size in zip([*splits][1:], sizes[1:], strict=True):
        own = groups[start : start + size]
        repeated = int(is_known[own].sum())
        different = int((is_known & is_mixed)[own].sum())
        expected = repeated * 2 * rate * (1 - rate)
        checks.append(RepeatedRows(split, size, repeated, different, expected, is_divided=False))
        start += size
    return max(checks, key=lambda check: check.repeated / max(check.rows, 1))
