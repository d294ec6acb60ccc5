"""Checks of a prepared Criteo log: its encoded rows, and those of its vocabulary's data set.

Large splits are sampled: blocks of neighboring rows at equal distances.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from preproc.checks.drift import moved_numbers
from preproc.checks.one_class import one_class
from preproc.checks.repeated_rows import most_repeated
from preproc.checks.report import PASSED, WARNING, Finding
from preproc.checks.telling_columns import CONSTANT
from preproc.checks.unknown_values import KNOWN_LOG, OWN_LOG, unknown_share
from preproc.criteo.column_encodings import CATEGORICALS, LABEL, NUMERICALS, label_encoding
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


def check_log(spec: FeatureSpec, known: FeatureSpec | None, with_labels: bool) -> list[Finding]:
    """Returns the checks of a prepared log.

    Args:
        known: of the data set whose vocabulary encodes it; None: it has its own.
        with_labels: whether it has labels.
    """
    checks: list[Finding] = []
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
        return checks + _unknown(splits, trained, KNOWN_LOG)
    train = splits.pop(TRAIN)
    checks += _constant(train)
    checks += _unknown(splits, train, OWN_LOG)
    if splits and with_labels and train.count + sum(r.count for r in splits.values()) <= _MOST_ROWS:
        names = (TRAIN, *splits)
        checks.append(_repeated({split: LogRows(spec, split, _MOST_ROWS) for split in names}))
    return checks


def _constant(train: LogRows) -> list[Finding]:
    columns = zip(NUMERICALS, train.numbers().T, strict=True)
    checks = [
        constant_feature(name, train.count, np.all(np.isnan(values)) or np.all(values == values[0]))
        for name, values in columns
    ]
    for name in CATEGORICALS:
        ids = train.ids(name)
        checks.append(constant_feature(name, train.count, (ids == ids[0]).all(), ids[0] == 0))
    return checks


def constant_feature(
    feature: str, rows: int, has_one_value: bool, is_rare: bool = False
) -> Finding:
    """Returns whether a feature has one encoded value in all rows of train; is_rare: it is id 0."""
    what = "id 0, which stands for missing and rare values," if is_rare else "one value"
    remedy = f"remove '{feature}' from the channels of the feature spec"
    if is_rare:
        threshold = f"15,{feature.removeprefix('cat_')}:1"
        smaller = f"a smaller threshold, --frequency_threshold {threshold}"
        remedy = f"possible solutions: {smaller}; {remedy}"
    return CONSTANT.finding(
        WARNING if has_one_value and rows >= _LEAST_ROWS else PASSED,
        (feature,),
        f"'{feature}' has {what} in all rows of train",
        remedy,
    )


def _unknown(splits: dict[str, LogRows], train: LogRows, vocabulary: str) -> list[Finding]:
    """Returns for each column the share of id 0 of the split that has the largest one."""
    checks = []
    for name in CATEGORICALS if splits else ():
        trained = float(np.mean(train.ids(name) == 0))
        shares = {}
        for split, rows in splits.items():
            ids = rows.ids(name)
            shares[split] = (float(np.mean(ids == 0)), len(ids))
        split = max(shares, key=lambda split: shares[split])
        share, count = shares[split]
        checks.append(unknown_share(name, name, split, share, trained, count, vocabulary))
    return checks


def _repeated(splits: dict[str, LogRows]) -> Finding:
    """Returns whether rows are in train, too, of the split with the largest share."""
    sizes = [rows.count for rows in splits.values()]
    labels = np.concatenate([rows.labels() for rows in splits.values()])
    keys = np.concatenate([rows.keys() for rows in splits.values()])
    _, groups = np.unique(keys, return_inverse=True)
    counts, clicks = np.bincount(groups), np.bincount(groups[labels], minlength=groups.max() + 1)
    is_mixed = (clicks > 0) & (clicks < counts)
    is_known = np.bincount(groups[: sizes[0]], minlength=len(counts)) > 0
    rate = float(labels[: sizes[0]].mean())
    counted, start = [], sizes[0]
    for split, size in zip([*splits][1:], sizes[1:], strict=True):
        own = groups[start : start + size]
        repeated = int(is_known[own].sum())
        different = int((is_known & is_mixed)[own].sum())
        expected = repeated * 2 * rate * (1 - rate)
        counted.append((split, size, repeated, different, expected))
        start += size
    return most_repeated(counted, is_divided=False)
