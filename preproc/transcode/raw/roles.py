"""Columns of tables without a feature spec: their roles by flags, and the feature spec of them."""

from collections.abc import Mapping, Sequence

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
from preproc.sources.column_chunk import CSV
from preproc.transcode.raw.spec import AUTO


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
    return _sections(features, channels, TRAIN)


def _sections(features: dict[str, dict], channels: dict, split: str) -> dict:
    """Returns sections whose chunk is a table that the engine has read already."""
    chunk = {"type": CSV, "features": list(features), "files": ["table"]}
    return {"feature_spec": features, "source_spec": {split: [chunk]}, "channel_spec": channels}


def known_content(
    columns: Sequence[str], known: FeatureSpec, derived: set[str], split: str,
    origin: str,
) -> dict:  # fmt: skip
    """Returns the sections of the simplified feature spec of more rows of an earlier data set.

    The columns are found by name; the label and the derived features may be absent.
    """
    channels = {
        channel: [name for name in names if name not in derived]
        for channel, names in known.channel_spec.items()
    }
    if not set(channels.get(LABEL_CHANNEL, ())) <= set(columns):
        channels[LABEL_CHANNEL] = []
    names = [name for names in channels.values() for name in names]
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{origin}: expected the columns {rules.listing(names)} of {known.origin}; "
                f"'{name}' is missing, the file has {rules.listing(columns)}"
                + rules.suggestion(name, columns)
            )
    hotness = {name: known.hotness(name) for name in names}
    features = {name: {"hotness": n} if n > 1 else {} for name, n in hotness.items()}
    return _sections(features, channels, split)
