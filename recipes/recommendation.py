"""Recommendations: the users that the flags name, their candidates, and the top items of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from config.config import Config
from config.sections.recommendation import ALL_USERS
from dataloading.spec.rules import listing
from runtime.files.paths import absent

if TYPE_CHECKING:
    from nn.top_items import Pairs, TopItems, TopItemSearch
    from recipes.original_ids import OriginalIds


_USER_COLUMN = "user"  # of the output


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Users of a data set and the search of their top items.

    Attributes:
        users: ids of the users, int64 [n], in the order of the output.
        user_values, item_values: original values of the ids.
        count: items per user.
        candidates: ids of the items that are searched, in the order of the search.
        search: searches the items of the users.
        inputs: returns the inputs of the model of some users, by their numbers.
        excluded: returns the pairs that are left out; None: none are.
        notes: remarks for the log.
    """

    users: NDArray[np.int64]
    user_values: OriginalIds
    item_values: OriginalIds
    count: int
    candidates: NDArray[np.int64]
    search: TopItemSearch
    inputs: Callable[[NDArray[np.int64]], Any]
    excluded: Callable[[NDArray[np.int64]], Pairs] | None
    notes: tuple[str, ...]

    @property
    def num_users(self) -> int:
        return len(self.users)

    @property
    def num_rounds(self) -> int:
        """Number of blocks that `top_items` yields."""
        return self.search.num_rounds(self.num_users)

    def top_items(self) -> Iterator[TopItems]:
        """Yields the items of the next users; collective, see `TopItemSearch.search`."""
        return self.search.search(self.num_users, self.inputs, self.excluded)

    def fields(self) -> list[tuple[str, Any]]:
        """Returns name and type of pyarrow of each column of the output."""
        import pyarrow as pa

        return [
            (_USER_COLUMN, self.user_values.type),
            ("rank", pa.int32()),
            ("item", self.item_values.type),
            ("score", pa.float32()),
        ]

    def columns(self, first_user: int, top: TopItems) -> list[Any]:
        """Returns the rows of the output of consecutive users, one per item that exists."""
        rows, places = np.nonzero(top.items >= 0)
        users = self.users[first_user : first_user + len(top.items)]
        return [
            self.user_values.decode(users[rows]),
            (places + 1).astype(np.int32),
            self.item_values.decode(self.candidates[top.items[rows, places]]),
            top.scores[rows, places],
        ]


def user_ids(
    config: Config,
    feature: str,
    values: OriginalIds,
    is_known: NDArray[np.bool_] | None = None,
    what: str = "",
) -> NDArray[np.int64]:
    """Returns the ids of the users of `--users`, int64 [n].

    Args:
        config: the flags.
        feature: the feature of the user.
        values: original values of the users.
        is_known: whether a user id can get recommendations, bool [ids]; None: all can.
        what: what other users lack, for the message.

    Raises:
        ValueError: the file cannot be read, has no users, or one that cannot get recommendations.
    """
    path = config.recommendation.users
    if path == ALL_USERS:
        ids = values.ids
        return ids if is_known is None else ids[is_known[ids]]
    names = (values.encoding.column, feature, _USER_COLUMN)
    ids = values.encode(_read_users(path, tuple(dict.fromkeys(names))), f"--users {path}")
    if is_known is not None and not is_known[ids].all():
        row = int(np.argmin(is_known[ids]))
        value = values.decode(ids[row : row + 1])[0].as_py()
        raise ValueError(
            f"--users {path}: row {row + 1}: expected users with {what}, got {value!r}; leave it "
            "out, or select another split with --eval_mapping"
        )
    return ids


def _read_users(path: str, columns: tuple[str, ...]) -> Any:
    """Returns the first of these columns of a CSV or Parquet file, an array of pyarrow."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if Path(path).suffix.lower() == ".parquet":
            table = parquet.read_table(path)
        else:
            texts = dict.fromkeys(columns, pa.string())
            table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=texts))
    except FileNotFoundError:
        raise ValueError(f"--users {absent(path, 'file')}") from None
    except (OSError, pa.ArrowException) as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"--users {path}: expected a .csv or .parquet file: {words:.300}"
        ) from None
    names = [name for name in columns if name in table.column_names]
    if not names or not len(table):
        got = f"the columns {listing(table.column_names)}" if not names else "no row"
        raise ValueError(f"--users {path}: expected rows of a column '{columns[0]}', got {got}")
    return table[names[0]].combine_chunks()


class ItemsOfUsers:
    """Pairs of users and items, such as those that recommendations leave out.

    Args:
        keys: user * num_items + item of each pair, int64, ascending.
        num_items: number of item ids.
        users: ids of the users that are ranked for, by their numbers.
        candidates: ids of the items that are searched, ascending; pairs have their places.
    """

    def __init__(
        self,
        keys: NDArray[np.int64],
        num_items: int,
        users: NDArray[np.int64],
        candidates: NDArray[np.int64],
    ):
        self._keys, self._num_items, self._users = keys, num_items, users
        self._candidates = candidates

    def __call__(self, numbers: NDArray[np.int64]) -> Pairs:
        """Returns the pairs of some users, by their numbers."""
        from nn.top_items import Pairs

        first_keys = self._users[numbers] * self._num_items
        starts, stops = np.searchsorted(self._keys, [first_keys, first_keys + self._num_items])
        lengths = stops - starts
        rows = np.repeat(np.arange(len(numbers)), lengths)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        items = self._keys[starts[rows] + places] - first_keys[rows]
        is_candidate = np.isin(items, self._candidates)
        rows, items = rows[is_candidate], np.searchsorted(self._candidates, items[is_candidate])
        order = np.argsort(items, kind="stable")
        return Pairs(rows[order], items[order])
