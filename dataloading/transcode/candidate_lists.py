"""Checks of raw interactions while they are read.

The rows of `train` happened. Elsewhere the rows may come in series, one for each question at an
evaluation: one row that happened and its negatives, side by side.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.interactions.candidate_rules import broken_series, series_key, series_length
from dataloading.spec.feature_spec import LABEL_CHANNEL, TRAIN, USER_CHANNEL
from dataloading.table_input.files import Block
from dataloading.transcode.raw_spec import RawSpec


class SeriesCheck:
    """The rules of one mapping of interactions, applied to its rows in order.

    Where the metadata have the rows per series, these are neighbours, of one user, and one of
    them has the label 1. Elsewhere there is no label, or it is one of `train` and always 1.

    Args:
        spec: the raw interactions.
        mapping: e.g. `test`.

    Raises:
        ValueError: the metadata are wrong, or do not go with the columns.
    """

    def __init__(self, spec: RawSpec, mapping: str):
        self._where = f"{spec.origin}: mapping '{mapping}'"
        self._mapping = mapping
        (self._user,) = spec.channels[USER_CHANNEL]
        labels = [name for name in spec.channels[LABEL_CHANNEL] if spec.has(mapping, name)]
        self._label = labels[0] if labels else None
        self._length = series_length(mapping, spec.metadata, bool(labels), spec.origin)
        self._users: list[np.ndarray | pa.Array] = []
        self._labels: list[np.ndarray] = []
        self._num_waiting = 0  # rows of a series that has not ended

    def add(self, values: dict, block_of: dict[str, Block]) -> None:
        """Takes in the next rows.

        Args:
            values: feature -> its values of these rows; ids as an array, texts as Arrow's.
            block_of: feature -> the block that they are from.

        Raises:
            ValueError: a rule is broken; the message names file and row.
        """
        if self._label is None:
            return
        labels = values[self._label]
        if self._length is None:
            self._check_all_positive(labels, block_of[self._label])
            return
        num_before = self._num_waiting
        self._users.append(values[self._user])
        self._labels.append(labels)
        self._num_waiting += len(labels)
        if self._num_waiting >= self._length:
            self._check_whole_series(num_before, block_of)

    def end(self) -> None:
        """Call after the last row.

        Raises:
            ValueError: the last series is cut off.
        """
        if self._num_waiting:
            raise ValueError(
                f"{self._where}: its last series has {self._num_waiting} rows, and "
                f"'{series_key(self._mapping)}' in the metadata is {self._length}; allowed: whole "
                "series"
            )

    def _check_all_positive(self, labels: np.ndarray, block: Block) -> None:
        if np.all(labels):
            return
        row = block.first_row + int(np.argmin(labels))
        raise ValueError(
            f"{block.where}: feature '{self._label}': found 0 in row {row} (rows are counted from "
            f"1, a header is not); the rows of '{TRAIN}' are interactions, all 1 (or without a "
            "label), because negatives are drawn while training: leave the others out"
        )

    def _check_whole_series(self, num_before: int, block_of: dict[str, Block]) -> None:
        """Checks the series that have ended, and forgets them.

        Args:
            num_before: how many of the waiting rows came before these blocks.
        """
        users, labels = _joined(self._users), np.concatenate(self._labels)
        num_series = len(labels) // self._length
        end, shape = num_series * self._length, (num_series, self._length)
        mixed, wrong = broken_series(
            _numbers(users)[:end].reshape(shape), labels[:end].reshape(shape)
        )
        for broken, feature, rule in (
            (mixed, self._user, "is of more than one user; the rows of a series are neighbours"),
            (wrong, self._label, "has not exactly one label of 1; one row is the positive"),
        ):
            if broken.any():
                block = block_of[feature]
                last_row = (int(np.argmax(broken)) + 1) * self._length - 1 - num_before
                raise ValueError(
                    f"{block.where}: feature '{feature}': the series of {self._length} rows that "
                    f"ends in row {block.first_row + last_row} (rows are counted from 1, a header "
                    f"is not) {rule}. Put the rows in order, or correct "
                    f"'{series_key(self._mapping)}' in the metadata"
                )
        self._users, self._labels = [users[end:]], [labels[end:]]
        self._num_waiting = len(labels) - end


def _joined(parts: list[np.ndarray | pa.Array]) -> np.ndarray | pa.Array:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def _numbers(users: np.ndarray | pa.Array) -> np.ndarray:
    """Numbers that are equal where the users are; no user is one, too."""
    if isinstance(users, np.ndarray):
        return users
    indices = pc.dictionary_encode(users, null_encoding="encode").indices
    return indices.to_numpy()
