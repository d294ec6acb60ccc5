"""Files of the NCF paper as published: ids from 0, one candidate list per user, stored negatives.

    x.train.rating    user <tab> item [<tab> rating or count [<tab> time]]
    x.test.rating     the same; the item is what the user is asked about
    x.test.negative   (user,item) <tab> negative <tab> negative ..., line by line as x.test.rating

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering, WWW 2017,
https://github.com/hexiangnan/neural_collaborative_filtering
"""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataloading.interactions.unseen_items import MOST_IDS, keys_of

_MOST_ID = MOST_IDS - 1
_LISTS = 1 << 13  # candidate lists whose negatives are looked up at a time
_PAIR = re.compile(rb"([0-9]{1,10})\t([0-9]{1,10})((?:\t[^\t]*){0,2})")
_NEGATIVES = re.compile(rb"\(([0-9]{1,10}),([0-9]{1,10})\)((?:\t[0-9]{1,10})+)\t?")


@dataclass(frozen=True)
class PaperFile:
    """A file: as the user knows it, and the same unpacked."""

    path: Path
    plain: Path


@dataclass(frozen=True)
class PaperData:
    """Interactions [n] and positives of candidate lists [m], int64, in the files' order.

    train_users, train_items: each (user, item) once, where it is first.
    test_negatives: [m, k], which may hold the positive or repeat a negative.
    interactions: different (user, item) of training and candidate lists.
    test_positives_in_train, test_negatives_in_train: number of items of the candidate lists that
        their user also has in training.
    """

    train_users: np.ndarray
    train_items: np.ndarray
    test_users: np.ndarray
    test_items: np.ndarray
    test_negatives: np.ndarray
    num_users: int
    num_items: int
    interactions: int
    dropped_duplicates: int
    test_positives_in_train: int
    test_negatives_in_train: int


def read_paper(train: PaperFile, test: PaperFile, negative: PaperFile) -> PaperData:
    """Reads the files; raises ValueError unless they belong to one data set."""
    pairs, positives = _pairs(train), _pairs(test)
    negatives = _negatives(negative, positives, test)
    num_users, num_items = (
        1 + int(max(pairs[:, column].max(), positives[:, column].max())) for column in (0, 1)
    )
    num_items = max(num_items, 1 + int(negatives.max()))
    trained, first = np.unique(keys_of(*pairs.T, num_items), return_index=True)
    tested = np.unique(keys_of(*positives.T, num_items))
    kept = pairs[np.sort(first)]
    return PaperData(
        *(kept[:, 0], kept[:, 1], positives[:, 0], positives[:, 1], negatives),
        num_users=num_users,
        num_items=num_items,
        interactions=len(trained) + len(tested) - _num_in(tested, trained),
        dropped_duplicates=len(pairs) - len(kept),
        test_positives_in_train=_num_in(keys_of(*positives.T, num_items), trained),
        test_negatives_in_train=_negatives_in(trained, positives[:, 0], negatives, num_items),
    )


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


def _negatives_in(
    ascending: np.ndarray, users: np.ndarray, negatives: np.ndarray, num_items: int
) -> int:
    """Returns the number of negatives [m, k] of these users [m] that are in `ascending`."""
    count = 0
    for start in range(0, len(users), _LISTS):
        block = slice(start, start + _LISTS)
        items = negatives[block]
        repeated = np.broadcast_to(users[block, None], items.shape)
        count += _num_in(keys_of(repeated, items, num_items), ascending)
    return count


def _pairs(file: PaperFile) -> np.ndarray:
    """Users and items of a file, [n, 2]."""
    ids, tabs = array("q"), None
    for number, line in _lines(file):
        match = _PAIR.fullmatch(line)
        if not match:
            raise _bad(
                file, number, line, "a line is user, item and up to two more fields, tabs between"
            )
        if tabs not in (None, line.count(b"\t")):
            raise _bad(file, number, line, f"lines before it have {tabs + 1} fields")
        tabs = line.count(b"\t")
        ids.extend((int(match[1]), int(match[2])))
        _check_ids(file, number, ids[-2:])
    if not ids:
        raise ValueError(f"{file.path} has no lines")
    return np.frombuffer(ids, np.int64).reshape(-1, 2)


def _negatives(file: PaperFile, positives: np.ndarray, test: PaperFile) -> np.ndarray:
    """Returns the negatives of these positives, [m, k]."""
    rows = []
    for number, line in _lines(file):
        match = _NEGATIVES.fullmatch(line)
        if not match:
            raise _bad(file, number, line, "a line is (user,item) and items, tabs between")
        row = array("q", map(int, match[3].split()))
        _check_ids(file, number, row)
        positive = [int(match[1]), int(match[2])]
        if len(rows) == len(positives) or positive != positives[len(rows)].tolist():
            raise ValueError(
                f"{file.path}, line {number}: it is of user {positive[0]} and item {positive[1]}, "
                f"and line {len(rows) + 1} of {test.path} is another; use files of one data set"
            )
        if rows and len(row) != len(rows[0]):
            raise ValueError(
                f"{file.path}, line {number}: {len(row)} negatives, and {len(rows[0])} in the "
                "lines before; a data set has equally many for each candidate list"
            )
        rows.append(row)
    if len(rows) < len(positives):
        raise ValueError(
            f"{file.path} has {len(rows)} lines, and {test.path} {len(positives)} lines; is it "
            "cut off?"
        )
    return np.array(rows, np.int64)


def _lines(file: PaperFile) -> Iterator[tuple[int, bytes]]:
    """The numbers, from 1, and the bytes of all lines that are not empty."""
    with open(file.plain, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line := line.rstrip(b"\r\n"):
                yield number, line


def _check_ids(file: PaperFile, number: int, ids: array) -> None:
    if max(ids) > _MOST_ID:
        raise ValueError(
            f"{file.path}, line {number}: id {max(ids)}; the largest possible is {_MOST_ID}. "
            "Number users and items from 0 without gaps"
        )


def _bad(file: PaperFile, number: int, line: bytes, rule: str) -> ValueError:
    shown = line[:60].decode("latin-1") + ("..." if len(line) > 60 else "")
    return ValueError(f"{file.path}, line {number}: {shown!r}: {rule}")
