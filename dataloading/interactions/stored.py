"""Stored users and items, read whole and checked: interactions, and candidate lists.

An interaction is a user and an item that belong together, a positive. A candidate list is one
positive and its negatives, of one user, in neighboring rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.formats.open_chunk import FIXED_TYPES, open_features
from dataloading.interactions.candidate_rules import (
    broken_lists,
    candidate_list_length,
    list_length_key,
)
from dataloading.interactions.unseen_items import MOST_IDS, keys_of
from dataloading.keys.distinct import distinct
from dataloading.pipeline.columns import Role
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec

_READER = "a model of users and items"


class Interactions(NamedTuple):
    """Users and items of n interactions, both int32 `[n]`."""

    users: np.ndarray
    items: np.ndarray


class CandidateArrays(NamedTuple):
    """Candidate lists of n users, who may have several."""

    users: np.ndarray  # int32 [n]
    items: np.ndarray  # int32 [n, length]
    labels: np.ndarray | None  # bool [n, length], one True per candidate list; None where not read


def check_channels(spec: FeatureSpec, split: str) -> None:
    """Raises ValueError unless the split stores one user, one item and at most one label per row,
    as split binaries or files of tensors."""
    channels = (fs.USER_CHANNEL, fs.ITEM_CHANNEL)
    spec.require(
        _READER,
        channels=channels,
        splits=(split,),
        chunk_types=FIXED_TYPES,
        id_channels=channels,
    )
    for channel in channels:
        spec.require_one_value(channel, _READER)
        if (num_ids := spec.cardinalities(channel)[0]) > MOST_IDS:
            raise ValueError(
                f"{spec.origin}: feature_spec: feature '{spec.channel(channel)[0]}': cardinality "
                f"is {num_ids}; {_READER} allows at most {MOST_IDS}"
            )
    if fs.LABEL_CHANNEL in spec.channel_spec:
        spec.require(_READER, channels=(*channels, fs.LABEL_CHANNEL))


def num_users_and_items(spec: FeatureSpec) -> tuple[int, int]:
    """Returns the cardinalities of the two channels."""
    return spec.cardinalities(fs.USER_CHANNEL)[0], spec.cardinalities(fs.ITEM_CHANNEL)[0]


def stores_labels(spec: FeatureSpec, split: str) -> bool:
    """Returns whether the split has labels; otherwise every row is an interaction."""
    stored = {name for chunk in spec.source_spec[split] for name in chunk.features}
    return bool(stored.intersection(spec.channel_spec.get(fs.LABEL_CHANNEL, ())))


def length_of_lists(spec: FeatureSpec, split: str) -> int | None:
    """Returns the rows per candidate list of a split; None: it holds positives only."""
    check_channels(spec, split)
    return candidate_list_length(split, spec.metadata, stores_labels(spec, split), spec.origin)


def read_interactions(spec: FeatureSpec, split: str) -> Interactions:
    """Returns the rows of a split without candidate lists whose label, if there is one, is 1.

    Raises:
        ValueError: see `read_training_rows`.
    """
    users, items, labels = read_training_rows(spec, split)
    rows = slice(None) if labels is None else labels
    return Interactions(users[rows], items[rows])


def read_training_rows(
    spec: FeatureSpec, split: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns users and items, int32 [n], and labels, bool [n], of a split without candidate lists.

    A row of label 0 is a stored negative, which only `train` may have. None stands for labels that
    are all 1.

    Raises:
        ValueError: the spec or a file does not fit, the split holds candidate lists, an id is out
            of range, or a label is neither 0 nor 1.
    """
    length = length_of_lists(spec, split)
    if length is not None:
        raise ValueError(
            f"{spec.origin}: split '{split}' holds candidate lists of {length} rows "
            f"({list_length_key(split)}); expected rows that are interactions, all of them"
        )
    rows = _Rows(spec, split, with_labels=stores_labels(spec, split))
    labels = None
    if rows.labels is not None and not rows.labels.all():
        labels = rows.labels.ravel().astype(bool)
    return rows.users.ravel(), rows.items.ravel(), labels


