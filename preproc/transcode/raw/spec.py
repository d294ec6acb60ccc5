"""The simplified feature spec of raw data: what `transcode` reads and `gen_csv` writes files for.

It has the sections of a feature spec, with fewer keys: dtypes are optional, a cardinality may be
`auto` or absent, chunks are CSV or Parquet. `docs/reference/transcode.md` describes it.
"""

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataloading.spec import rules, yaml_io
from dataloading.spec.feature_spec import (
    CATEGORICAL_CHANNEL,
    ITEM_CHANNEL,
    LABEL_CHANNEL,
    NUMERICAL_CHANNEL,
    USER_CHANNEL,
    FeatureSpec,
)
from preproc.sources.column_chunk import CSV, PARQUET, SourceChunk

CLICKS = (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL, LABEL_CHANNEL)
INTERACTIONS = (USER_CHANNEL, ITEM_CHANNEL, LABEL_CHANNEL)
ID_CHANNELS = (CATEGORICAL_CHANNEL, USER_CHANNEL, ITEM_CHANNEL)
AUTO = "auto"
_DEFAULT_DTYPES = {NUMERICAL_CHANNEL: "float16", LABEL_CHANNEL: "bool"}
_ALLOWED_KINDS = {
    NUMERICAL_CHANNEL: "f",
    CATEGORICAL_CHANNEL: "biu",
    USER_CHANNEL: "iu",
    ITEM_CHANNEL: "iu",
    LABEL_CHANNEL: "biuf",
}
# Keys of a CSV chunk in addition to those of every chunk.
_OPTIONS = ("header", "delimiter", "quoting")


