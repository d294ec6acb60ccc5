"""Encoding of a feature, and the kinds that need no fitting."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import ArrayLike, NDArray

from preproc.encoding.arrow_columns import (
    MISSING_VALUES,
    InvalidValue,
    LabelKey,
    by_distinct,
    integer_texts,
    integers,
    label_key,
    labels,
    numbers,
    refuse,
    texts,
)
from preproc.encoding.extension import Extension
from preproc.encoding.lists import FlatValues, flatten

MISSING = pa.array(MISSING_VALUES)
_IDS = "; turn other values into ids with --categorify or --hash_buckets of preproc.transcode"


@dataclass(frozen=True, kw_only=True)
class FeatureEncoding:
    """Encoding of a feature.

    Attributes:
        name: feature.
        column: source column.
        hotness: values per row; shorter lists are padded at the end, longer ones are truncated.
        dtype: NumPy name of the stored dtype.
    """

    kind: ClassVar[str]  # in the encoder's file
    name: str
    column: str
    hotness: int = 1
    dtype: str = ""

    @property
    def list_size(self) -> int:
        """Values per row of the source column; 1: it has no lists."""
        return self.hotness

    @property
    def features(self) -> tuple[str, ...]:
        """Features that the encoding makes: its own, and that of an indicator."""
        return (self.name,)

    def encode(
        self,
        column: pa.Array | pa.ChunkedArray,
        missing: pa.Array = MISSING,
        long_lists: Counter[str] | None = None,
    ) -> dict[str, NDArray]:
        """Returns feature -> values [num_rows, hotness] in `dtype`, for each of `features`.

        Args:
            column: values of the source column.
            missing: spellings of missing values in texts.
            long_lists: receives, by feature, the number of lists that were truncated.

        Raises:
            InvalidValue: `index` is a row, or -1 if the whole column is wrong.
        """
        try:
            values = flatten(column, self.list_size, missing)
            arrays = self._encode(values, missing)
        except InvalidValue as bad:
            bad.index //= self.list_size
            raise
        if long_lists is not None and values.num_long:
            long_lists[self.name] += values.num_long
        return {name: array.reshape(-1, self.list_size) for name, array in arrays.items()}

    def decode(self, values: ArrayLike) -> pa.Array:
        """Returns the original values of encoded ones [n]; null for ids without a value.

        Raises:
            ValueError: the encoding does not keep the original values, or an id is out of range.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Returns the settings of the encoding, without arrays, as JSON has them."""
        fields: dict[str, Any] = {"kind": self.kind}
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, Extension):
                value = dataclasses.asdict(value)
            if value is not None and not isinstance(value, pa.Array):
                fields[setting.name] = list(value) if isinstance(value, tuple) else value
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "FeatureEncoding":
        """Returns the encoding that `to_json` describes."""
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
        values.pop("kind", None)
        if "extension" in values:
            values["extension"] = Extension(**values["extension"])
        return cls(**values)

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        """Returns feature -> values of all slots; `InvalidValue.index` is a slot."""
        raise NotImplementedError

    def invalid(self, setting: str, expected: str, value: Any) -> ValueError:
        """Returns the error of a setting or an argument that breaks a rule."""
        return ValueError(f"feature '{self.name}': {setting}: expected {expected}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class IdEncoding(FeatureEncoding):
    """Encoding as ids in [0, `num_ids`); an empty dtype becomes the smallest that holds them.

    Attributes:
        extension: ids that follow from the only one of a row; None: no others.
    """

    extension: Extension | None = None

    def __post_init__(self) -> None:
        if not self.dtype:
            object.__setattr__(self, "dtype", smallest_dtype(self.num_ids))
        if self.num_ids < 1 or self.num_ids - 1 > np.iinfo(self.dtype).max:
            raise self.invalid("number of ids", f"1 to what {self.dtype} holds", self.num_ids)

    @property
    def list_size(self) -> int:
        """Values per row of the source column; 1: it has no lists."""
        return self.hotness if self.extension is None else 1

    @property
    def num_ids(self) -> int:
        """Cardinality of the feature."""
        return self._num_values if self.extension is None else self.extension.cardinality

    @property
    def _num_values(self) -> int:
        """Number of ids before they are extended."""
        raise NotImplementedError

    def encode(
        self,
        column: pa.Array | pa.ChunkedArray,
        missing: pa.Array = MISSING,
        long_lists: Counter[str] | None = None,
    ) -> dict[str, NDArray]:
        """See `FeatureEncoding`."""
        arrays = super().encode(column, missing, long_lists)
        if self.extension is not None:
            extended = self.extension.extend(arrays[self.name][:, 0])
            arrays[self.name] = extended.astype(self.dtype)
        return arrays

    @property
    def _plain_dtype(self) -> str:
        """Type of ids before they are taken modulo a cardinality."""
        return self.dtype if self.extension is None else "int64"

    def _checked_ids(self, values: ArrayLike) -> NDArray[np.int64]:
        ids = np.asarray(values, np.int64).ravel()
        if self._num_values > self.num_ids:
            raise self.invalid("cardinality", "one id per value, to decode ids", self.num_ids)
        bad = (ids < 0) | (ids >= self.num_ids)
        if bad.any():
            raise self.invalid("ids", f"ids in [0, {self.num_ids})", int(ids[np.argmax(bad)]))
        return ids


def smallest_dtype(num_ids: int) -> str:
    """Returns the smallest signed integer dtype that holds the ids 0 to num_ids - 1."""
    names = ("int8", "int16", "int32", "int64")
    return next(name for name in names if num_ids - 1 <= np.iinfo(name).max)


@dataclass(frozen=True, kw_only=True)
class HashBuckets(IdEncoding):
    """XXH64 of the UTF-8 bytes of a text modulo `buckets`; a missing value is the empty text.

    Attributes:
        is_integer: values are integers, so that texts such as `7.0` are `7`.
    """

    kind = "hash_buckets"
    buckets: int
    is_integer: bool = False

    @property
    def _num_values(self) -> int:
        return self.buckets

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        return {self.name: values.convert(lambda flat: self._ids(texts(flat, missing)))}

    def _ids(self, values: pa.Array) -> NDArray:
        def hashed(distinct: pa.Array) -> NDArray:
            texts = distinct.cast(pa.binary()).to_pylist()
            return np.array([xxhash.xxh64_intdigest(text) for text in texts], np.uint64)

        values = integer_texts(values) if self.is_integer else values
        ids = by_distinct(pc.fill_null(values, ""), hashed) % np.uint64(self.buckets)
        return ids.astype(self._plain_dtype)

    def decode(self, values: ArrayLike) -> pa.Array:
        raise ValueError(
            f"feature '{self.name}': expected an encoding that keeps the original values, got hash "
            "buckets: use a vocabulary"
        )


@dataclass(frozen=True, kw_only=True)
class Identity(IdEncoding):
    """Ids as they are; a missing value is an error."""

    kind = "identity"
    cardinality: int

    @property
    def _num_values(self) -> int:
        return self.cardinality

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        return {self.name: values.convert(lambda flat: self._ids(flat, missing))}

    def _ids(self, values: pa.Array, missing: pa.Array) -> NDArray:
        try:
            ids, is_missing = integers(values, missing)
        except InvalidValue as bad:
            raise InvalidValue(bad.index, bad.found, bad.rule + _IDS) from None
        refuse(is_missing, values, "an id: assign an id to missing values" + _IDS)
        rule = f"an id in [0, {self.cardinality}){_IDS}"
        refuse((ids < 0) | (ids >= self.cardinality), values, rule)
        return ids.astype(self._plain_dtype)

    def decode(self, values: ArrayLike) -> pa.Array:
        return pa.array(self._checked_ids(values))


# Spellings of 0 and 1. Those of the first pairs mean the same together.
_WORDS = (("0", "1"), ("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"))
_PAIRS = (("-1", "1"), ("1", "2"), ("-", "+"))


def _meanings(*pairs: tuple[str, str]) -> dict[LabelKey, int]:
    return {label_key(word): label for pair in pairs for label, word in enumerate(pair)}


STANDARD = _meanings(*_WORDS)
# Two values are one of these pairs; more are spellings in `STANDARD`.
_ONE_PAIR = [_meanings(pair) for pair in (*_WORDS, *_PAIRS)] + [_meanings(*_WORDS[:2])]


def known_meanings(keys: set[LabelKey]) -> dict[LabelKey, int] | None:
    """Returns the labels of spellings of known pairs; None if they have no meaning together."""
    if len(keys) == 2:
        return next((own for own in _ONE_PAIR if keys <= own.keys()), None)
    return STANDARD if keys and keys <= STANDARD.keys() else None


@dataclass(frozen=True, kw_only=True)
class Label(FeatureEncoding):
    """Labels, 0 or 1; a missing one is an error.

    Spellings are equal in any case, and numbers by value, so that file types do not matter.

    Attributes:
        spellings: values that are 0 and 1; None, or a pair of them: 0 and 1, false and true, no
            and yes, n and y, f and t.
        positive: value that is 1 where all others are 0.
        above: number above which numbers are 1.
    """

    kind = "label"
    dtype: str = "bool"
    spellings: tuple[str, str] | None = None
    positive: str | None = None
    above: float | None = None

    @functools.cached_property
    def meanings(self) -> dict[LabelKey, int]:
        """Key of a spelling, see `label_key` -> its label."""
        if self.positive is not None:
            return {label_key(self.positive): 1}
        own = STANDARD if self.spellings is None else _meanings(self.spellings)
        return STANDARD if own.items() <= STANDARD.items() else own

    @property
    def others(self) -> int | None:
        """Label of other present values; None: they are errors."""
        return None if self.positive is None else 0

    @property
    def conditions(self) -> tuple[str, str]:
        """Conditions of 0 and 1 in the words of the data, such as `bought=no`."""
        if self.above is not None:
            return f"{self.column}<={self.above:g}", f"{self.column}>{self.above:g}"
        if self.positive is not None:
            return f"{self.column}!={self.positive}", f"{self.column}={self.positive}"
        negative, positive = self.spellings or ("0", "1")
        return f"{self.column}={negative}", f"{self.column}={positive}"

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        dtype = np.dtype(self.dtype)

        def convert(flat: pa.Array) -> NDArray:
            return self._labels(flat, missing).astype(dtype, copy=False)

        return {self.name: values.convert(convert)}

    def _labels(self, values: pa.Array, missing: pa.Array) -> NDArray[np.bool_]:
        if self.above is not None:
            result = numbers(values, missing)
            if np.isnan(result).any():
                index = int(np.argmax(np.isnan(result)))
                raise InvalidValue(index, "no value: leave the row out", "a number")
            return result > self.above
        if self.positive is not None:
            rule = f"{self.positive!r} or another value"
        else:
            rule = "0 or 1" if self.spellings is None else " or ".join(map(repr, self.spellings))
        return labels(values, missing, self.meanings, rule, self.others)

    def decode(self, values: ArrayLike) -> pa.Array:
        """See `FeatureEncoding`."""
        ids = np.asarray(values).ravel().astype(np.int64)
        return pa.array(self.spellings).take(pa.array(ids)) if self.spellings else pa.array(ids)
