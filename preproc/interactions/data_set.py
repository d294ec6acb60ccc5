"""The files of a prepared data set: interactions to train on, candidate lists."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataloading.interactions.unseen_items import keys_of
from dataloading.keys.distinct import distinct
from dataloading.spec import feature_spec as fs
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from runtime.files.disk import write_errors_name

ID_DTYPE, LABEL_DTYPE = np.dtype("<i4"), np.dtype("?")
_USER, _ITEM, _LABEL = "user", "item", "label"
_LISTS = 1 << 13  # candidate lists written at a time


@dataclass(frozen=True)
class CandidateLists:
    """Candidate lists: users [n], one positive item each, [n], and negatives [n, k]."""

    users: np.ndarray
    items: np.ndarray
    negatives: np.ndarray

    @property
    def rows_per_list(self) -> int:
        return 1 + self.negatives.shape[1]


def write_train(folder: Path, interactions: Iterable[tuple[np.ndarray, np.ndarray]]) -> int:
    """Writes users and items, [n] each, some at a time; returns their number."""
    paths = _files(folder, fs.TRAIN, (_USER, _ITEM))
    num_rows = 0
    with open(paths[0], "wb") as user_file, open(paths[1], "wb") as item_file:
        for users, items in interactions:
            _put(user_file, users, ID_DTYPE)
            _put(item_file, items, ID_DTYPE)
            num_rows += len(users)
    return num_rows


def touched_keys(
    folder: Path, num_items: int, held_out: Iterable[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Returns the keys (`keys_of`) of training rows and held-out pairs, ascending, each once."""
    user_file, item_file = _files(folder, fs.TRAIN, (_USER, _ITEM))
    pairs = [(np.fromfile(user_file, ID_DTYPE), np.fromfile(item_file, ID_DTYPE)), *held_out]
    keys = [keys_of(users, items, num_items) for users, items in pairs]
    del pairs
    keys = np.concatenate(keys)
    keys.sort()  # in place: there may be many
    return distinct(keys) if np.any(keys[1:] == keys[:-1]) else keys


def write_candidate_lists(folder: Path, split: str, candidates: CandidateLists) -> None:
    """Writes for each user the positive item, with label 1, then the negatives."""
    user_path, item_path, label_path = _files(folder, split, (_USER, _ITEM, _LABEL))
    length = candidates.rows_per_list
    with (
        open(user_path, "wb") as user_file,
        open(item_path, "wb") as item_file,
        open(label_path, "wb") as label_file,
    ):
        for start in range(0, len(candidates.users), _LISTS):
            block = slice(start, start + _LISTS)
            users, items = candidates.users[block], candidates.items[block]
            labels = np.zeros((len(users), length), LABEL_DTYPE)
            labels[:, 0] = True
            _put(user_file, np.repeat(users, length), ID_DTYPE)
            _put(item_file, np.column_stack([items, candidates.negatives[block]]), ID_DTYPE)
            _put(label_file, labels, LABEL_DTYPE)


def write_spec(
    folder: Path, cardinalities: tuple[int, int], evaluation_splits: Iterable[str], metadata: dict
) -> FeatureSpec:
    """Writes the feature spec; cardinalities: of users and items."""
    num_users, num_items = cardinalities
    features = {
        _USER: {"dtype": ID_DTYPE.name, "cardinality": num_users},
        _ITEM: {"dtype": ID_DTYPE.name, "cardinality": num_items},
        _LABEL: {"dtype": LABEL_DTYPE.name},
    }
    stored = {fs.TRAIN: (_USER, _ITEM), **dict.fromkeys(evaluation_splits, tuple(features))}
    sources = {
        split: [Chunk("split_binary", [name], [f"{split}/{name}.bin"]) for name in names]
        for split, names in stored.items()
    }
    channels = {fs.USER_CHANNEL: [_USER], fs.ITEM_CHANNEL: [_ITEM], fs.LABEL_CHANNEL: [_LABEL]}
    path = folder / SPEC_FILE
    spec = FeatureSpec(features, sources, channels, metadata, folder, str(path))
    spec.to_yaml(path)
    return spec


def _files(folder: Path, split: str, features: tuple[str, ...]) -> list[Path]:
    (folder / split).mkdir(exist_ok=True)
    return [folder / split / f"{name}.bin" for name in features]


def _put(file, values: np.ndarray, dtype: np.dtype) -> None:
    with write_errors_name(Path(file.name)):
        values.astype(dtype, copy=False).tofile(file)
