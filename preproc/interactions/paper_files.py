"""Files of the NCF paper as published: ids from 0, one candidate list per user, stored negatives.

    x.train.rating    user <tab> item [<tab> rating or count [<tab> time]]
    x.test.rating     the same; the item is what the user is asked about
    x.test.negative   (user,item) <tab> negative <tab> negative ..., line by line as x.test.rating

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering, WWW 2017,
https://github.com/hexiangnan/neural_collaborative_filtering
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dataloading.interactions.unseen_items import MOST_IDS, keys_of
from dataloading.keys.distinct import distinct
from preproc.raw_files import gzip_errors, open_unpacked

_LISTS = 1 << 13  # candidate lists whose negatives are looked up at a time
_KEYS = ("user", "item")
_PAIR = r"^\((?P<user>[0-9]{1,10}),(?P<item>[0-9]{1,10})\)$"


@dataclass(frozen=True)
class PaperData:
    """Interactions [n] and positives of candidate lists [m], int64, in the files' order."""

    # train_users, train_items: each (user, item) once, where it is first
    train_users: np.ndarray
    train_items: np.ndarray
    test_users: np.ndarray
    test_items: np.ndarray
    test_negatives: np.ndarray  # [m, k], which may hold the positive or repeat a negative
    # numbers of users, items, different (user, item) of training and candidate lists, duplicates,
    # and items of candidate lists that their user also has in training
    counts: dict[str, int]


def read_paper(train: Path, test: Path, negative: Path) -> PaperData:
    """Reads the files; raises ValueError unless they belong to one data set."""
    pairs, positives = _pairs(train), _pairs(test)
    negatives = _negatives(negative, positives, test)
    num_users, num_items = (
        1 + int(max(pairs[:, column].max(), positives[:, column].max())) for column in (0, 1)
    )
    num_items = max(num_items, 1 + int(negatives.max()))
    trained, first = np.unique(keys_of(*pairs.T, num_items), return_index=True)
    tested = distinct(keys_of(*positives.T, num_items))
    kept = pairs[np.sort(first)]
    positive_keys = keys_of(*positives.T, num_items)
    num_stored = 0
    for start in range(0, len(positives), _LISTS):
        items = negatives[start : start + _LISTS]
        users = np.broadcast_to(positives[start : start + _LISTS, :1], items.shape)
        num_stored += _num_in(keys_of(users, items, num_items), trained)
    counts = {
        "users": num_users,
        "items": num_items,
        "interactions": len(trained) + len(tested) - _num_in(tested, trained),
        "dropped_duplicates": len(pairs) - len(kept),
        "test_positives_in_train": _num_in(positive_keys, trained),
        "test_negatives_in_train": num_stored,
    }
    return PaperData(*kept.T, *positives.T, negatives, counts)


def hold_out(data: PaperData, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws one interaction of each user with two or more, all with equal chances.

    Returns:
        these users, ascending, and the places [users] in `data.train_items`.
    """
    by_user = np.argsort(data.train_users, kind="stable")
    users, starts, counts = np.unique(
        data.train_users[by_user], return_index=True, return_counts=True
    )
    enough = counts > 1
    drawn = np.random.default_rng(seed).integers(0, counts[enough])
    return users[enough], by_user[starts[enough] + drawn]


def _num_in(keys: np.ndarray, ascending: np.ndarray) -> int:
    """Returns the number of keys that are in `ascending`, which is not empty."""
    places = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return int(np.count_nonzero(ascending[places] == keys))


def _pairs(path: Path) -> np.ndarray:
    columns = _read(path, slice(2))
    if not 2 <= len(columns) <= 4:
        raise ValueError(f"{path}: a line is user, item and up to two more fields, tabs between")
    return np.stack([_ids(path, column) for column in columns[:2]], axis=1)


def _negatives(path: Path, positives: np.ndarray, test: Path) -> np.ndarray:
    pairs, *columns = _read(path, slice(1, None))
    if columns and columns[-1].null_count == len(columns[-1]):  # a tab at the end of lines
        columns.pop()
    users_items = pc.extract_regex(pairs.cast(pa.string()), _PAIR)
    if not columns or users_items.null_count:
        raise ValueError(f"{path}: a line is (user,item) and items, tabs between")
    named = np.stack(
        [_ids(path, pc.struct_field(users_items, name).cast(pa.int64())) for name in _KEYS], axis=1
    )
    if len(named) != len(positives):
        raise ValueError(
            f"{path} has {len(named)} rows, and {test} {len(positives)} rows; is one cut off?"
        )
    for row in np.flatnonzero((named != positives).any(axis=1))[:1]:
        raise ValueError(
            f"{path}, row {row + 1}: it is of user {named[row, 0]} and item {named[row, 1]}, and "
            f"row {row + 1} of {test} is another; use files of one data set"
        )
    return np.stack([_ids(path, column) for column in columns], axis=1)


def _read(path: Path, ids: slice) -> list[pa.ChunkedArray]:
    """Returns the columns of a file without a header and with tabs between fields; blank lines mean
    nothing. ids: columns of integers."""
    try:
        with gzip_errors(path), open_unpacked(path) as file:
            columns = pa_csv.read_csv(
                file,
                # Only a single thread knows the numbers of rows.
                pa_csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
                pa_csv.ParseOptions(
                    delimiter="\t",
                    quote_char=False,
                    invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
                ),
            ).columns
        columns[ids] = [column.cast(pa.int64()) for column in columns[ids]]
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{path}: {error}; expected the same number of fields in all lines, with tabs between, "
            "and whole numbers for ids"
        ) from error
    return columns


def _ids(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    is_id = pc.and_(pc.greater_equal(column, 0), pc.less(column, MOST_IDS))
    row = pc.index(pc.fill_null(is_id, False), False).as_py()
    if row >= 0:
        raise ValueError(
            f"{path}, row {row + 1}: id {column[row].as_py()!r}; ids are 0 to {MOST_IDS - 1}. "
            "Number users and items from 0 without gaps"
        )
    return column.to_numpy()
