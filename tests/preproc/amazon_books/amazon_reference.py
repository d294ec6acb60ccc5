"""Reference of the preparation of histories in plain Python, which every engine must match."""

from pathlib import Path

from config import command
from dataloading.histories.dataset import blocks
from dataloading.spec.feature_spec import FeatureSpec
from preproc.histories import options
from tests.preproc.events.hashed_rows import hashed_row

_BITS = (1 << 64) - 1


def parse(argv):
    return command.parse(
        options.HistoryOptions, argv, "preproc.histories", defaults={"input_format": options.AMAZON}
    )


def ordered(value):
    """Returns a sort key: missing values first, then numbers, then text by its bytes."""
    if value is None:
        return (0, 0)
    return (2, value.encode()) if isinstance(value, str) else (1, value)


def ids_of(values) -> dict:
    return {value: i for i, value in enumerate(sorted(set(values), key=ordered), 1)}


def random_64(*parts: int) -> int:
    key = 0
    for part in parts:
        key = (key + (part + 1) * 0x9E3779B97F4A7C15) & _BITS
        key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _BITS
        key ^= key >> 31
    return key


def negative(place: tuple[int, ...], positive: int, num_items: int) -> int:
    """place: seed, user, event, label, step."""
    item = 1 + random_64(*place) * (num_items - 1) // 2**64
    return item + 1 if item >= positive else item


def popular_negative(place: tuple[int, ...], events: list[int]) -> int:
    """events: the items of all events, by user, then time."""
    return events[random_64(*place) * len(events) // 2**64]


def prepare(
    events: list[tuple],
    item_features: list[dict] = (),
    user_features: list[dict] = (),
    *,
    min_events: int,
    max_history: int,
    seed: int = 0,
    validation_event: bool = False,
    popularity: bool = False,
    hashed_ties: bool = False,
) -> tuple[dict[str, list[tuple]], list[int]]:
    """Returns the rows of each split, and the cardinalities.

    Args:
        events: (user, item, time).
        item_features, user_features: for each feature, the raw value of an item or user.
        hashed_ties: whether events of a user and time are in an order by hash.
    """
    histories = {}
    for row, (user, item, time) in enumerate(events):
        place = hashed_row(row, seed) if hashed_ties else row
        histories.setdefault(user, []).append((time, place, item))
    histories = {user: sorted(own) for user, own in histories.items() if len(own) >= min_events}
    users = ids_of(histories)
    items = ids_of(item for own in histories.values() for _, _, item in own)
    item_ids = [{0: 0} | {i: i for i in items.values()}]
    for feature in item_features:
        ids = ids_of(feature.get(item) for item in items)
        item_ids.append({0: 0} | {items[item]: ids[feature.get(item)] for item in items})
    user_ids = [{user: users[user] for user in users}]
    for feature in user_features:
        ids = ids_of(feature.get(user) for user in users)
        user_ids.append({user: ids[feature.get(user)] for user in users})

    every_event = [
        items[item] for user in sorted(histories, key=ordered) for _, _, item in histories[user]
    ]
    rows = {"train": [], "test": []} | ({"validation": []} if validation_event else {})
    for user in sorted(histories, key=ordered):
        own = [items[item] for _, _, item in histories[user]]
        for event in range(1, len(own)):
            split = "train"
            if event == len(own) - 1:
                split = "test"
            elif event == len(own) - 2 and validation_event:
                split = "validation"
            positives = ([0] * max_history + own[:event])[-max_history:]
            for label in (1, 0):

                def other(item, step, place=(seed, users[user], event, label)):
                    if popularity:
                        return item and popular_negative((*place, step), every_event)
                    return item and negative((*place, step), item, len(items))

                negatives = [other(item, max_history - i) for i, item in enumerate(positives)]
                target = own[event] if label else other(own[event], 0)
                rows[split].append(
                    (
                        label,
                        *(ids[user] for ids in user_ids),
                        *(ids[target] for ids in item_ids),
                        *([ids[item] for item in positives] for ids in item_ids),
                        *([ids[item] for item in negatives] for ids in item_ids),
                    )
                )
    cardinalities = [max(ids.values()) + 1 for ids in (*user_ids, *item_ids)]
    return rows, cardinalities


def rows_of(data_set: Path) -> dict[str, list[tuple]]:
    spec = FeatureSpec.from_yaml(data_set / "feature_spec.yaml")
    rows = {}
    for split in spec.source_spec:
        rows[split] = []
        for arrays in blocks(spec, split, spec.feature_spec) if spec.num_samples(split) else ():
            columns = [
                a[:, 0] if a.shape[1] == 1 and not n.endswith(("_pos", "_neg")) else a
                for n, a in zip(spec.feature_spec, arrays, strict=True)
            ]
            rows[split] += zip(*(column.tolist() for column in columns), strict=True)
    return rows
