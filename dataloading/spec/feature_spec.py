"""The feature spec: the one contract between preparation and training, for every model.

A YAML file next to the data lists the features (`feature_spec`), the files that store them
(`source_spec`), their use in a model (`channel_spec`) and anything else (`metadata`).
`docs/data_format.md` describes the format. Needs yaml and NumPy only, never TensorFlow.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dataloading.spec import rules, yaml_io
from dataloading.spec.rules import Chunk

__all__ = [
    "CATEGORICAL_CHANNEL",
    "ITEM_CHANNEL",
    "LABEL_CHANNEL",
    "NUMERICAL_CHANNEL",
    "TEST",
    "TRAIN",
    "USER_CHANNEL",
    "VALIDATION",
    "Chunk",
    "FeatureSpec",
    "smallest_id_dtype",
]

NUMERICAL_CHANNEL = "numerical"
CATEGORICAL_CHANNEL = "categorical"
LABEL_CHANNEL = "label"
USER_CHANNEL = "user"
ITEM_CHANNEL = "item"
TRAIN = "train"
VALIDATION = "validation"
TEST = "test"

# What to do where a channel, or the files of its features, are not there.
_WAYS_OUT = {LABEL_CHANNEL: "; rows without labels can only be predicted (--mode predict)"}


def smallest_id_dtype(cardinality: int) -> np.dtype[Any]:
    """The smallest signed integer dtype that holds the ids 0 to cardinality - 1."""
    signed = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
    return next(dtype for dtype in signed if cardinality - 1 <= np.iinfo(dtype).max)


@dataclass(frozen=True)
class FeatureSpec:
    """A data set's description. Every instance is valid: the constructor checks the structure.

    feature_spec: feature name -> keys (`dtype`, and optionally `cardinality`, `hotness`, `alpha`,
        `dimensions`).
    source_spec: mapping name (train, validation, ...) -> chunks.
    channel_spec: channel name -> feature names, in the order in which the model gets them.
    metadata: anything; plain YAML values.
    base_directory: the folder that file names are relative to.
    origin: how error messages call this spec, usually the YAML file.

    Raises:
        ValueError: a rule of the format is broken; the message names the file, the section, the
            feature, what was found and what is allowed.
    """

    feature_spec: dict[str, dict[str, Any]]
    source_spec: dict[str, tuple[Chunk, ...]]
    channel_spec: dict[str, tuple[str, ...]]
    metadata: dict[str, Any] = field(default_factory=dict)
    base_directory: Path = field(default=Path("."), compare=False)
    origin: str = field(default="feature spec", compare=False)

    def __post_init__(self) -> None:
        origin = self.origin
        features = rules.features_section(self.feature_spec, origin)
        channels = rules.channels_section(self.channel_spec, features, origin)
        labels = channels.get(LABEL_CHANNEL, ())
        sources = rules.sources_section(self.source_spec, features, labels, origin)
        metadata = {} if self.metadata is None else self.metadata
        if not isinstance(metadata, dict):
            raise ValueError(f"{origin}: metadata: found {metadata!r:.100}; allowed: a mapping")
        metadata = rules.plain_value(metadata, f"{origin}: metadata")
        for name, value in (
            ("feature_spec", features),
            ("source_spec", sources),
            ("channel_spec", channels),
            ("metadata", metadata),
            ("base_directory", Path(self.base_directory)),
        ):
            object.__setattr__(self, name, value)
        self._check_ids(channels.get(CATEGORICAL_CHANNEL, ()), CATEGORICAL_CHANNEL)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> "FeatureSpec":
        """Reads and checks a YAML file; file names in it are relative to its folder."""
        path = Path(path)
        return cls.from_dict(yaml_io.read_mapping(path), path.parent, origin=str(path))

    @classmethod
    def from_dict(
        cls,
        content: dict[str, Any],
        base_directory: str | os.PathLike[str],
        origin: str = "feature spec",
    ) -> "FeatureSpec":
        """Creates a feature spec from the content of a YAML file."""
        rules.check_sections(content, origin)
        return cls(**content, base_directory=Path(base_directory), origin=origin)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that a YAML file of this spec holds: plain dicts, lists and scalars."""
        return {
            "feature_spec": {name: dict(keys) for name, keys in self.feature_spec.items()},
            "source_spec": {
                mapping: [
                    {"type": c.type, "features": list(c.features), "files": list(c.files)}
                    for c in chunks
                ]
                for mapping, chunks in self.source_spec.items()
            },
            "channel_spec": {name: list(names) for name, names in self.channel_spec.items()},
            "metadata": rules.plain_value(self.metadata, f"{self.origin}: metadata"),
        }

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Writes the spec in one step; `from_yaml` gives an equal spec back.

        File names are written as they are: put the file into the folder they are relative to.
        """
        yaml_io.write_mapping(Path(path), self.to_dict())

    def fingerprint(self) -> str:
        """SHA-256 of the content, the same for the same sections wherever the files lie."""
        canonical = json.dumps(_sorted_pairs(self.to_dict()), default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    # Features

    def dtype(self, feature: str) -> np.dtype[Any]:
        """The feature's dtype as stored."""
        return np.dtype(self._feature(feature)["dtype"])

    def cardinality(self, feature: str) -> int:
        """The number of different ids, which are 0 to cardinality - 1."""
        keys = self._feature(feature)
        if "cardinality" not in keys:
            raise ValueError(
                f"{self.origin}: feature_spec: feature '{feature}': cardinality is missing; "
                "allowed: the number of different ids, 1 or more"
            )
        return int(keys["cardinality"])

    def hotness(self, feature: str) -> int:
        """Values per row: `hotness`, else the product of `dimensions`, else 1."""
        keys = self._feature(feature)
        return int(keys.get("hotness", math.prod(keys.get("dimensions", ()))))

    def _feature(self, feature: str) -> dict[str, Any]:
        if feature not in self.feature_spec:
            raise ValueError(
                f"{self.origin}: feature_spec: unknown feature '{feature}'; there are "
                f"{rules.listing(self.feature_spec)}" + rules.suggestion(feature, self.feature_spec)
            )
        return self.feature_spec[feature]

    # Channels

    def channel(self, name: str) -> tuple[str, ...]:
        """The features of a channel, in order."""
        if name not in self.channel_spec:
            raise ValueError(
                f"{self.origin}: channel_spec: there is no channel '{name}'; there are "
                f"{rules.listing(self.channel_spec)}" + rules.suggestion(name, self.channel_spec)
            )
        return self.channel_spec[name]

    def cardinalities(self, channel: str) -> list[int]:
        """The cardinality of each feature of a channel."""
        return [self.cardinality(feature) for feature in self.channel(channel)]

    def hotnesses(self, channel: str) -> list[int]:
        """The hotness of each feature of a channel."""
        return [self.hotness(feature) for feature in self.channel(channel)]

    def _check_ids(self, features: Sequence[str], channel: str) -> None:
        for feature in features:
            if "cardinality" not in self.feature_spec[feature]:
                raise ValueError(
                    f"{self.origin}: feature_spec: feature '{feature}': cardinality is missing; "
                    f"the features of channel '{channel}' are ids and need one, 1 or more"
                )

    def require(
        self,
        model_name: str,
        channels: tuple[str, ...] = (),
        mappings: tuple[str, ...] = (),
        chunk_types: tuple[str, ...] = (),
        id_channels: tuple[str, ...] = (CATEGORICAL_CHANNEL,),
    ) -> None:
        """Checks that a model can use this data set.

        Args:
            model_name: for the messages, e.g. `DLRM`.
            channels: must be there and share no feature; `label` must have exactly one feature of
                one value per row.
            mappings: must be there and store every feature of `channels`.
            chunk_types: what the model reads; every chunk of `mappings` (of all mappings where
                none are named) must have one of these types. Empty: any.
            id_channels: those of `channels` whose features are ids and need a cardinality.

        Raises:
            ValueError: something is missing or of the wrong kind.
        """
        channel_of: dict[str, str] = {}
        for channel in channels:
            if channel not in self.channel_spec:
                raise ValueError(
                    f"{self.origin}: channel_spec: {model_name} needs the channel '{channel}'; "
                    f"there are {rules.listing(self.channel_spec)}"
                    + rules.suggestion(channel, self.channel_spec)
                    + _WAYS_OUT.get(channel, "")
                )
            for feature in self.channel_spec[channel]:
                if feature in channel_of:
                    raise ValueError(
                        f"{self.origin}: channel_spec: feature '{feature}' is in the channels "
                        f"'{channel_of[feature]}' and '{channel}'; {model_name} allows one of them"
                    )
                channel_of[feature] = channel
            if channel in id_channels:
                self._check_ids(self.channel_spec[channel], channel)
        if LABEL_CHANNEL in channels:
            self._check_one_label(model_name)
        for mapping in mappings:
            self._check_mapping(mapping, f"{model_name} needs")
            stored = {name for chunk in self.source_spec[mapping] for name in chunk.features}
            for feature, channel in channel_of.items():
                if feature not in stored:
                    raise ValueError(
                        f"{self.origin}: source_spec: mapping '{mapping}': feature '{feature}' of "
                        f"channel '{channel}' is in no chunk; {model_name} reads it, add the chunk "
                        "that stores it" + _WAYS_OUT.get(channel, "")
                    )
        for mapping in mappings or self.source_spec:
            for index, chunk in enumerate(self.source_spec[mapping]):
                if chunk_types and chunk.type not in chunk_types:
                    raise ValueError(
                        f"{self.origin}: source_spec: mapping '{mapping}': chunk {index}: type "
                        f"'{chunk.type}'; {model_name} reads {', '.join(chunk_types)}"
                    )

    def _check_one_label(self, model_name: str) -> None:
        labels = self.channel_spec[LABEL_CHANNEL]
        if len(labels) != 1 or self.hotness(labels[0]) != 1:
            raise ValueError(
                f"{self.origin}: channel_spec: channel '{LABEL_CHANNEL}': {len(labels)} features "
                f"({rules.listing(labels)}) of {[self.hotness(name) for name in labels]} "
                f"values per row; {model_name} needs one feature of one value"
            )

    # Files

    def validate_files(
        self, mapping: str | None = None, chunks: Sequence[int] | None = None
    ) -> None:
        """Checks the files of a mapping, of all mappings where none is named.

        Every file must be there; split_binary files must hold whole rows and the chunks of a
        mapping equally many.

        Args:
            chunks: the numbers of the mapping's chunks to look at; None: all.
        """
        if mapping is None:
            for name in self.source_spec:
                self.validate_files(name)
            return
        self._check_mapping(mapping, "requested")
        stored = self.source_spec[mapping]
        rows = {}
        for index in range(len(stored)) if chunks is None else chunks:
            sizes = self._file_sizes(mapping, index)
            if stored[index].type == "split_binary":
                rows[index] = sum(sizes) // self.row_bytes(stored[index])
        for index, count in rows.items():
            first = next(iter(rows))
            if count != rows[first]:
                raise ValueError(
                    f"{self.origin}: source_spec: mapping '{mapping}': chunk {first} "
                    f"({rules.listing(stored[first].files)}) has {rows[first]} rows and chunk "
                    f"{index} ({rules.listing(stored[index].files)}) has {count}; allowed: "
                    "equally many in all chunks of a mapping"
                )

    def num_rows(self, mapping: str, chunks: Sequence[int] | None = None) -> int:
        """Rows of a mapping of split_binary chunks, from the file sizes, which are checked.

        Args:
            chunks: as in `validate_files`.
        """
        self.validate_files(mapping, chunks)
        stored = self.source_spec[mapping]
        for index in range(len(stored)) if chunks is None else chunks:
            if stored[index].type == "split_binary":
                return sum(self._file_sizes(mapping, index)) // self.row_bytes(stored[index])
        raise ValueError(
            f"{self.origin}: source_spec: mapping '{mapping}': rows can be counted in split_binary "
            f"chunks only, here all are {self.source_spec[mapping][0].type}"
        )

    def row_bytes(self, chunk: Chunk) -> int:
        """Bytes of one row of a split_binary chunk."""
        return sum(self.hotness(name) * self.dtype(name).itemsize for name in chunk.features)

    def _check_mapping(self, mapping: str, who: str) -> None:
        if mapping not in self.source_spec:
            raise ValueError(
                f"{self.origin}: source_spec: {who} the mapping '{mapping}'; there are "
                f"{rules.listing(self.source_spec)}" + rules.suggestion(mapping, self.source_spec)
            )

    def _file_sizes(self, mapping: str, index: int) -> list[int]:
        chunk = self.source_spec[mapping][index]
        where = f"{self.origin}: source_spec: mapping '{mapping}': chunk {index}"
        sizes = []
        for file in chunk.files:
            path = self.base_directory / file
            try:
                status = os.stat(path)
            except OSError as error:
                raise ValueError(
                    f"{where}: file '{file}' is not there ({path}: {error.strerror})"
                ) from None
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{where}: '{file}' is not a file ({path})")
            sizes.append(status.st_size)
            if chunk.type == "split_binary" and sizes[-1] % self.row_bytes(chunk):
                raise ValueError(
                    f"{where}: file '{file}' has {sizes[-1]} bytes, not a whole number of rows of "
                    f"{self.row_bytes(chunk)} bytes (features {rules.listing(chunk.features)})"
                )
        return sizes


def _sorted_pairs(value: Any) -> Any:
    """Mappings as sorted lists of pairs, so that the order of keys, of any type, does not count."""
    if isinstance(value, dict):
        return sorted(
            ([repr(key), _sorted_pairs(item)] for key, item in value.items()),
            key=lambda pair: pair[0],
        )
    return [_sorted_pairs(item) for item in value] if isinstance(value, list) else value
