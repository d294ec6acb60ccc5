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

    Raises:
        ValueError: a rule is broken, or the metadata are wrong.
    """

    def __init__(self, spec: RawSpec, mapping: str):
        self._where = f"{spec.origin}: mapping '{mapping}'"
        self._key = f"'{series_key(mapping)}' in the metadata"
        (self._user,) = spec.channels[USER_CHANNEL]
        labels = [name for name in spec.channels[LABEL_CHANNEL] if spec.has(mapping, name)]
        self._label = labels[0] if labels else None
        self._length = series_length(mapping, spec.metadata, bool(labels), spec.origin)
        # Of series that have not ended.
        self._users = self._labels = pa.array([])

    def add(self, values: dict[str, pa.Array], block_of: dict[str, Block]) -> None:
        """Takes in the next rows: by feature their values, and the block that they are from."""
        if self._label is None:
            return
        labels = values[self._label]
        if self._length is None:
            self._check_all_positive(labels.to_numpy(), block_of[self._label])
            return
        num_before, users = len(self._labels), values[self._user]
        if num_before:
            users = pa.concat_arrays([self._users, users])
            labels = pa.concat_arrays([self._labels, labels])
        num_series = len(labels) // self._length
        end = num_series * self._length
        if num_series:
            shape = num_series, self._length
            # Numbers that are equal where the users are; no user is one, too.
            numbers = pc.dictionary_encode(users, null_encoding="encode").indices.to_numpy()
            mixed, wrong = broken_series(
                numbers[:end].reshape(shape), labels.to_numpy()[:end].reshape(shape)
            )
            rule = "is of more than one user; the rows of a series are neighbours"
            self._check(mixed, num_before, block_of[self._user], self._user, rule)
            rule = "has not exactly one label of 1; one row is the positive"
            self._check(wrong, num_before, block_of[self._label], self._label, rule)
        self._users, self._labels = users[end:], labels[end:]

    def end(self) -> None:
        """Checks that the last series is whole."""
        if len(self._labels):
            raise ValueError(
                f"{self._where}: its last series has {len(self._labels)} rows, and {self._key} is "
                f"{self._length}; allowed: whole series"
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

    def _check(
        self, broken: np.ndarray, num_before: int, block: Block, feature: str, rule: str
    ) -> None:
        """Raises ValueError where a series is broken; `num_before` of the rows came before the
        block."""
        if broken.any():
            last_row = (int(np.argmax(broken)) + 1) * self._length - 1 - num_before
            raise ValueError(
                f"{block.where}: feature '{feature}': the series of {self._length} rows that ends "
                f"in row {block.first_row + last_row} (rows are counted from 1, a header is not) "
                f"{rule}. Put the rows in order, or correct {self._key}"
            )
