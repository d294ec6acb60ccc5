"""Columns of tables without a feature spec: their roles by flags, and the feature spec of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dataloading.spec import rules
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    TRAIN,
    USER_CHANNEL,
    FeatureSpec,
)
from preproc.fitting.infer import NUMBERS, ColumnFacts
from preproc.fitting.whole_numbers import KindChoice
from preproc.sources.column_chunk import CSV, SourceChunk
from preproc.transcode.raw.spec import AUTO, CLICKS, INTERACTIONS, RawSpec


def column_roles(
    flags: Mapping[str, str | None], columns: Sequence[str], origin: str
) -> dict[str, tuple[str, ...]]:
    """Returns the columns of each role, which must exist and have one role.

    Args:
        flags: role -> its flag: label, categorical, numerical, drop, keep, user and item.
    """
    roles, flag_of = {}, {}
    for flag, text in flags.items():
        is_list = flag in ("categorical", "numerical", "drop", "keep")
        roles[flag] = tuple(filter(None, text.split(",") if text and is_list else [text]))
        for name in roles[flag]:
            if name not in columns:
                raise ValueError(
                    f"--{flag} {name}: expected a column of {origin}, which has "
                    f"{rules.listing(columns)}" + rules.suggestion(name, columns)
                )
            if name in flag_of:
                raise ValueError(f"--{flag_of[name]} and --{flag} both name '{name}': give one")
            flag_of[name] = flag
    if len(roles["user"]) != len(roles["item"]) or (roles["user"] and roles["label"]):
        raise ValueError(
            "--user and --item describe interactions, rows of one user and one item without a "
            "label: give both, and no --label"
        )
    if not roles["user"] and not roles["label"]:
        raise ValueError(
            f"--label is missing: expected the column of {origin} to predict, one of "
            f"{rules.listing(columns)} (interactions: --user and --item)"
        )
    return roles


def read_columns(roles: Mapping[str, tuple[str, ...]], columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns whose types are to be inferred."""
    if roles["user"]:
        return ()
    return tuple(name for name in columns if name not in (*roles["drop"], *roles["label"]))


def column_reasons(
    roles: Mapping[str, tuple[str, ...]],
    facts: Mapping[str, ColumnFacts],
    choices: Mapping[str, KindChoice],
) -> dict[str, str]:
    """Returns what was seen of each column; choices: of those that hold whole numbers."""
    words = {"user": "", "item": "", "label": "label", "drop": "--drop"}
    reasons = {name: word for role, word in words.items() for name in roles[role]}
    reasons |= {name: str(own) for name, own in facts.items()}
    return reasons | {n: f"{facts[n]}; {own.reason}" for n, own in choices.items() if own.reason}


def inferred_content(
    roles: Mapping[str, tuple[str, ...]],
    facts: Mapping[str, ColumnFacts],
    kinds: Mapping[str, str],
    time: str | None,
) -> dict:
    """Returns the sections of the simplified feature spec of a table.

    Args:
        facts: of the features.
        kinds: of the features, `IDS` or `NUMBERS`.
        time: column of --split_by_time.
    """
    features: dict[str, dict]
    if roles["user"]:
        channels = {USER_CHANNEL: [*roles["user"]], ITEM_CHANNEL: [*roles["item"]]}
        features = {name: {"cardinality": AUTO} for (name,) in channels.values()}
    else:
        numbers = [name for name in facts if kinds[name] == NUMBERS]
        channels = {LABEL_CHANNEL: [*roles["label"]], NUMERICAL_CHANNEL: numbers}
        channels[CATEGORICAL_CHANNEL] = [name for name in facts if name not in numbers]
        features = {name: {} for name in roles["label"]}
        for name, own in facts.items():
            keys = {"dtype": "float32"} if name in numbers else {"cardinality": AUTO}
            features[name] = keys | ({"hotness": own.hotness} if own.hotness > 1 else {})
    if time is not None:
        features.setdefault(time, {})
    # The engine has read the table already.
    chunk = {"type": CSV, "features": list(features), "files": ["table"]}
    return {"feature_spec": features, "source_spec": {TRAIN: [chunk]}, "channel_spec": channels}


def known_spec(
    columns: Sequence[str], known: FeatureSpec, derived: set[str], split: str, origin: str
) -> RawSpec:
    """Returns the description of a table with more rows of an earlier data set.

    The columns are found by name; the label and the derived features may be absent.
    """
    channels = {
        channel: tuple(n for n in known.channel_spec.get(channel, ()) if n not in derived)
        for channel in (INTERACTIONS if USER_CHANNEL in known.channel_spec else CLICKS)
    }
    if not set(channels[LABEL_CHANNEL]) <= set(columns):
        channels[LABEL_CHANNEL] = ()
    names = tuple(name for names in channels.values() for name in names)
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{origin}: expected the columns {rules.listing(names)} of {known.origin}; "
                f"'{name}' is missing, the file has {rules.listing(columns)}"
                + rules.suggestion(name, columns)
            )
    features = {name: known.feature_spec[name] for name in names}
    sources = {split: (SourceChunk(CSV, ("table",), names),)}
    return RawSpec(features, (), sources, channels, {}, Path(), origin)
