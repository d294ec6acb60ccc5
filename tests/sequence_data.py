"""Small data sets of histories: a user keeps to one category, and clicks an item of that."""

import numpy as np

from dataloading.formats.sequence_tfrecord.writer import sequence_spec, writes_data_set

USERS, ITEMS, CATEGORIES, LENGTH = 40, 60, 4, 12


def write(folder, rows, prebatch=0, seed=0, splits=("train", "test")):
    """Writes `rows` rows of each split; every fourth user's history is empty."""
    spec = sequence_spec(
        label="label",
        user={"user_id": USERS + 1},
        target={"item_id_trgt": ITEMS + 1, "cat_id_trgt": CATEGORIES + 1},
        positive=("item_id_pos", "cat_id_pos"),
        negative=("item_id_neg", "cat_id_neg"),
        history_length=LENGTH,
        prebatch_sizes={split: prebatch for split in splits},
    )
    rng = np.random.default_rng(seed)
    with writes_data_set(folder, spec) as writers:
        for split in splits:
            writers[split].add(draw(rng, rows))
    return spec


def draw(rng, rows):
    """Arrays [rows, values] of label, user, target and histories, in the spec's order."""
    user = rng.integers(1, USERS + 1, [rows, 1])
    label = rng.integers(0, 2, [rows, 1])
    taste = user % CATEGORIES

    def items(category):
        return 1 + category + CATEGORIES * rng.integers(0, ITEMS // CATEGORIES, category.shape)

    other = (taste + rng.integers(1, CATEGORIES, taste.shape)) % CATEGORIES
    target = items(np.where(label == 1, taste, other))
    steps = np.repeat(taste, LENGTH, axis=1)
    positive, negative = items(steps), rng.integers(1, ITEMS + 1, steps.shape)
    padding = np.arange(LENGTH) < rng.integers(0, LENGTH, [rows, 1])
    padding |= user % 4 == 0
    positive, negative = (np.where(padding, 0, ids) for ids in (positive, negative))
    return [label, user, target, category_of(target)] + [
        ids for history in (positive, negative) for ids in (history, category_of(history))
    ]


def category_of(items):
    """Returns 1 + (k - 1) % CATEGORIES for item k, and 0 for padding."""
    return np.where(items == 0, 0, 1 + (items - 1) % CATEGORIES)
