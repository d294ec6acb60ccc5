"""Small data sets of interactions: a user likes the items of one group, and some more at random."""

import numpy as np
import yaml

USERS, ITEMS, GROUPS, NEGATIVES = 60, 40, 4, 12


def write(folder, interactions=8, mappings=("train", "test"), seed=0, users=USERS):
    """Writes `interactions` training rows of each user, and a series of each other mapping."""
    rng = np.random.default_rng(seed)
    liked = np.arange(ITEMS).reshape(-1, GROUPS).T  # items of each group
    own = rng.permuted(liked[np.arange(users) % GROUPS], axis=1)
    user = np.arange(users)
    columns = {}
    for number, mapping in enumerate(mappings):
        if mapping == "train":
            items = own[:, -interactions:]
            columns[mapping] = {"user": np.repeat(user, items.shape[1]), "item": items.ravel()}
            continue
        # What a user does not like is everything else.
        other = (user[:, None] + rng.integers(1, GROUPS, [users, NEGATIVES])) % GROUPS
        negatives = other + GROUPS * rng.integers(0, ITEMS // GROUPS, other.shape)
        items = np.concatenate([own[:, [number - 1]], negatives], axis=1)
        columns[mapping] = {
            "user": np.repeat(user, items.shape[1]),
            "item": items.ravel(),
            "label": np.tile(np.arange(items.shape[1]) == 0, users),
        }
    store(folder, columns, users)


def store(folder, columns, users=USERS, items=ITEMS, series=1 + NEGATIVES):
    """Writes columns of each mapping as a data set."""
    folder.mkdir(parents=True, exist_ok=True)
    source = {}
    for mapping, of in columns.items():
        for name, values in of.items():
            dtype = bool if name == "label" else np.int32
            np.asarray(values).astype(dtype).tofile(folder / f"{mapping}_{name}.bin")
        source[mapping] = [
            {"type": "split_binary", "features": [name], "files": [f"{mapping}_{name}.bin"]}
            for name in of
        ]
    spec = {
        "feature_spec": {
            "user": {"dtype": "int32", "cardinality": users},
            "item": {"dtype": "int32", "cardinality": items},
            "label": {"dtype": "bool"},
        },
        "source_spec": source,
        "channel_spec": {"user": ["user"], "item": ["item"], "label": ["label"]},
        "metadata": {
            f"{mapping}_samples_per_series": series
            for mapping in columns
            if "label" in columns[mapping]
        },
    }
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
