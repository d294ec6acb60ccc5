"""The preparation of ratings by pandas, in the steps of NVIDIA's NCF recipe: the peer of
`benchmarks.interaction_preparation`, which runs it.

Two steps are quicker than in the recipe: the last ratings are masked instead of found group by
group, and negatives are drawn by NumPy for all users at a time.

python -m benchmarks.pandas_interactions ratings.csv folder
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

MIN_RATINGS, NUM_NEGATIVES, SEED = 20, 100, 0
COLUMNS = ["userId", "movieId", "timestamp"]
USER, ITEM, TIME = COLUMNS


def prepare(log: Path, folder: Path) -> None:
    """Writes train/ and test/ with a file for users and one for items, int32."""
    ratings = pd.read_csv(log, usecols=COLUMNS)
    counts = ratings.groupby(USER)[USER].transform("size")
    ratings = ratings[counts >= MIN_RATINGS].copy()
    for column in (USER, ITEM):
        ratings[column] = pd.factorize(ratings[column], sort=True)[0]
    ratings = ratings.sort_values([USER, TIME, ITEM], ignore_index=True)
    ratings = ratings.drop_duplicates([USER, ITEM], ignore_index=True)
    last = ~ratings.duplicated(USER, keep="last")
    train, test = ratings[~last], ratings[last]
    num_items = int(ratings[ITEM].max()) + 1
    keys = np.sort((ratings[USER] * num_items + ratings[ITEM]).to_numpy())
    users = test[USER].to_numpy()
    items = np.column_stack([test[ITEM], unseen(users, num_items, keys)])
    for name, columns in (
        ("train", (train[USER], train[ITEM])),
        ("test", (np.repeat(users, items.shape[1]), items)),
    ):
        (folder / name).mkdir(parents=True)
        for file, values in zip(("user.bin", "item.bin"), columns, strict=True):
            np.asarray(values).astype(np.int32).tofile(folder / name / file)


def unseen(users: np.ndarray, num_items: int, keys: np.ndarray) -> np.ndarray:
    """Items that are drawn again while the user touched them, [n, NUM_NEGATIVES].

    keys: user * num_items + item of all interactions, ascending.
    """
    random = np.random.default_rng(SEED)
    drawn = random.integers(0, num_items, len(users) * NUM_NEGATIVES)
    row = np.repeat(users * num_items, NUM_NEGATIVES)
    again = np.arange(len(drawn))
    while len(again):
        sought = row[again] + drawn[again]
        place = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
        again = again[keys[place] == sought]
        drawn[again] = random.integers(0, num_items, len(again))
    return drawn.reshape(len(users), NUM_NEGATIVES)


if __name__ == "__main__":
    prepare(*map(Path, sys.argv[1:]))
