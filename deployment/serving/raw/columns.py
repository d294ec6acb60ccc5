"""Columns of raw rows that a model reads, as its encoder describes them."""

from typing import Any

import pyarrow as pa

from deployment.serving.interface import BOOL, FLOAT64, INT64, TEXT, Interface, RawColumn
from preproc.encoding.columns import InvalidValue
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import FeatureEncoding, IdEncoding, Identity
from preproc.encoding.numbers import Bins, Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

_NO_PROFILE = ColumnProfile(0, 0)
_LIST_EXAMPLES = 2  # values of the example of a list


def raw_columns(encoder: Encoder, interface: Interface) -> tuple[RawColumn, ...]:
    """Returns the source columns of the model's features, in the encoder's order."""
    names = {feature.name for feature in interface.features}
    aligned = aligned_features(interface)
    encodings: dict[str, list[FeatureEncoding]] = {}
    for encoding in encoder.features:
        if names.intersection(encoding.features):
            encodings.setdefault(encoding.column, []).append(encoding)
    columns = []
    for name, parts in encodings.items():
        is_list = any(each.hotness > 1 or each.name in aligned for each in parts)
        dtype = _dtype(parts, is_list, encoder.profile.get(name))
        is_optional = all(each.name in aligned or _allows_missing(each) for each in parts)
        example = _example(parts, is_list, encoder.profile.get(name, _NO_PROFILE), dtype)
        columns.append(RawColumn(name, dtype, is_list, is_optional, example))
    return tuple(columns)


def aligned_features(interface: Interface) -> set[str]:
    """Returns the features whose lists have any length up to `count`."""
    features = interface.features
    return {f.name for f in features if f.padded or f.input in interface.histories}


def check_encoder(encoder: Encoder, interface: Interface) -> None:
    """Raises ValueError for an encoder that is not that of the model."""
    encodings = {name: encoding for encoding in encoder.features for name in encoding.features}
    aligned = aligned_features(interface)
    for feature in interface.features:
        encoding = encodings.get(feature.name)
        got = "none" if encoding is None else f"hotness {encoding.hotness}"
        is_same = encoding is not None and encoding.hotness == feature.count
        is_same = is_same or (encoding is not None and feature.name in aligned)
        if isinstance(encoding, IdEncoding):
            got += f", {encoding.num_ids:,} ids"
            is_same = is_same and encoding.num_ids <= (feature.cardinality or 0)
        if not is_same:
            ids = "" if feature.cardinality is None else f", at most {feature.cardinality:,} ids"
            raise ValueError(
                f"feature '{feature.name}': expected an encoder of hotness {feature.count}{ids}, "
                f"as the model has, got {got}: use the encoder of the training's data set"
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