def read_candidate_lists(spec: FeatureSpec, split: str) -> CandidateArrays:
    """Returns the candidate lists of a split that has some (`length_of_lists`).

    Raises:
        ValueError: the spec or a file does not fit, an id is out of range, or the rows are not
            candidate lists of the length in the metadata.
    """
    length = length_of_lists(spec, split)
    rows = _Rows(spec, split, with_labels=True)
    if len(rows.labels) % length:
        raise ValueError(
            f"{spec.origin}: split '{split}' has {len(rows.labels)} rows, not a multiple of "
            f"the {length} of a candidate list (metadata: {list_length_key(split)}). Is a file cut "
            "off?"
        )
    users = rows.users.reshape(-1, length)
    labels = rows.labels.reshape(-1, length).astype(bool)
    user_column, _, label_column = rows.reader.columns
    has_several_users, is_not_one_positive = broken_lists(users, labels)
    if has_several_users.any():
        others = (users != users[:, :1]).reshape(-1, 1)
        place = rows.reader.location(user_column, range(len(others)), rows.users, others)
        raise ValueError(
            f"{place}, and {users[np.argmax(has_several_users), 0]} in the row that begins its "
            f"candidate list; the {length} rows of a list ({list_length_key(split)}) have one user"
        )
    if is_not_one_positive.any():
        invalid = int(np.argmax(is_not_one_positive))
        place = rows.reader.place(label_column, invalid * length)
        raise ValueError(
            f"{spec.origin}: split '{split}': the candidate list of {length} rows that begins in "
            f"{place} has {np.count_nonzero(labels[invalid])} labels of 1; "
            f"a candidate list has exactly one ({list_length_key(split)})"
        )
    return CandidateArrays(users[:, 0], rows.items.reshape(-1, length), labels)


def read_pairs(spec: FeatureSpec, split: str) -> CandidateArrays:
    """Returns the rows of any split as lists of one row, to predict; labels are not read."""
    check_channels(spec, split)
    rows = _Rows(spec, split, with_labels=False)
    return CandidateArrays(rows.users.ravel(), rows.items, None)


def touched_keys(spec: FeatureSpec, evaluated: str) -> np.ndarray:
    """Returns the keys (`keys_of`) of the items that users have touched, int64 `[m]`, ascending.

    These are the interactions of `train`, `validation`, `test` and the split `evaluated`, as far
    as they are there. Any other split may hold pairs to predict, which may be untouched.
    """
    return positive_keys(spec, (fs.TRAIN, fs.VALIDATION, fs.TEST, evaluated))


def count_of_items(spec: FeatureSpec) -> np.ndarray:
    """Returns the number of interactions of each item in train, int64 `[items]`."""
    items = read_interactions(spec, fs.TRAIN).items
    return np.bincount(items, minlength=num_users_and_items(spec)[1])


def positive_keys(spec: FeatureSpec, splits: Sequence[str]) -> np.ndarray:
    """Returns the keys (`keys_of`) of the interactions of splits, as far as they are there, int64
    `[m]`, ascending."""
    num_items = num_users_and_items(spec)[1]
    keys = [np.empty(0, np.int64)]
    for split in dict.fromkeys(splits):
        if split not in spec.source_spec:
            continue
        if length_of_lists(spec, split) is None:
            users, items = read_interactions(spec, split)
        else:
            users, items, labels = read_candidate_lists(spec, split)
            items = items[labels]
        keys.append(keys_of(users, items, num_items))
    return distinct(np.concatenate(keys))


class _Rows:
    """All rows of a split, checked: users, items (int32) and, if requested, labels, `[n, 1]`."""

    def __init__(self, spec: FeatureSpec, split: str, with_labels: bool):
        roles = {fs.USER_CHANNEL: Role.CATEGORICAL, fs.ITEM_CHANNEL: Role.CATEGORICAL}
        if with_labels:
            roles[fs.LABEL_CHANNEL] = Role.LABEL
        features = {spec.channel(channel)[0]: role for channel, role in roles.items()}
        self.reader = open_features(spec, split, features)
        rows = range(self.reader.num_samples)
        users, items, *labels = self.reader.read(rows, self.reader.columns)
        self.users, self.items = users.astype(np.int32), items.astype(np.int32)
        self.labels = labels[0] if labels else None