@dataclass(frozen=True)
class RawSpec:
    """A simplified feature spec in normal form."""

    # the features of the channels -> keys of a feature spec; `dtype` and `cardinality` are absent
    # where they follow from the data
    features: dict[str, dict]
    unused: tuple[str, ...]  # features that are stored and in no channel
    sources: dict[str, tuple[SourceChunk, ...]]  # split -> chunks; files relative to the folder
    # all of one kind, `CLICKS` or `INTERACTIONS`; of clicks each possibly empty; of interactions
    # `user` and `item` have one feature. A label is one feature of one value
    channels: dict[str, tuple[str, ...]]
    metadata: dict
    base_directory: Path
    origin: str

    @classmethod
    def from_yaml(cls, path: str | Path) -> "RawSpec":
        """Reads and checks a YAML file; see `from_content`."""
        path = Path(path)
        return cls.from_content(yaml_io.read_mapping(path), path.parent, str(path))

    @classmethod
    def from_content(cls, content: dict, folder: Path, origin: str) -> "RawSpec":
        """Checks the sections of a simplified feature spec, which messages call `origin`.

        Raises:
            ValueError: a rule is broken.
        """
        rules.check_sections(content, origin)
        raw = content["feature_spec"]
        # The rules want a dtype; an absent one is int64 here and removed below.
        complete = {}
        for name, keys in raw.items() if isinstance(raw, dict) else ():
            complete[name] = keys
            if keys is None or isinstance(keys, dict):
                stated = (item for item in (keys or {}).items() if item != ("cardinality", AUTO))
                complete[name] = {"dtype": "int64", **dict(stated)}
        features = rules.features_section(complete or raw, origin)
        channels = _channels(content["channel_spec"], features, origin)
        sources = _sources(content["source_spec"], features, channels[LABEL_CHANNEL], origin)
        for name in features:
            if "dtype" not in (raw[name] or ()):
                del features[name]["dtype"]
        used = {}
        for channel, names in channels.items():
            for name in names:
                where = f"{origin}: feature_spec: feature '{name}'"
                used[name] = _completed_feature(features[name], channel, where)
        metadata = content.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise ValueError(f"{origin}: metadata: found {metadata!r:.100}; expected a mapping")
        return cls(
            features={name: used[name] for name in features if name in used},
            unused=tuple(name for name in features if name not in used),
            sources=sources,
            channels=channels,
            metadata=rules.plain_value(metadata, f"{origin}: metadata"),
            base_directory=folder,
            origin=origin,
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """The features that are ids, in order."""
        return tuple(name for channel in ID_CHANNELS for name in self.channels.get(channel, ()))

    @property
    def is_interactions(self) -> bool:
        """True for rows of users and items, False for clicks."""
        return USER_CHANNEL in self.channels

    @property
    def pair(self) -> tuple[str, ...]:
        """The features of user and item of interactions; none of clicks."""
        return (*self.channels.get(USER_CHANNEL, ()), *self.channels.get(ITEM_CHANNEL, ()))

    def hotness(self, feature: str) -> int:
        """Values per row."""
        return _hotness(self.features[feature])

    def has(self, split: str, feature: str) -> bool:
        """Returns whether a split stores a feature; the label may be absent."""
        return any(feature in chunk.columns for chunk in self.sources[split])

    def located(self, split: str) -> list[SourceChunk]:
        """Returns the chunks of a split with absolute paths."""
        folder = self.base_directory.absolute()
        return [
            dataclasses.replace(chunk, files=tuple(str(folder / file) for file in chunk.files))
            for chunk in self.sources[split]
        ]

    def as_in(self, known: FeatureSpec, derived: Collection[str] = ()) -> "RawSpec":
        """Returns this data as more rows of a data set, with its dtypes, cardinalities and order.

        Args:
            derived: features of the data set that raw data does not have.
        """
        features, channels = {}, {}
        for channel, own in self.channels.items():
            names = tuple(n for n in known.channel_spec.get(channel, ()) if n not in derived)
            if channel == LABEL_CHANNEL and not own:
                names = ()
            elif channel == LABEL_CHANNEL and self.is_interactions and not names:
                names = own  # the known rows were all interactions
            if set(names) != set(own):
                raise ValueError(
                    f"{self.origin}: channel_spec: channel '{channel}' has {rules.listing(own)}; "
                    f"{known.origin} has {rules.listing(names)}; expected the same features, in "
                    "any order"
                )
            channels[channel] = names
            for name in names:
                features[name] = known.feature_spec.get(name, self.features[name])
                where = f"{self.origin}: feature_spec: feature '{name}'"
                if self.hotness(name) != _hotness(features[name]):
                    raise ValueError(
                        f"{where}: hotness is {self.hotness(name)}; it is "
                        f"{_hotness(features[name])} in {known.origin}"
                    )
                stated = self.features[name].get("cardinality")
                if stated not in (None, features[name].get("cardinality")):
                    raise ValueError(
                        f"{where}: cardinality is {stated}; it is "
                        f"{features[name].get('cardinality')} in {known.origin}, leave it out"
                    )
        return dataclasses.replace(self, features=features, channels=channels)

    def with_ids(self, names: Collection[str]) -> "RawSpec":
        """Returns this data with numerical features, those in bins, as categorical ones."""
        if not names:
            return self
        numericals = self.channels[NUMERICAL_CHANNEL]
        moved = tuple(name for name in numericals if name in names)
        channels = {
            **self.channels,
            NUMERICAL_CHANNEL: tuple(name for name in numericals if name not in names),
            CATEGORICAL_CHANNEL: (*self.channels[CATEGORICAL_CHANNEL], *moved),
        }
        return dataclasses.replace(self, channels=channels)


def _hotness(keys: dict) -> int:
    return keys.get("hotness", math.prod(keys.get("dimensions", ())))


def _channels(raw, features: dict, origin: str) -> dict[str, tuple[str, ...]]:
    """Returns the section `channel_spec` with all channels of its kind."""
    stated = rules.channels_section(raw, features, origin)
    where = f"{origin}: channel_spec"
    for channel in stated:
        if channel not in _ALLOWED_KINDS:
            raise ValueError(
                f"{where}: unknown channel '{channel}'; expected one of {', '.join(_ALLOWED_KINDS)}"
                + rules.suggestion(channel, _ALLOWED_KINDS)
            )
    kind = next((kind for kind in (CLICKS, INTERACTIONS) if set(stated) <= set(kind)), None)
    if kind is None:
        raise ValueError(
            f"{where}: channels of two kinds of data: {', '.join(stated)}; expected those of one, "
            f"{', '.join(CLICKS)} or {', '.join(INTERACTIONS)}"
        )
    channels = {channel: stated.get(channel, ()) for channel in kind}
    names = [name for features in channels.values() for name in features]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: feature '{name}' is in two channels; expected one")
    if kind == CLICKS and not (channels[NUMERICAL_CHANNEL] or channels[CATEGORICAL_CHANNEL]):
        raise ValueError(
            f"{where}: neither numerical nor categorical features; expected at least one of either"
        )
    for channel, minimum in ((USER_CHANNEL, 1), (ITEM_CHANNEL, 1), (LABEL_CHANNEL, 0)):
        if channel in channels and not minimum <= len(channels[channel]) <= 1:
            raise ValueError(
                f"{where}: channel '{channel}': {rules.listing(channels[channel])}; expected one "
                "feature"
            )
    return channels


def _completed_feature(keys: dict, channel: str, where: str) -> dict:
    """Returns the keys of a feature, with the dtype of its channel where none is given."""
    if channel not in ID_CHANNELS:
        if "cardinality" in keys:
            raise ValueError(
                f"{where}: has a cardinality and is in the channel '{channel}'; only the features "
                f"of {', '.join(ID_CHANNELS)} are ids"
            )
        keys = {"dtype": _DEFAULT_DTYPES[channel], **keys}
    if channel not in (NUMERICAL_CHANNEL, CATEGORICAL_CHANNEL) and _hotness(keys) != 1:
        rule = "a label is one value" if channel == LABEL_CHANNEL else f"a row has one {channel}"
        raise ValueError(f"{where}: hotness is {_hotness(keys)}; {rule}")
    if "dtype" in keys and np.dtype(keys["dtype"]).kind not in _ALLOWED_KINDS[channel]:
        allowed = [d for d in rules.DTYPES if np.dtype(d).kind in _ALLOWED_KINDS[channel]]
        raise ValueError(
            f"{where}: dtype {keys['dtype']} in the channel '{channel}'; expected "
            f"{', '.join(allowed)}"
        )
    return keys


def _sources(
    raw, features: dict, labels: tuple[str, ...], origin: str
) -> dict[str, tuple[SourceChunk, ...]]:
    """Returns the chunks of the splits; the format's rules check what all chunks share."""
    where = f"{origin}: source_spec"
    if not raw:
        raise ValueError(
            f"{where}: nothing there; raw data has a split, such as 'train', with its chunks"
        )
    options, plain = {}, raw
    if isinstance(raw, dict) and all(isinstance(chunks, list) for chunks in raw.values()):
        plain = {split: list(chunks) for split, chunks in raw.items()}
        for split, chunks in plain.items():
            here = f"{where}: split '{split}'"
            if isinstance(split, str) and ("/" in split or split.startswith(".")):
                raise ValueError(
                    f"{here}; a split becomes a folder: allowed are names without '/' that do "
                    "not start with '.'"
                )
            for i, chunk in enumerate(chunks):
                if isinstance(chunk, dict):
                    options[split, i] = _options(chunk, f"{here}: chunk {i}")
                    # The rules of a Parquet chunk are those of a CSV one.
                    kind = {"type": CSV} if "type" in chunk else {}
                    chunks[i] = {key: chunk[key] for key in chunk if key not in _OPTIONS} | kind
    checked = rules.sources_section(plain, features, labels, origin)
    return {
        split: tuple(
            SourceChunk(files=chunk.files, columns=chunk.features, **options[split, i])
            for i, chunk in enumerate(chunks)
        )
        for split, chunks in checked.items()
    }


def _options(chunk: dict, where: str) -> dict:
    """Returns type, header, delimiter and quoting of a chunk."""
    kind = chunk.get("type", CSV)  # the format's rules report a missing one
    if kind not in (CSV, PARQUET):
        raise ValueError(
            f"{where}: type is {kind!r}; raw data is {CSV} or {PARQUET}"
            + rules.suggestion(kind, (CSV, PARQUET))
        )
    options = {name: chunk[name] for name in _OPTIONS if name in chunk}
    if kind == PARQUET and options:
        raise ValueError(f"{where}: {', '.join(options)}: only CSV files have that; remove it")
    for name in ("header", "quoting"):
        if not isinstance(options.get(name, False), bool):
            raise ValueError(f"{where}: {name} is {options[name]!r}; expected true or false")
    delimiter = options.get("delimiter", ",")
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n\0;':
        raise ValueError(
            f"{where}: delimiter is {delimiter!r}; expected one ASCII character but no quotation "
            'mark, line end, NUL or semicolon, which is between the values of one field, e.g. "\\t"'
        )
    return {"type": kind, "header": False, **options}
