"""Samples of a log: events after others of their user, as a data set of ranges of events.

Event i of a user, counted from 0, with at least one earlier event is the target of a row, and the
events before it are its history. A user's last event is for the test, the one before it for
validation (if requested), all others are for training. Rows are in the order of users and events.

    events/FEATURE.bin  int32, a feature of the item of each event, by user, then time
    SPLIT/rows.bin      int32, the features of the user and of the target item of each row
    SPLIT/ranges.bin    int64, the user's first event and the end of the history of each row
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dataloading.spec import feature_spec as fs
from dataloading.spec import history_channels
from dataloading.spec.feature_spec import FeatureSpec
from preproc.checks.report import Finding
from runtime.files.disk import write_errors_name

_LABEL = "label"
_BLOCK = 1 << 18  # events at a time


@dataclass(frozen=True)
class NumberedLog:
    """Ids instead of raw values. They start at 1 and follow the values upwards (numbers as numbers,
    text by its UTF-8 bytes); only what occurs in a kept event has one. A missing feature counts as
    a value below all others, so that it has id 1 where it occurs.
    """

    # a file of int32, the item ids of all kept events, by user id, then time, then tie order
    events: Path
    num_events: np.ndarray  # how many of these each user has, int64 [num_users], by user id from 1
    # user_features, item_features: the ids of each feature, int32 [num_users + 1] and
    # [num_items + 1]; element 0 is 0
    user_features: tuple[np.ndarray, ...]
    item_features: tuple[np.ndarray, ...]
    num_items: int  # how many items occur
    num_users_before: int  # users of the log, also those with too few events
    checks: tuple[Finding, ...] = ()
    # of each feature, as messages call it: users or items that have no value of it
    num_missing: dict[str, int] = field(default_factory=dict)
    # "user" and "item" -> Parquet file of the raw values in the order of their ids, and of their
    # kept events: columns value and count
    vocabularies: dict[str, Path] = field(default_factory=dict)

    @property
    def num_users(self) -> int:
        return len(self.num_events)

    @functools.cached_property
    def user_starts(self) -> np.ndarray:
        """First event of each user, and the end of the last one's, int64 [num_users + 1]."""
        return np.concatenate([[0], np.cumsum(self.num_events)])

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """The largest id + 1 of users, their features, items, their features."""
        return (
            self.num_users + 1,
            *(int(ids.max()) + 1 for ids in self.user_features),
            self.num_items + 1,
            *(int(ids.max()) + 1 for ids in self.item_features),
        )


@dataclass(frozen=True)
class ColumnNames:
    """Names of the features.

    user, item: the id first. Features of items are <name>_trgt, <name>_pos and <name>_neg.

    Raises:
        ValueError: two features would have one name.
    """

    user: tuple[str, ...]
    item: tuple[str, ...]

    def __post_init__(self):
        histories = (f"{name}_{kind}" for kind in ("pos", "neg") for name in self.item)
        names = [_LABEL, *self.user, *self.target, *histories]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two columns of the data set would be called {name}; rename a feature of "
                    "--user_features or --item_features in its file"
                )

    @property
    def target(self) -> tuple[str, ...]:
        return tuple(f"{name}_trgt" for name in self.item)


def spec_of(
    log: NumberedLog, columns: ColumnNames, splits: list[str], max_history: int, metadata: dict
) -> FeatureSpec:
    """Returns the feature spec of the files that `write_events` and `write_split` write.

    Raises:
        ValueError: a single item occurs.
    """
    if log.num_items < 2:
        raise ValueError(
            "one item occurs in all events: there is no other one to draw negatives from"
        )
    sizes = dict(zip((*columns.user, *columns.item), log.cardinalities, strict=True))
    features = {_LABEL: {"dtype": "bool"}}
    for name in columns.user:
        features[name] = {"dtype": "int32", "cardinality": sizes[name]}
    for kind, shape in (
        ("trgt", {}),
        *((h, {"dimensions": [max_history]}) for h in ("pos", "neg")),
    ):
        for name in columns.item:
            features[f"{name}_{kind}"] = {"dtype": "int32", "cardinality": sizes[name], **shape}
    positive, negative = ([f"{n}_{kind}" for n in columns.item] for kind in ("pos", "neg"))
    fixed, events = [*columns.user, *columns.target], [f"events/{n}.bin" for n in columns.item]
    chunk_types = history_channels.FIXED_TYPE, history_channels.RANGES_TYPE
    sources = {}
    for split in splits:
        contents = (fixed, [f"{split}/rows.bin"]), (positive, [f"{split}/ranges.bin", *events])
        sources[split] = [
            {"type": kind, "features": names, "files": files}
            for kind, (names, files) in zip(chunk_types, contents, strict=True)
        ]
    channels = {
        fs.LABEL_CHANNEL: [_LABEL],
        history_channels.USER_CHANNEL: list(columns.user),
        history_channels.TARGET_CHANNEL: list(columns.target),
        history_channels.POSITIVE_CHANNEL: positive,
        fs.NEGATIVE_CHANNEL: negative,
    }
    return FeatureSpec(features, sources, channels, metadata)


def write_events(log: NumberedLog, folder: Path, columns: ColumnNames) -> None:
    """Writes the features of the items of all events, as files of this new folder."""
    folder.mkdir()
    items = np.memmap(log.events, np.int32, "r")
    tables = [np.arange(log.num_items + 1, dtype=np.int32), *log.item_features]
    for name, table in zip(columns.item, tables, strict=True):
        path = folder / f"{name}.bin"
        with write_errors_name(path), open(path, "wb") as file:
            for start in range(0, len(items), _BLOCK):
                file.write(table[items[start : start + _BLOCK]])


def write_split(
    log: NumberedLog, folder: Path, with_validation: bool, min_training_history: int
) -> int:
    """Writes the rows of a split, after which the new folder is called; returns their number.

    Args:
        with_validation: whether the event before the last is for validation.
        min_training_history: events before each training sample, at least 1.
    """
    folder.mkdir()
    items = np.memmap(log.events, np.int32, "r")
    paths, num_rows = (folder / "rows.bin", folder / "ranges.bin"), 0
    with write_errors_name(folder), open(paths[0], "wb") as rows, open(paths[1], "wb") as ranges:
        for users, events in _targets(log, folder.name, with_validation, min_training_history):
            first = log.user_starts[users - 1]
            targets = items[first + events]
            features = [users, *(ids[users] for ids in log.user_features)]
            features += [targets, *(ids[targets] for ids in log.item_features)]
            rows.write(np.stack(features, axis=1).astype(np.int32))
            ranges.write(np.stack([first, first + events], axis=1))
            num_rows += len(users)
    return num_rows


def _targets(
    log: NumberedLog, split: str, with_validation: bool, min_training_history: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields users, by id, and the events of each that are targets, by number; int64 [n]."""
    starts = np.arange(0, log.user_starts[-1], _BLOCK)
    bounds = np.unique(np.searchsorted(log.user_starts, starts, side="right") - 1)
    for start, stop in itertools.pairwise([*bounds.tolist(), log.num_users]):
        last = log.num_events[start:stop] - 1
        if split == fs.TEST:
            begin, end = last, last + 1
        elif split == fs.VALIDATION:
            begin, end = np.maximum(last - 1, 1), last
        else:
            assert split == fs.TRAIN, split
            begin, end = np.full_like(last, min_training_history), last - with_validation
        counts = np.maximum(end - begin, 0)
        ends = np.cumsum(counts)
        users = np.repeat(np.arange(start + 1, stop + 1), counts)
        yield users, np.arange(len(users)) + np.repeat(begin - (ends - counts), counts)
