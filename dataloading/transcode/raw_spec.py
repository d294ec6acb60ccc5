"""The simplified feature spec of raw data: what `transcode` reads and `gen_csv` writes files for.

It has the sections of a feature spec, with fewer keys: dtypes are optional, a cardinality may be
`auto` or absent, chunks are CSV or Parquet. `docs/your_own_data.md` describes it.
"""

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
from dataloading.table_input.files import CSV, PARQUET, RawChunk

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
    stated = rules.channels_section(raw, features, origin)
    where = f"{origin}: channel_spec"
    known = tuple(dict.fromkeys(channel for kind in kinds for channel in kind))
    for channel in stated:
        if channel not in known:
            raise ValueError(
                f"{where}: unknown channel '{channel}'; expected one of {', '.join(known)}"
                + rules.suggestion(channel, known)
            )
    kind = next((kind for kind in kinds if set(stated) <= set(kind)), None)
    if kind is None:
        raise ValueError(
            f"{where}: channels of two kinds of data: {', '.join(stated)}; expected those of one, "
            + " or ".join(", ".join(kind) for kind in kinds)
        )
    channels = {channel: stated.get(channel, ()) for channel in kind}
    _check_channels(channels, where)
    return channels


def _check_channels(channels: dict[str, tuple[str, ...]], where: str) -> None:
    """Raises ValueError unless the channels have the features that their kind needs."""
    names = [name for features in channels.values() for name in features]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: feature '{name}' is in two channels; expected one")
    has_inputs = channels.get(NUMERICAL_CHANNEL) or channels.get(CATEGORICAL_CHANNEL)
    if CATEGORICAL_CHANNEL in channels and not has_inputs:
        raise ValueError(
            f"{where}: neither numerical nor categorical features; expected at least one of either"
        )
    for channel, minimum in ((USER_CHANNEL, 1), (ITEM_CHANNEL, 1), (LABEL_CHANNEL, 0)):
        if channel in channels and not minimum <= len(channels[channel]) <= 1:
            raise ValueError(
                f"{where}: channel '{channel}': {rules.listing(channels[channel])}; expected one "
                "feature"
            )


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


AUTO = "auto"
_OPTIONS = (
    "header",
    "delimiter",
    "quoting",
)  # keys of a CSV chunk in addition to those of every chunk


