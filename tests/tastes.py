"""Small data sets of interactions: a user likes the items of one group, and some by chance."""

import numpy as np

from tests.interaction_data import write_interactions

USERS, ITEMS, GROUPS, NEGATIVES = 60, 40, 4, 12


def write(folder, interactions=8, splits=("train", "test"), seed=0, users=USERS):
    """Writes `interactions` training rows of each user, and a list of each other split."""
    rng = np.random.default_rng(seed)
    liked = np.arange(ITEMS).reshape(-1, GROUPS).T  # items of each group
    own = rng.permuted(liked[np.arange(users) % GROUPS], axis=1)
    user = np.arange(users)
    columns = {}
    for number, split in enumerate(splits):
        if split == "train":
            items = own[:, -interactions:]
            chance = rng.integers(0, ITEMS, items.shape)
            items = np.where(rng.random(items.shape) < 0.3, chance, items)
            columns[split] = {"user": np.repeat(user, items.shape[1]), "item": items.ravel()}
            continue
        # What a user does not like is everything else.
        other = (user[:, None] + rng.integers(1, GROUPS, [users, NEGATIVES])) % GROUPS
        negatives = other + GROUPS * rng.integers(0, ITEMS // GROUPS, other.shape)
        items = np.concatenate([own[:, [number - 1]], negatives], axis=1)
        columns[split] = {
            "user": np.repeat(user, items.shape[1]),
            "item": items.ravel(),
            "label": np.tile(np.arange(items.shape[1]) == 0, users),
        }
    store(folder, columns, users)


def store(folder, columns, users=USERS):
    """Writes columns of each split as a data set."""
    lengths = {
        f"{split}_samples_per_series": 1 + NEGATIVES
        for split, features in columns.items()
        if "label" in features
    }
    spec = write_interactions(folder, users, ITEMS, columns, lengths)
    spec.to_yaml(folder / "feature_spec.yaml")
