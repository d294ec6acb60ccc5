"""The preparation of ratings as loops over dicts, and a prepared data set as arrays."""

import csv
from pathlib import Path

import numpy as np

from dataloading.spec.feature_spec import FeatureSpec
from preproc.encoding.encoder import Encoder
from preproc.movielens.__main__ import main
from tests.preproc.events.hashed_rows import hashed_row

CSV_HEADER = "userId,movieId,rating,timestamp"


def rows_of(path: Path) -> list[tuple[int, int, int]]:
    with open(path) as file:
        return [(int(u), int(i), int(t)) for u, i, _, t in list(csv.reader(file))[1:]]


def split(rows, min_ratings: int, num_held: int, hashed_ties: bool = False):
    """Returns training pairs by user and time, and the held-out items of each user, last first;
    all are raw ids. Ties are in the order of their rows, or of a hash of these."""
    times, places = {}, {}
    for row, (user, item, time) in enumerate(rows):
        times[user, item] = min(time, times.get((user, item), time))
        places.setdefault((user, item), hashed_row(row, 0) if hashed_ties else row)
    by_user = {}
    for pair in sorted(times, key=lambda pair: (times[pair], places[pair])):
        by_user.setdefault(pair[0], []).append(pair[1])
    train, stored = [], {}
    for user in sorted(by_user):
        events = by_user[user]
        if len(events) >= min_ratings:
            stored[user] = events[::-1][:num_held]
            train += [(user, item) for item in events[:-num_held]]
    return train, stored


class Prepared:
    """A data set's arrays: `arrays["train"]["user"]`; its spec; its vocabularies as lists."""

    def __init__(self, folder: Path):
        self.spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
        self.spec.validate_files()
        self.arrays = {
            split_name: {
                name: np.fromfile(folder / file, self.spec.dtype(name))
                for chunk in chunks
                for name, file in zip(chunk.features, chunk.files, strict=True)
            }
            for split_name, chunks in self.spec.source_spec.items()
        }
        self.values = {}
        for name in ("item", "user") if (folder / "encoder").is_dir() else ():
            self.values[name] = Encoder.load(folder / "encoder")[name].values.to_pylist()

    def training_pairs(self) -> list[tuple[int, int]]:
        train = self.arrays["train"]
        return list(zip(train["user"].tolist(), train["item"].tolist(), strict=True))

    def lists(self, split_name: str):
        """Returns users [lists] and items [lists, rows], whose first item is the positive one."""
        length = self.spec.metadata[f"{split_name}_samples_per_series"]
        arrays = self.arrays[split_name]
        user, item, label = (arrays[name].reshape(-1, length) for name in ("user", "item", "label"))
        assert np.all(user == user[:, :1])
        assert np.all(label[:, 0]) and not np.any(label[:, 1:])
        return user[:, 0], item

    def check_negatives(self, split_name: str):
        """Drawn negatives are distinct, and their user touched none of them in any split."""
        touched = set()
        for name, arrays in self.arrays.items():
            users, items = arrays["user"], arrays["item"]
            if name != "train":
                users, items = users[arrays["label"]], items[arrays["label"]]
            touched |= set(zip(users.tolist(), items.tolist(), strict=True))
        for user, row in zip(*self.lists(split_name), strict=True):
            assert len(set(row)) == len(row)
            assert not any((user, item) in touched for item in row[1:])


def prepared(folder: Path, *flags) -> Prepared:
    output = folder / "prepared"
    assert main([*map(str, flags), "--output", str(output), "--overwrite"]) == 0
    return Prepared(output)


def assert_same(one: Prepared, other: Prepared):
    assert one.values == other.values
    assert list(one.arrays) == list(other.arrays)
    for split_name, arrays in one.arrays.items():
        for name, array in arrays.items():
            assert np.array_equal(array, other.arrays[split_name][name]), (split_name, name)