@dataclass(frozen=True)
class RawSpec:
    """A simplified feature spec in normal form.

    features: the features of the channels -> keys of a feature spec; `dtype` and
        `cardinality` are absent where they follow from the data.
    unused: features that are stored and in no channel.
    sources: mapping name -> chunks.
    channels: all of one kind, `CLICKS` or `INTERACTIONS`; of clicks each possibly empty; of
        interactions `user` and `item` have one feature. A label is one feature of one value.
    """

    features: dict[str, dict]
    unused: tuple[str, ...]
    sources: dict[str, tuple[RawChunk, ...]]
    channels: dict[str, tuple[str, ...]]
    metadata: dict
    base_directory: Path
    origin: str

    @classmethod
    def from_yaml(cls, path, kinds: tuple[tuple[str, ...], ...] = (CLICKS,)) -> "RawSpec":
        """Reads and checks a YAML file; see `from_content`."""
        path = Path(path)
        return cls.from_content(yaml_io.read_mapping(path), path.parent, str(path), kinds)

    @classmethod
    def from_content(
        cls, content: dict, folder: Path, origin: str, kinds: tuple[tuple[str, ...], ...]
    ) -> "RawSpec":
        """Checks the sections of a simplified feature spec.

        Args:
            folder: what file names are relative to.
            origin: what messages call it.
            kinds: which raw data the caller takes, of `CLICKS` and `INTERACTIONS`.

        Raises:
            ValueError: a rule is broken; the message names file, section, feature and solution.
        """
        rules.check_sections(content, origin)
        raw = _without_auto(content["feature_spec"], origin)
        # The rules want a dtype; an absent one is int64 here and removed below.
        complete = {
            name: {"dtype": "int64", **keys} if isinstance(keys, dict) else keys
            for name, keys in raw.items()
        }
        features = rules.features_section(complete, origin)
        for name in features:
            if "dtype" not in raw[name]:
                del features[name]["dtype"]
        channels = channels_of_one_kind(content["channel_spec"], features, kinds, origin)
        sources = _sources(content["source_spec"], complete, channels[LABEL_CHANNEL], origin)
        used = [name for names in channels.values() for name in names]
        for channel, names in channels.items():
            for name in names:
                where = f"{origin}: feature_spec: feature '{name}'"
                features[name] = completed_feature(features[name], channel, where)
        metadata = content.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise ValueError(f"{origin}: metadata: found {metadata!r:.100}; allowed: a mapping")
        return cls(
            features={name: keys for name, keys in features.items() if name in used},
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

    def hotness(self, feature: str) -> int:
        """Values per row."""
        keys = self.features[feature]
        return keys.get("hotness", math.prod(keys.get("dimensions", ())))

    def has(self, mapping: str, feature: str) -> bool:
        """Returns whether a mapping stores a feature; the label may be absent."""
        return any(feature in chunk.features for chunk in self.sources[mapping])

    def as_in(self, known: FeatureSpec, derived: Collection[str] = ()) -> "RawSpec":
        """This data as more rows of a prepared data set: dtypes, cardinalities and order are its.

        Args:
            derived: features of the data set that raw data does not have.

        Raises:
            ValueError: a feature is missing or not in the data set, or is another one there.
        """
        features, channels = {}, {}
        for channel in self.channels:
            names = tuple(n for n in known.channel_spec.get(channel, ()) if n not in derived)
            if channel == LABEL_CHANNEL and not self.channels[channel]:
                names = ()
            elif channel == LABEL_CHANNEL and self.is_interactions and not names:
                names = self.channels[channel]  # the known rows were all interactions
            if set(names) != set(self.channels[channel]):
                raise ValueError(
                    f"{self.origin}: channel_spec: channel '{channel}' has "
                    f"{rules.listing(self.channels[channel])}; {known.origin} has "
                    f"{rules.listing(names)}; allowed: the same features, in any order"
                )
            channels[channel] = names
            for name in names:
                if name not in known.feature_spec:  # such a label
                    features[name] = self.features[name]
                    continue
                if self.hotness(name) != known.hotness(name):
                    raise ValueError(
                        f"{self.origin}: feature_spec: feature '{name}': hotness is "
                        f"{self.hotness(name)}; it is {known.hotness(name)} in {known.origin}"
                    )
                features[name] = known.feature_spec[name]
                stated = self.features[name].get("cardinality")
                if stated not in (None, features[name].get("cardinality")):
                    raise ValueError(
                        f"{self.origin}: feature_spec: feature '{name}': cardinality is {stated}; "
                        f"it is {features[name].get('cardinality')} in {known.origin}, leave it out"
                    )
        return RawSpec(
            features,
            self.unused,
            self.sources,
            channels,
            self.metadata,
            self.base_directory,
            self.origin,
        )


def _without_auto(raw, origin: str) -> dict:
    """The section `feature_spec` without `cardinality: auto`; a feature without keys is {}."""
    if not isinstance(raw, dict):
        rules.features_section(raw, origin)  # raises the error
    features = {}
    for name, keys in raw.items():
        features[name] = {} if keys is None else keys
        if isinstance(keys, dict) and keys.get("cardinality") == AUTO:
            features[name] = {key: keys[key] for key in keys if key != "cardinality"}
    return features


def _sources(raw, features: dict, labels: tuple[str, ...], origin: str) -> dict:
    """Mappings of `RawChunk`s. What all chunks share, the format's own rules check."""
    if not raw:
        raise ValueError(
            f"{origin}: source_spec: nothing there; raw data has a mapping, such as 'train', with "
            "its chunks"
        )
    if not isinstance(raw, dict) or not all(isinstance(chunks, list) for chunks in raw.values()):
        rules.sources_section(raw, features, labels, origin)  # raises the error
    options, plain = {}, {}
    for mapping, chunks in raw.items():
        if isinstance(mapping, str) and ("/" in mapping or mapping.startswith(".")):
            raise ValueError(
                f"{origin}: source_spec: mapping '{mapping}'; a mapping becomes a folder: allowed "
                "are names without '/' that do not start with '.'"
            )
        plain[mapping] = []
        for index, chunk in enumerate(chunks):
            where = f"{origin}: source_spec: mapping '{mapping}': chunk {index}"
            if isinstance(chunk, dict):
                options[mapping, index] = _chunk_options(chunk, where)
                chunk = {key: value for key, value in chunk.items() if key not in _OPTIONS}
                if "type" in chunk:
                    chunk["type"] = CSV  # the rules of a CSV chunk are those of a Parquet one
            plain[mapping].append(chunk)
    checked = rules.sources_section(plain, features, labels, origin)
    return {
        mapping: tuple(
            RawChunk(features=chunk.features, files=chunk.files, **options[mapping, index])
            for index, chunk in enumerate(chunks)
        )
        for mapping, chunks in checked.items()
    }


def _chunk_options(chunk: dict, where: str) -> dict:
    """Type, header, delimiter and quoting of a chunk."""
    kind = chunk.get("type", CSV)  # the format's rules report a missing one
    if kind not in (CSV, PARQUET):
        raise ValueError(
            f"{where}: type is {kind!r}; raw data is {CSV} or {PARQUET}"
            + rules.suggestion(kind, (CSV, PARQUET))
        )
    options = {name: chunk[name] for name in _OPTIONS if name in chunk}
    if kind == PARQUET and options:
        raise ValueError(f"{where}: {', '.join(options)}: only CSV files have that; remove it")
    if not isinstance(options.get("header", False), bool):
        raise ValueError(
            f"{where}: header is {options['header']!r}; allowed: true (the first line of each file "
            "names its columns) or false"
        )
    if not isinstance(options.get("quoting", True), bool):
        raise ValueError(
            f"{where}: quoting is {options['quoting']!r}; allowed: true (fields may be quoted) or "
            "false (quotation marks are characters like others)"
        )
    delimiter = options.get("delimiter", ",")
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n;':
        raise ValueError(
            f"{where}: delimiter is {delimiter!r}; allowed: one ASCII character but no quotation "
            'mark, line end or semicolon, which is between the values of one field, e.g. "\\t"'
        )
    return {"type": kind, **options}
