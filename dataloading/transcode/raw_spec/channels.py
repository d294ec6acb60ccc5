"""Which channels raw data has, and what the features of each may be.

There are two kinds of raw data: clicks, rows of numericals and ids, and interactions, rows of one
user and one item.
"""

import math

import numpy as np

from dataloading.spec import rules
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    USER_CHANNEL,
)

CLICKS = (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, LABEL_CHANNEL)
INTERACTIONS = (USER_CHANNEL, ITEM_CHANNEL, LABEL_CHANNEL)
ID_CHANNELS = (CATEGORICAL_CHANNEL, USER_CHANNEL, ITEM_CHANNEL)
_DEFAULT_DTYPES = {NUMERICAL_CHANNEL: "float16", LABEL_CHANNEL: "bool"}
_ALLOWED_KINDS = {
    NUMERICAL_CHANNEL: "f",
    CATEGORICAL_CHANNEL: "biu",
    USER_CHANNEL: "iu",
    ITEM_CHANNEL: "iu",
    LABEL_CHANNEL: "biuf",
}


def channels_of_one_kind(
    raw, features: dict, kinds: tuple[tuple[str, ...], ...], origin: str
) -> dict[str, tuple[str, ...]]:
    """The section `channel_spec` with all channels of its kind.

    Args:
        raw: what YAML gave.
        features: the section `feature_spec` in normal form.
        kinds: those that are allowed, each a tuple of channels.

    Raises:
        ValueError: channels are unknown, of two kinds, or have too few or too many features.
    """
    given = rules.channels_section(raw, features, origin)
    known = tuple(dict.fromkeys(channel for kind in kinds for channel in kind))
    for channel in given:
        if channel not in known:
            raise ValueError(
                f"{origin}: channel_spec: unknown channel '{channel}'; allowed here: "
                f"{', '.join(known)}" + rules.suggestion(channel, known)
            )
    kind = next((kind for kind in kinds if set(given) <= set(kind)), None)
    if kind is None:
        raise ValueError(
            f"{origin}: channel_spec: channels of two kinds of data: {', '.join(given)}; allowed: "
            "those of one, " + " or ".join(", ".join(kind) for kind in kinds)
        )
    channels = {channel: given.get(channel, ()) for channel in kind}
    names = [name for channel in kind for name in channels[channel]]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{origin}: channel_spec: feature '{name}' is in two channels; allowed: one"
            )
    if kind == CLICKS and not channels[NUMERICAL_CHANNEL] and not channels[CATEGORICAL_CHANNEL]:
        raise ValueError(
            f"{origin}: channel_spec: neither numerical nor categorical features; a model needs "
            "one of either at least"
        )
    for channel, least in ((USER_CHANNEL, 1), (ITEM_CHANNEL, 1), (LABEL_CHANNEL, 0)):
        if channel in channels and not least <= len(channels[channel]) <= 1:
            raise ValueError(
                f"{origin}: channel_spec: channel '{channel}': "
                f"{rules.listing(channels[channel])}; allowed: one feature"
            )
    return channels


def completed_feature(keys: dict, channel: str, where: str) -> dict:
    """The keys of a feature with the dtype that its channel has where none is given."""
    if channel not in ID_CHANNELS:
        if "cardinality" in keys:
            raise ValueError(
                f"{where}: has a cardinality and is in the channel '{channel}'; only the features "
                f"of {', '.join(ID_CHANNELS)} are ids"
            )
        keys = {"dtype": _DEFAULT_DTYPES[channel], **keys}
    hotness = keys.get("hotness", math.prod(keys.get("dimensions", ())))
    if channel == LABEL_CHANNEL and hotness != 1:
        raise ValueError(f"{where}: hotness is {hotness}; a label is one value")
    if channel in (USER_CHANNEL, ITEM_CHANNEL) and hotness != 1:
        raise ValueError(f"{where}: hotness is {hotness}; a row has one {channel}")
    if "dtype" in keys and np.dtype(keys["dtype"]).kind not in _ALLOWED_KINDS[channel]:
        allowed = [d for d in rules.DTYPES if np.dtype(d).kind in _ALLOWED_KINDS[channel]]
        raise ValueError(
            f"{where}: dtype {keys['dtype']} in the channel '{channel}'; allowed: "
            f"{', '.join(allowed)}"
        )
    return keys
