"""Stored users and items, read whole and checked: interactions, and series to be ranked.

An interaction is a user and an item that belong together, a positive. A series is what one user is
asked in an evaluation: one positive and its negatives, in neighbouring rows.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.interactions.candidate_rules import broken_series, series_key, series_length
from dataloading.interactions.unseen_items import MOST_IDS, keys_of
from dataloading.pipeline.checks import check_ids, check_labels
from dataloading.pipeline.chunk_reader import spans_of, stored_dtype
from dataloading.spec.feature_spec import (
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    TEST,
    TRAIN,
    USER_CHANNEL,
    VALIDATION,
    FeatureSpec,
)

_READER = "a model of users and items"


class Interactions(NamedTuple):
    """Row i: user and item of the i-th interaction, both int32 `[n]`."""

    users: np.ndarray
    items: np.ndarray


class Series(NamedTuple):
    """Candidate lists of n users.

    users: int32 `[n]`; a user may have several series.
    items: int32 `[n, length]`.
    labels: bool `[n, length]`, exactly one True in a row; None where no labels were read.
    """

    users: np.ndarray
    items: np.ndarray
    labels: np.ndarray | None


def check_channels(spec: FeatureSpec, mapping: str) -> None:
    """Raises ValueError unless the mapping stores one user and one item a row, as split binaries,
    and, where there are labels, one label."""
    channels = (USER_CHANNEL, ITEM_CHANNEL)
    spec.require(
        _READER,
        channels=channels,
        mappings=(mapping,),
        chunk_types=("split_binary",),
        id_channels=channels,
    )
    for channel in channels:
        features = spec.channel(channel)
        if len(features) != 1 or spec.hotness(features[0]) != 1:
            raise ValueError(
                f"{spec.origin}: channel_spec: channel '{channel}': {len(features)} features "
                f"({', '.join(features)}) of {[spec.hotness(name) for name in features]} values "
                f"per row; {_READER} needs one feature of one value"
            )
        if spec.cardinality(features[0]) > MOST_IDS:
            raise ValueError(
                f"{spec.origin}: feature_spec: feature '{features[0]}': cardinality is "
                f"{spec.cardinality(features[0])}; {_READER} allows at most {MOST_IDS}"
            )
    if LABEL_CHANNEL in spec.channel_spec:
        spec.require(_READER, channels=(*channels, LABEL_CHANNEL))


def num_users_and_items(spec: FeatureSpec) -> tuple[int, int]:
    """Cardinalities of the two channels."""
    return spec.cardinalities(USER_CHANNEL)[0], spec.cardinalities(ITEM_CHANNEL)[0]


def stores_labels(spec: FeatureSpec, mapping: str) -> bool:
    """Returns whether the mapping has labels; otherwise every row is an interaction."""
    stored = {name for chunk in spec.source_spec[mapping] for name in chunk.features}
    return bool(stored.intersection(spec.channel_spec.get(LABEL_CHANNEL, ())))


def length_of_series(spec: FeatureSpec, mapping: str) -> int | None:
    """Rows of a series of a mapping; None: it holds positives only, a row each.

    Raises:
        ValueError: see `check_channels` and `series_length`.
    """
    check_channels(spec, mapping)
    return series_length(mapping, spec.metadata, stores_labels(spec, mapping), spec.origin)


def read_interactions(spec: FeatureSpec, mapping: str) -> Interactions:
    """The rows of a mapping of positives only: `train`, whose labels may be there and must be 1, or
    one without labels.

    Raises:
        ValueError: the spec lacks something, the mapping holds series, a file is missing or not
            whole, the mapping is empty, an id is out of range, or a label is not 1; the message has
            file and row.
    """
    length = length_of_series(spec, mapping)
    if length is not None:
        raise ValueError(
            f"{spec.origin}: mapping '{mapping}' holds series of {length} rows "
            f"({series_key(mapping)}); allowed: rows that are interactions, all of them"
        )
    user, item, *labels = _read(spec, mapping, with_labels=stores_labels(spec, mapping))
    for label in labels:
        if not label.values.all():
            raise ValueError(
                label.where(label.values == 0) + "; every row of this mapping is an interaction, "
                "and negatives are drawn: leave out the rows of label 0, and the label"
            )
    return Interactions(user.values.astype(np.int32), item.values.astype(np.int32))


def read_series(spec: FeatureSpec, mapping: str) -> Series:
    """The series of a mapping with labels.

    Raises:
        ValueError: as `read_interactions`, or the mapping holds positives only, or the rows are not
            series of the length in the metadata.
    """
    length = length_of_series(spec, mapping)
    if length is None:
        raise ValueError(
            f"{spec.origin}: mapping '{mapping}' holds no series: every row is an interaction, as "
            f"there is no {series_key(mapping)} in the metadata; allowed: rows in series"
        )
    user, item, label = _read(spec, mapping, with_labels=True)
    num_rows = len(label.values)
    if num_rows % length:
        raise ValueError(
            f"{spec.origin}: mapping '{mapping}' has {num_rows} rows, not a multiple of the "
            f"{length} of a series (metadata: {series_key(mapping)}). Is a file cut off?"
        )
    users = user.values.reshape(-1, length)
    labels = label.values.reshape(-1, length).astype(bool)
    of_several, not_one = broken_series(users, labels)
    if of_several.any():
        others = users != users[:, :1]
        raise ValueError(
            user.where(others.ravel()) + f", and {users[np.argmax(of_several), 0]} in the row that "
            f"begins its series; the {length} rows of a series ({series_key(mapping)}) have one "
            "user"
        )
    if not_one.any():
        bad = int(np.argmax(not_one))
        row, file, row_in_file = label.locate(bad * length)
        raise ValueError(
            f"{spec.origin}: mapping '{mapping}': the series of {length} rows that begins in row "
            f"{row} (row {row_in_file} of file '{file}', both counted from 0) has "
            f"{np.count_nonzero(labels[bad])} labels of 1; a series has exactly one "
            f"({series_key(mapping)})"
        )
    items = item.values.astype(np.int32).reshape(-1, length)
    return Series(users[:, 0].astype(np.int32), items, labels)


def read_pairs(spec: FeatureSpec, mapping: str) -> Series:
    """The rows of any mapping as series of one row, without labels: to predict.

    Raises:
        ValueError: as `read_interactions`; labels are not looked at, and their files may be absent.
    """
    check_channels(spec, mapping)
    user, item = _read(spec, mapping, with_labels=False)
    return Series(user.values.astype(np.int32), item.values.astype(np.int32)[:, None], None)


def touched_keys(spec: FeatureSpec, evaluated: str) -> np.ndarray:
    """The keys (`keys_of`) of what users are known to have touched, int64 `[m]`, ascending.

    These are the interactions of `train`, `validation`, `test` and the mapping `evaluated`, as far
    as they are there. Any other mapping may hold pairs to predict, which may be untouched.

    Raises:
        ValueError: as `read_interactions` and `read_series`.
    """
    num_items = num_users_and_items(spec)[1]
    keys = []
    for mapping in dict.fromkeys((TRAIN, VALIDATION, TEST, evaluated)):
        if mapping not in spec.source_spec:
            continue
        if length_of_series(spec, mapping) is None:
            users, items = read_interactions(spec, mapping)
        else:
            users, items, labels = read_series(spec, mapping)
            items = items[labels]
        keys.append(keys_of(users, items, num_items))
    return np.unique(np.concatenate(keys))


class _Column:
    """All values of a feature, as they are stored, and where each comes from.

    Args:
        name: of data set, mapping and feature, for messages.
        parts: the values of each file, `[rows]`.
        files: as many names.
    """

    def __init__(self, name: str, parts: Sequence[np.ndarray], files: Sequence[str]):
        self.values = np.concatenate(parts)
        self._name = name
        self._files = files
        self._first_rows = np.cumsum([0, *map(len, parts)]).tolist()

    def locate(self, row: int) -> tuple[int, str, int]:
        """(row, the file that holds it, the row's number in it)."""
        part = bisect.bisect_right(self._first_rows, row) - 1
        return row, self._files[part], row - self._first_rows[part]

    def where(self, bad: np.ndarray) -> str:
        """Returns the first invalid value and its location."""
        row, file, row_in_file = self.locate(int(np.argmax(bad)))
        return (
            f"{self._name}: found {self.values[row]} in row {row} (row {row_in_file} of file "
            f"'{file}', both counted from 0)"
        )


def _read(spec: FeatureSpec, mapping: str, with_labels: bool) -> list[_Column]:
    """Users, items and, if requested, labels of a mapping, each of them checked."""
    channels = (USER_CHANNEL, ITEM_CHANNEL, *((LABEL_CHANNEL,) if with_labels else ()))
    features = [spec.channel(channel)[0] for channel in channels]
    of_feature = {
        feature: number
        for number, chunk in enumerate(spec.source_spec[mapping])
        for feature in chunk.features
    }
    spec.validate_files(mapping, sorted({of_feature[feature] for feature in features}))
    columns = [_read_column(spec, mapping, feature, of_feature[feature]) for feature in features]
    user, item, *labels = columns
    for column, cardinality in zip((user, item), num_users_and_items(spec), strict=True):
        check_ids(column.values, cardinality, column.where)
    for label in labels:
        check_labels(label.values, label.where)
    return columns


def _read_column(spec: FeatureSpec, mapping: str, feature: str, chunk: int) -> _Column:
    stored = spec.source_spec[mapping][chunk]
    files, dtype = stored.files, stored_dtype(spec, feature)
    width = spec.row_bytes(stored) // dtype.itemsize
    position = spans_of(spec, stored, chunk)[feature].begin
    parts = [
        np.fromfile(spec.base_directory / file, dtype).reshape(-1, width)[:, position]
        for file in files
    ]
    if not sum(map(len, parts)):
        raise ValueError(f"{spec.origin}: source_spec: mapping '{mapping}' has no rows")
    return _Column(f"{spec.origin}: mapping '{mapping}': feature '{feature}'", parts, files)
