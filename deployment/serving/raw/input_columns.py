"""Columns of raw rows that a model reads, as its encoder describes them."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deployment.serving.interface import (
    BOOL,
    EXCLUDED,
    FLOAT64,
    INT64,
    NO_ITEM,
    TEXT,
    TOP,
    Interface,
    RawColumn,
    history_features,
    requested,
)
from preproc.encoding.arrow_columns import InvalidValue
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding, IdEncoding, Identity
from preproc.encoding.numbers import Bins, Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

_NO_PROFILE = ColumnProfile(0, 0)
_LIST_EXAMPLES = 2  # values of the example of a list


def raw_columns(encoder: Encoder, interface: Interface) -> tuple[RawColumn, ...]:
    """Returns the columns of the features of a request: source columns in the encoder's order,
    histories under their own names, and those of a search."""
    histories = history_features(interface)
    names = {feature.name for feature in requested(interface)}.difference(histories)
    padded = {feature.name for feature in interface.features if feature.padded}
    encodings: dict[str, list[FeatureEncoding]] = {}
    for encoding in encoder.features:
        if names.intersection(encoding.features):
            encodings.setdefault(encoding.column, []).append(encoding)
    columns = []
    for name, parts in encodings.items():
        is_list = any(each.list_size > 1 or each.name in padded for each in parts)
        dtype = _dtype(parts, is_list, encoder.profile.get(name))
        is_optional = all(each.name in padded or _allows_missing(each) for each in parts)
        # Without the target item, or under another name, all rows would have an unknown one.
        is_optional = is_optional and not any(each.name in histories.values() for each in parts)
        example = _example(parts, is_list, encoder.profile.get(name, _NO_PROFILE), dtype)
        columns.append(RawColumn(name, dtype, is_list, is_optional, example))
    for name in dict.fromkeys(encoder.history_columns(histories).values()):
        example = _example([encoder.maker(histories[name])], True, _NO_PROFILE, TEXT)
        columns.append(RawColumn(name, TEXT, is_list=True, is_optional=True, example=example))
    if interface.candidate_input:
        example = _example([item_encoding(encoder, interface)], True, _NO_PROFILE, TEXT)
        columns.append(RawColumn(TOP, INT64, is_optional=True, example=interface.top))
        columns.append(RawColumn(EXCLUDED, TEXT, is_list=True, is_optional=True, example=example))
    return tuple(columns)


def item_encoding(encoder: Encoder, interface: Interface) -> FeatureEncoding:
    """Returns the encoding of the items that a model recommends."""
    item = next(f for f in interface.features if f.input == interface.candidate_input)
    return encoder.maker(item.name)


def items_dtype(encoding: FeatureEncoding) -> str:
    """Returns the dtype of original items in an answer: `TEXT`, or `INT64` if all are integers and
    none is -1, which means no item; empty for an encoding that does not keep them."""
    if isinstance(encoding, Identity):
        return INT64
    if not isinstance(encoding, Vocabulary):
        return ""
    if not encoding.is_integer:
        return TEXT
    try:
        numbers = encoding.values.cast(pa.int64())
    except pa.ArrowInvalid:
        return TEXT
    is_exact = numbers.cast(pa.string()).equals(encoding.values)
    return INT64 if is_exact and pc.index(numbers, NO_ITEM).as_py() < 0 else TEXT


def lacking(encoder: Encoder, interface: Interface) -> list[str]:
    """Returns the features of a model that an encoder does not make."""
    known = {name for encoding in encoder.features for name in encoding.features}
    histories = history_features(interface)
    return [f.name for f in interface.features if histories.get(f.name, f.name) not in known]


def check_encoder(encoder: Encoder, interface: Interface) -> None:
    """Raises ValueError for an encoder that is not that of the model."""
    encodings = {name: encoding for encoding in encoder.features for name in encoding.features}
    histories = history_features(interface)
    for feature in interface.features:
        name = histories.get(feature.name, feature.name)
        encoding = encodings.get(name)
        received = "none" if encoding is None else f"hotness {encoding.hotness}"
        has_any_length = feature.padded or feature.name in histories
        is_same = encoding is not None and (has_any_length or encoding.hotness == feature.count)
        if isinstance(encoding, IdEncoding) and encoding.name == name:
            received += f", {encoding.num_ids:,} ids"
            is_same = is_same and encoding.num_ids <= (feature.cardinality or 0)
        if not is_same:
            ids = "" if feature.cardinality is None else f", at most {feature.cardinality:,} ids"
            raise ValueError(
                f"feature '{feature.name}': expected an encoder of hotness {feature.count}{ids}, "
                f"as the model has, got {received}: use the encoder of the training's data set"
            )


def _dtype(encodings: list[FeatureEncoding], is_list: bool, profile: ColumnProfile | None) -> str:
    is_number = [isinstance(encoding, Number | Bins) for encoding in encodings]
    is_integer = [
        isinstance(encoding, Identity) or getattr(encoding, "is_integer", False)
        for encoding in encodings
    ]
    has_all = profile is not None and not profile.missing
    has_all = has_all or all(isinstance(encoding, Identity) for encoding in encodings)
    if all(is_number):
        return FLOAT64
    if is_list or not has_all:
        return TEXT
    if all(number or integer for number, integer in zip(is_number, is_integer, strict=True)):
        return FLOAT64 if any(is_number) else INT64
    return BOOL if all(map(_is_boolean, encodings)) else TEXT


def _is_boolean(encoding: FeatureEncoding) -> bool:
    is_small = isinstance(encoding, Vocabulary) and len(encoding.values) == 2
    return is_small and set(encoding.values.to_pylist()) == {"true", "false"}


def _allows_missing(encoding: FeatureEncoding) -> bool:
    try:
        encoding.encode(pa.nulls(1, pa.string()))
    except InvalidValue:
        return False
    return True


def _example(
    encodings: list[FeatureEncoding], is_list: bool, profile: ColumnProfile, dtype: str
) -> Any:
    """Returns a frequent value of the training, or of the vocabulary; else 0."""
    values: list[Any] = [value for value, _ in profile.frequent]
    if not values and profile.quantiles:
        values = [profile.quantiles[len(profile.quantiles) // 2]]
    for encoding in encodings:
        if not values and isinstance(encoding, Vocabulary):
            values = encoding.values.slice(0, _LIST_EXAMPLES).to_pylist()
    kinds = {TEXT: str, FLOAT64: float, INT64: int, BOOL: "true".__eq__}
    values = [kinds[dtype](value) for value in values or [0]]
    return values[:_LIST_EXAMPLES] if is_list else values[0]
