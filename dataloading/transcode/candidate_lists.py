"""Checks of raw interactions while they are read.

The rows of `train` happened. Elsewhere the rows may come in candidate lists, one for each question
at an evaluation: one row that happened and its negatives, side by side.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataloading.interactions.candidate_rules import (
    broken_lists,
    candidate_list_length,
    list_length_key,
)
from dataloading.spec.feature_spec import LABEL_CHANNEL, USER_CHANNEL
from dataloading.table_input.files import Block
from dataloading.transcode.raw_spec import RawSpec


class CandidateListCheck:
    """The rules of one split of interactions, applied to its rows in order.

    Where the metadata have the rows per candidate list, these are neighbours, of one user, and one
    of them has the label 1. Elsewhere there is no label, or it is one of `train` and always 1.

    Raises:
        ValueError: a rule is broken, or the metadata are wrong.
    """

    def __init__(self, spec: RawSpec, split: str):
        self._where = f"{spec.origin}: split '{split}'"
        self._key = f"'{list_length_key(split)}' in the metadata"
        (self._user,) = spec.channels[USER_CHANNEL]
        labels = [name for name in spec.channels[LABEL_CHANNEL] if spec.has(split, name)]
        self._label = labels[0] if labels else None
        length = candidate_list_length(split, spec.metadata, bool(labels), spec.origin)
        self._length = length or 1
        if length is None:  # `train`, where a row of label 0 is a stored negative
            self._label = None
        self._fault = f"the candidate list of {length} rows that ends in"
        self._label_rule = f" has not exactly one label of 1. Correct it, or {self._key}"
        # Of candidate lists that have not ended.
        self._users = self._labels = pa.array([])

    @property
    def length(self) -> int:
        """Rows per candidate list; 1 where there is nothing to check."""
        return 1 if self._label is None else self._length

    def add(self, values: dict[str, pa.Array], block_of: dict[str, Block]) -> None:
        """Takes in the next rows: by feature their values, and the block that they are from."""
        if self._label is None:
            return
        num_before, users, labels = len(self._labels), values[self._user], values[self._label]
        if num_before:
            users = pa.concat_arrays([self._users, users])
            labels = pa.concat_arrays([self._labels, labels])
        num_lists = len(labels) // self._length
        end = num_lists * self._length
        if num_lists:
            shape = num_lists, self._length
            # Numbers that are equal where the users are; no user is one, too.
            numbers = pc.dictionary_encode(users, null_encoding="encode").indices.to_numpy()
            mixed, wrong = broken_lists(
                numbers[:end].reshape(shape), labels.to_numpy()[:end].reshape(shape)
            )
            user_rule = f" is of several users. Put the rows in order, or correct {self._key}"
            for broken, feature, rule in (
                (mixed, self._user, user_rule),
                (wrong, self._label, self._label_rule),
            ):
                if broken.any():
                    last_row = (int(np.argmax(broken)) + 1) * self._length - 1 - num_before
                    block = block_of[feature]
                    raise ValueError(
                        f"{block.where}: feature '{feature}': {self._fault} row "
                        f"{block.first_row + last_row} (rows are counted from 1, a header is not)"
                        f"{rule}"
                    )
        self._users, self._labels = users[end:], labels[end:]

    def end(self) -> None:
        """Checks that the last candidate list is whole."""
        if len(self._labels):
            raise ValueError(
                f"{self._where}: its last candidate list has {len(self._labels)} rows, and "
                f"{self._key} is {self._length}; expected whole candidate lists"
            )
