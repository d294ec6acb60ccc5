"""Encoder: raw rows to what a model reads, and ids back to values."""

import difflib
import functools
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from preproc.encoding import encoder_folder
from preproc.encoding.arrow_columns import MISSING_VALUES, InvalidValue
from preproc.encoding.encodings import FeatureEncoding
from preproc.encoding.lists import flatten
from preproc.encoding.profile import ColumnProfile

_LONGEST_LIST = 1 << 31  # of a history; longer lists do not fit into an Arrow column


class EncodingError(ValueError):
    """A value or a column that cannot be encoded.

    Attributes:
        feature, column: the feature and its source column.
        row: row of the value in the batch, from 0; None if the whole column is wrong.
        found, rule: "expected {rule}, got {found}".
    """

    def __init__(self, feature: str, column: str, row: int | None, value: str, rule: str):
        self.feature, self.column, self.row = feature, column, row
        self.found, self.rule = value, rule
        place = f"feature '{feature}'"
        place += f", column '{column}'" if column != feature else ""
        place += f", row {row + 1} (counted from 1)" if row is not None else ""
        super().__init__(f"{place}: expected {rule}, got {value}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.feature, self.column, self.row, self.found, self.rule)


@dataclass(frozen=True)
class Encoder:
    """Encodings of all features of a data set.

    Attributes:
        features: encodings in the order of the features.
        missing_values: spellings of missing values in texts.
        profile: source column -> its statistics in the training split.

    Example:
        ```python
        encoder = Encoder.load("data/encoder")
        arrays = encoder.encode({"user": ["17", "4"], "price": [2.5, None]})
        encoder.decode("user", arrays["user"])
        ```
    """

    features: tuple[FeatureEncoding, ...]
    missing_values: tuple[str, ...] = MISSING_VALUES
    profile: Mapping[str, ColumnProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [name for encoding in self.features for name in encoding.features]
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise ValueError(f"features: expected each name once, got '{repeated[0]}' twice")

    def __getitem__(self, feature: str) -> FeatureEncoding:
        """Returns the encoding of a feature."""
        try:
            return self._encodings[feature]
        except KeyError:
            names = ", ".join(self._encodings)
            raise KeyError(f"unknown feature '{feature}'; expected one of {names}") from None

    def maker(self, feature: str) -> FeatureEncoding:
        """Returns the encoding that makes a feature, possibly next to its own one."""
        return self._makers.get(feature) or self[feature]

    @functools.cached_property
    def _makers(self) -> dict[str, FeatureEncoding]:
        return {name: encoding for encoding in self.features for name in encoding.features}

    @functools.cached_property
    def _encodings(self) -> dict[str, FeatureEncoding]:
        return {encoding.name: encoding for encoding in self.features}

    @functools.cached_property
    def _columns(self) -> set[str]:
        return {encoding.column for encoding in self.features}

    @functools.cached_property
    def _missing(self) -> pa.Array:
        return pa.array(self.missing_values, pa.string())

    def encode(
        self,
        batch: Any,
        names: Sequence[str] | None = None,
        long_lists: Counter[str] | None = None,
    ) -> dict[str, NDArray]:
        """Returns feature -> encoded values [num_rows, hotness], in the order of the features.

        Args:
            batch: rows as a record batch, a table, a pandas frame, or a mapping of column names to
                lists or arrays. Other columns are ignored.
            names: features to encode; None: all. The indicator of a number comes with it.
            long_lists: receives, by feature, the number of lists that were longer than the
                feature's hotness and were truncated.

        Raises:
            EncodingError: a column is absent, or a value breaks a rule.
        """
        encodings = self.features if names is None else [self[name] for name in names]
        columns: dict[str, pa.Array] = {}
        arrays: dict[str, NDArray] = {}
        for encoding in encodings:
            try:
                if encoding.column not in columns:
                    columns[encoding.column] = _column(batch, encoding.column, self._columns)
                column, first = columns[encoding.column], next(iter(columns.values()))
                if len(column) != len(first):
                    raise InvalidValue(-1, f"{len(column)}", f"{len(first)} values, one per row")
                arrays |= encoding.encode(column, self._missing, long_lists)
            except InvalidValue as bad:
                row = bad.index if bad.index >= 0 else None
                error = EncodingError(encoding.name, encoding.column, row, bad.found, bad.rule)
                raise error from None
        return arrays

    def history_columns(self, histories: Mapping[str, str]) -> dict[str, str]:
        """Returns history -> column of its lists: that of its name, or of an earlier history whose
        values make this one, too, as the items do with their categories.

        Args:
            histories: history -> feature whose ids it has.
        """
        first: dict[str, str] = {}
        return {name: first.setdefault(self.maker(f).name, name) for name, f in histories.items()}

    def encode_histories(
        self, batch: Any, histories: Mapping[str, str], length: int
    ) -> dict[str, NDArray]:
        """Returns history -> ids [num_rows, length]: the latest last, zeros of padding first.

        As 0 is padding, events with a value without an id in any of the columns are left out.

        Args:
            batch: rows, as of `encode`; each of `history_columns` has a list per row, oldest value
                first, of any length.
            histories: history -> feature whose ids it has.

        Raises:
            EncodingError: a column is absent, a value breaks a rule, or the lists of a row have
                different lengths.
        """
        columns = self.history_columns(histories)
        makers = {column: self.maker(histories[column]) for column in columns.values()}
        lists = {c: self.encode_lists(batch, c, encoding) for c, encoding in makers.items()}
        first, (_, lengths) = next(iter(lists.items()))
        for column, (_, others) in lists.items():
            if not np.array_equal(others, lengths):
                # Columns with different numbers of rows differ in the first row that one lacks.
                common = min(len(others), len(lengths))
                differs = np.append(others[:common] != lengths[:common], True)
                rule = f"as many values as in the column '{first}'"
                place = (histories[column], column, int(np.argmax(differs)))
                raise EncodingError(*place, "another number of values", rule)
        ids = {name: lists[columns[name]][0][feature] for name, feature in histories.items()}
        rows = np.repeat(np.arange(len(lengths)), lengths)
        is_known = np.logical_and.reduce([each != 0 for each in ids.values()])
        rows = rows[is_known]
        ends = np.cumsum(np.bincount(rows, minlength=len(lengths)))
        age = ends[rows] - 1 - np.arange(len(rows))  # 0: the latest event
        kept = age < length
        result = {}
        for name, values in ids.items():
            result[name] = np.zeros((len(lengths), length), values.dtype)
            result[name][rows[kept], length - 1 - age[kept]] = values[is_known][kept]
        return result

    def encode_lists(
        self, batch: Any, column: str, encoding: FeatureEncoding
    ) -> tuple[dict[str, NDArray], NDArray]:
        """Returns feature -> ids of all values of a column of lists, and the length of each list.

        Raises:
            EncodingError: a value breaks a rule.
        """
        try:
            values = flatten(_column(batch, column, self._columns), _LONGEST_LIST, self._missing)
            try:
                arrays = encoding.encode(values.values, self._missing)
            except InvalidValue as bad:
                bad.index = int(values.slots[bad.index]) if bad.index >= 0 else bad.index
                raise
        except InvalidValue as bad:
            row = bad.index // _LONGEST_LIST if bad.index >= 0 else None
            raise EncodingError(encoding.name, column, row, bad.found, bad.rule) from None
        ids = {name: array[:, 0] for name, array in arrays.items()}
        return ids, np.bincount(values.slots // _LONGEST_LIST, minlength=values.num_rows)

    def decode(self, feature: str, values: ArrayLike) -> pa.Array:
        """Returns the original values of encoded ones [n]; null for ids without a value.

        Raises:
            ValueError: the encoding does not keep them, or an id is out of range.
        """
        encoding = self.maker(feature)
        if encoding.name != feature:
            raise ValueError(
                f"feature '{feature}': expected an encoding that keeps the original values, got "
                f"ids that follow from '{encoding.name}'"
            )
        return encoding.decode(values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the encoder to a new folder; see `preproc.encoding.encoder_folder`."""
        encoder_folder.write(Path(path), self.features, self.missing_values, self.profile)

    @classmethod
    def load(cls, path: str | os.PathLike[str], names: Collection[str] | None = None) -> "Encoder":
        """Reads the encoder from a folder.

        Args:
            names: features to read; None: all, whose digest is checked.

        Raises:
            ValueError: a file is absent, damaged, or of another version.
        """
        content = encoder_folder.read(Path(path), names)
        try:
            encoder = cls(content.features, content.missing_values, content.profile)
        except ValueError as error:
            raise encoder_folder.damaged(Path(path), error) from None
        if names is None and encoder.digest != content.digest:
            raise encoder_folder.damaged(Path(path), "the content does not match its digest")
        return encoder

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what determines encoded values and ids; the profile has no part in it."""
        return encoder_folder.digest(self.features, self.missing_values)


def _column(batch: Any, name: str, known: Collection[str]) -> pa.Array | pa.ChunkedArray:
    """Returns a column of rows.

    Args:
        known: columns of the encoder, which are not suggested for this one.

    Raises:
        InvalidValue: the column is absent, or has values of several types; `index` is -1 if the
            whole column is wrong.
    """
    if isinstance(batch, pa.RecordBatch | pa.Table):
        names = batch.schema.names
    elif isinstance(batch, Mapping):
        names = batch
    elif hasattr(batch, "columns") and hasattr(batch, "iloc"):  # pandas, which is not imported
        names = batch.columns
    else:
        raise TypeError(
            "expected a record batch, a table, a pandas frame, or a mapping of column names to "
            f"lists, got {type(batch).__name__}"
        )
    if name not in names:
        others = [str(other) for other in names if other not in known]
        close = difflib.get_close_matches(name, others, n=1, cutoff=0.75)
        hint = f"; is it called '{close[0]}'?" if close else ""
        columns = ", ".join(map(str, names))
        raise InvalidValue(-1, f"the columns {columns:.300}{hint}", f"a column '{name}'")
    values = batch[name]
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.ndim > 1:
        values = list(values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InvalidValue(-1, f"{values!r:.100}", "a list of values, one per row")
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise _mixed(values) from None


def _mixed(values: Any) -> InvalidValue:
    """Returns the error of values that have no common type."""
    rule = "values of one type: texts, numbers below 2^63, or lists of them"
    kinds: set[type] = set()
    for row, value in enumerate(values):
        if value is None or value != value:
            continue
        kinds.add(float if isinstance(value, int | float) else type(value))
        try:
            pa.array([value])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            kinds.add(object)
        if len(kinds) > 1:
            return InvalidValue(row, f"{value!r:.100} ({type(value).__name__})", rule)
    return InvalidValue(-1, "values of several types", rule)
