"""Users and items of a data set of histories: last samples, the catalogue, pairs that occur."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.histories.dataset import blocks
from dataloading.keys.distinct import distinct
from dataloading.spec.feature_spec import LABEL_CHANNEL, TEST, TRAIN, VALIDATION, FeatureSpec
from dataloading.spec.history_channels import draws_labels, num_ids, sequence_channels

_NONE = -1


class Catalogue(NamedTuple):
    """Items of the samples of a data set."""

    ids: np.ndarray  # item ids, int64 [n], ascending
    # ids of each feature of the item, int64 [n] each; the first is `ids`
    features: tuple[np.ndarray, ...]
    # user * num_ids + item of each pair of a user and an item that occurs as a target with label 1
    # or in a history of a split, int64, by split
    keys_of_splits: dict[str, np.ndarray]
    clicks: np.ndarray  # samples of `train` with label 1 and this target, int64 [n]

    def keys(self, splits: Sequence[str] = (TRAIN, VALIDATION, TEST)) -> np.ndarray:
        """Returns the keys of pairs that occur in these splits, int64, ascending."""
        own = [keys for split, keys in self.keys_of_splits.items() if split in splits]
        return distinct(np.concatenate([np.empty(0, np.int64), *own]))


def last_samples(spec: FeatureSpec, split: str) -> np.ndarray:
    """Returns the number of the last sample of each user id in a split, int64; -1 without any."""
    user = _user_feature(spec)
    last = np.full(num_ids(spec, user), _NONE, np.int64)
    start = 0
    for (users,) in blocks(spec, split, [user]):
        last[users[:, 0]] = np.arange(start, start + len(users))
        start += len(users)
    return last


def read_catalogue(spec: FeatureSpec) -> Catalogue:
    """Reads the items of all samples of `train`, `validation` and `test`, as far as they exist.

    Raises:
        ValueError: an item has two values of a feature, or a sample is invalid.
    """
    channels = sequence_channels(spec, with_labels=False, with_negatives=False)
    item, *others = channels.target
    num_items = num_ids(spec, item)
    table = np.full([num_items, 1 + len(others)], _NONE, np.int64)
    keys, clicks = dict[str, np.ndarray](), np.zeros(num_items, np.int64)
    labels = spec.channel_spec.get("label", ())
    for split in (TRAIN, VALIDATION, TEST):
        if split not in spec.source_spec:
            continue
        stored = {name for chunk in spec.source_spec[split] for name in chunk.features}
        label = [name for name in labels if name in stored]
        is_positive = int(draws_labels(spec, split))
        own = [np.empty(0, np.int64)]
        names = [_user_feature(spec), *channels.target, *channels.positive, *label]
        for users, *columns in blocks(spec, split, names):
            size = len(channels.target)
            targets, histories = np.concatenate(columns[:size], 1), np.stack(columns[size:][:size])
            steps = histories.transpose(1, 2, 0).reshape(-1, size).astype(np.int64)
            for rows in (targets.astype(np.int64), steps):
                _add_items(table, rows, spec, channels.target)
            positive = columns[-1] if label else is_positive
            taken = targets[:, :1] * np.not_equal(positive, 0)
            if split == TRAIN:
                clicks += np.bincount(taken[:, 0], minlength=num_items)
            took = np.concatenate([histories[0], taken], axis=1)
            pairs = users.astype(np.int64) * num_items + took
            own.append(distinct(pairs[took != 0]))
        keys[split] = distinct(np.concatenate(own))
    ids = np.flatnonzero(table[:, 0] > 0)
    return Catalogue(ids, tuple(table[ids].T), keys, clicks[ids])


def positive_samples(spec: FeatureSpec, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns number, user and target of the samples of label 1 of a split, int64 [n] each."""
    label, start, parts = spec.channel(LABEL_CHANNEL)[0], 0, list[np.ndarray]()
    target = sequence_channels(spec, with_labels=True, with_negatives=False).target[0]
    for labels, users, items in blocks(spec, split, [label, _user_feature(spec), target]):
        rows = np.flatnonzero(labels[:, 0] == 1)
        parts.append(np.stack([start + rows, users[rows, 0], items[rows, 0]]).astype(np.int64))
        start += len(labels)
    numbers, users, items = np.concatenate(parts, axis=1)
    return numbers, users, items


def _add_items(
    table: np.ndarray, rows: np.ndarray, spec: FeatureSpec, names: tuple[str, ...]
) -> None:
    """Adds rows (item, feature, ...) to the table of items; the item 0 is padding."""
    rows = rows[rows[:, 0] != 0]
    known = table[rows[:, 0]]
    new = known[:, 0] == _NONE
    table[rows[new, 0]] = rows[new]
    differs = table[rows[:, 0]] != rows
    if differs.any():
        row, column = np.argwhere(differs)[0]
        item = rows[row, 0]
        raise ValueError(
            f"{spec.origin}: the item {item} of '{names[0]}' has two values of '{names[column]}': "
            f"{table[item, column]} and {rows[row, column]}; expected one per item, so that the "
            "items can be ranked. Prepare the data again with one of them"
        )


def _user_feature(spec: FeatureSpec) -> str:
    channels = sequence_channels(spec, with_labels=False, with_negatives=False)
    if not channels.user:
        raise ValueError(
            f"{spec.origin}: channel_spec: expected a feature of the user, whose first one "
            "identifies the user, got none"
        )
    return channels.user[0]
