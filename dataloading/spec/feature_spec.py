"""The feature spec: the one contract between preparation and training, for every model.

A YAML file next to the data lists the features (`feature_spec`), the files that store them
(`source_spec`), their use in a model (`channel_spec`) and anything else (`metadata`).
`docs/reference/file_formats.md` describes the format. Needs yaml and NumPy only, never TensorFlow.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dataloading.spec import rules, yaml_io
from dataloading.spec.rules import Chunk as Chunk

NUMERICAL_CHANNEL = "numerical"
CATEGORICAL_CHANNEL = "categorical"
LABEL_CHANNEL = "label"
USER_CHANNEL = "user"
ITEM_CHANNEL = "item"
NEGATIVE_CHANNEL = "negative_history"
TRAIN = "train"
VALIDATION = "validation"
TEST = "test"

RANGE_BYTES = 16  # of a sample of a ragged_binary chunk: its first value and the end, int64

# Solution where a channel, or the files of its features, are missing.
_WAYS_OUT = {LABEL_CHANNEL: "; rows without labels can only be predicted (--mode predict)"}


def smallest_id_dtype(cardinality: int) -> np.dtype[Any]:
    """Returns the smallest signed integer dtype that holds the ids 0 to cardinality - 1."""
    signed = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
    return next(dtype for dtype in signed if cardinality - 1 <= np.iinfo(dtype).max)


@dataclass(frozen=True)
class FeatureSpec:
    """A data set's description. Every instance is valid: the constructor checks the structure, and
    raises ValueError where a rule of the format is broken."""

    feature_spec: dict[str, dict[str, Any]]  # feature -> dtype, cardinality, hotness, ...
    source_spec: dict[str, tuple[Chunk, ...]]  # split (train, validation, ...) -> chunks
    channel_spec: dict[str, tuple[str, ...]]  # channel -> features in the order of the model
    metadata: dict[str, Any] = field(default_factory=dict)  # plain YAML values
    base_directory: Path = field(default=Path("."), compare=False)  # of the file names
    origin: str = field(default="feature spec", compare=False)  # name in messages

    def __post_init__(self) -> None:
        origin = self.origin
        features = rules.features_section(self.feature_spec, origin)
        channels = rules.channels_section(self.channel_spec, features, origin)
        optional = channels.get(LABEL_CHANNEL, ()) + channels.get(NEGATIVE_CHANNEL, ())
        sources = rules.sources_section(self.source_spec, features, optional, origin)
        metadata = {} if self.metadata is None else self.metadata
        if not isinstance(metadata, dict):
            raise ValueError(f"{origin}: metadata: found {metadata!r:.100}; expected a mapping")
        normal = {
            "feature_spec": features,
            "source_spec": sources,
            "channel_spec": channels,
            "metadata": rules.plain_value(metadata, f"{origin}: metadata"),
            "base_directory": Path(self.base_directory),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        for feature in channels.get(CATEGORICAL_CHANNEL, ()):
            self.cardinality(feature)

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
        """Returns the content of a YAML file of this spec: plain dicts, lists and scalars."""
        return {
            "feature_spec": {name: dict(keys) for name, keys in self.feature_spec.items()},
            "source_spec": {
                split: [
                    {"type": c.type, "features": list(c.features), "files": list(c.files)}
                    for c in chunks
                ]
                for split, chunks in self.source_spec.items()
            },
            "channel_spec": {name: list(names) for name, names in self.channel_spec.items()},
            "metadata": rules.plain_value(self.metadata, f"{self.origin}: metadata"),
        }

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Writes the spec in one step, into the folder that its file names are relative to."""
        yaml_io.write_mapping(Path(path), self.to_dict())

    def fingerprint(self) -> str:
        """Returns the SHA-256 of the sections, wherever the files are."""
        canonical = json.dumps(_sorted_pairs(self.to_dict()), default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def dtype(self, feature: str) -> np.dtype[Any]:
        """Returns the feature's dtype as stored."""
        dtype: np.dtype[Any] = np.dtype(self._feature(feature)["dtype"])
        return dtype

    def cardinality(self, feature: str) -> int:
        """Returns the number of different ids, which are 0 to cardinality - 1."""
        keys = self._feature(feature)
        if "cardinality" not in keys:
            raise ValueError(
                f"{self.origin}: feature_spec: feature '{feature}': cardinality is missing; "
                "expected the number of different ids, 1 or more, of each feature that holds ids"
            )
        return int(keys["cardinality"])

    def hotness(self, feature: str) -> int:
        """Returns the values per sample: `hotness`, else the product of `dimensions`, else 1."""
        keys = self._feature(feature)
        return int(keys.get("hotness", math.prod(keys.get("dimensions", ()))))

    def _feature(self, feature: str) -> dict[str, Any]:
        if feature not in self.feature_spec:
            raise ValueError(
                f"{self.origin}: feature_spec: unknown feature '{feature}'"
                + rules.alternatives(feature, self.feature_spec)
            )
        return self.feature_spec[feature]

    def channel(self, name: str) -> tuple[str, ...]:
        """Returns the features of a channel, in order."""
        if name not in self.channel_spec:
            raise ValueError(
                f"{self.origin}: channel_spec: there is no channel '{name}'"
                + rules.alternatives(name, self.channel_spec)
            )
        return self.channel_spec[name]

    def cardinalities(self, channel: str) -> list[int]:
        """Returns the cardinality of each feature of a channel."""
        return [self.cardinality(feature) for feature in self.channel(channel)]

    def hotnesses(self, channel: str) -> list[int]:
        """Returns the hotness of each feature of a channel."""
        return [self.hotness(feature) for feature in self.channel(channel)]

    def require(
        self,
        model_name: str,
        channels: tuple[str, ...] = (),
        splits: tuple[str, ...] = (),
        chunk_types: tuple[str, ...] = (),
        id_channels: tuple[str, ...] = (CATEGORICAL_CHANNEL,),
    ) -> None:
        """Raises ValueError unless a model can use this data set.

        Args:
            model_name: for the messages, e.g. `DLRM`.
            channels: must be there and share no feature; `label` must have exactly one feature of
                one value per sample.
            splits: must be there and store every feature of `channels`.
            chunk_types: allowed types of the chunks of `splits` (of all splits where none are
                named). Empty: any.
            id_channels: those of `channels` whose features are ids and need a cardinality.
        """
        channel_of: dict[str, str] = {}
        for channel in channels:
            if channel not in self.channel_spec:
                raise ValueError(
                    f"{self.origin}: channel_spec: {model_name} needs the channel '{channel}'"
                    + rules.alternatives(channel, self.channel_spec)
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
                self.cardinalities(channel)
        if LABEL_CHANNEL in channels:
            self.require_one_value(LABEL_CHANNEL, model_name)
        for split in splits:
            self._check_split(split, f"{model_name} needs")
            stored = {name for chunk in self.source_spec[split] for name in chunk.features}
            for feature, channel in channel_of.items():
                if feature not in stored:
                    raise ValueError(
                        f"{self.origin}: source_spec: split '{split}': feature '{feature}' of "
                        f"channel '{channel}' is in no chunk; {model_name} reads it, add the chunk "
                        "that stores it" + _WAYS_OUT.get(channel, "")
                    )
        for split in splits or self.source_spec:
            for index, chunk in enumerate(self.source_spec[split]):
                if chunk_types and chunk.type not in chunk_types:
                    raise ValueError(
                        f"{self.origin}: source_spec: split '{split}': chunk {index}: type "
                        f"'{chunk.type}'; {model_name} reads {', '.join(chunk_types)}"
                    )

    def require_one_value(self, channel: str, model_name: str) -> None:
        """Raises ValueError unless a channel has one feature of one value per sample."""
        features, widths = self.channel(channel), self.hotnesses(channel)
        if widths != [1]:
            raise ValueError(
                f"{self.origin}: channel_spec: channel '{channel}': {len(features)} features "
                f"({rules.listing(features)}) of {widths} values per row; {model_name} needs one "
                "feature of one value"
            )

    def validate_files(self, split: str | None = None, chunks: Sequence[int] | None = None) -> None:
        """Raises ValueError unless every file of a split is there, and its split_binary and
        ragged_binary files hold whole samples, the same number in each chunk.

        Args:
            split: name of the split; None: all.
            chunks: the numbers of the split's chunks to look at; None: all.
        """
        for name in self.source_spec if split is None else (split,):
            self._count_samples(name, chunks)

    def num_samples(self, split: str, chunks: Sequence[int] | None = None) -> int:
        """Returns the samples of a split, from its files of these types, which are checked as in
        `validate_files`."""
        counts = self._count_samples(split, chunks)
        if not counts:
            kind = self.source_spec[split][0].type
            raise ValueError(
                f"{self.origin}: source_spec: split '{split}': rows can be counted in split_binary "
                f"and ragged_binary chunks only, here all are {kind}"
            )
        return next(iter(counts.values()))

    def _count_samples(self, split: str, chunks: Sequence[int] | None) -> dict[int, int]:
        """Checks files as `validate_files`, and returns the samples of each chunk with a size."""
        self._check_split(split, "requested")
        stored = self.source_spec[split]
        counts = {}
        for index in range(len(stored)) if chunks is None else chunks:
            sizes = self._file_sizes(split, index)
            if stored[index].type == "split_binary":
                counts[index] = sum(sizes) // self.sample_bytes(stored[index])
            elif stored[index].type == "ragged_binary":
                counts[index] = sizes[0] // RANGE_BYTES
        for index, count in counts.items():
            first = next(iter(counts))
            if count != counts[first]:
                raise ValueError(
                    f"{self.origin}: source_spec: split '{split}': chunk {first} "
                    f"({rules.listing(stored[first].files)}) has {counts[first]} rows and chunk "
                    f"{index} ({rules.listing(stored[index].files)}) has {count}; expected "
                    "equally many in all chunks of a split"
                )
        return counts

    def sample_bytes(self, chunk: Chunk) -> int:
        """Returns the bytes of one sample of a split_binary chunk."""
        return sum(self.hotness(name) * self.dtype(name).itemsize for name in chunk.features)

    def _check_split(self, split: str, who: str) -> None:
        if split not in self.source_spec:
            raise ValueError(
                f"{self.origin}: source_spec: {who} the split '{split}'"
                + rules.alternatives(split, self.source_spec)
            )

    def _file_sizes(self, split: str, index: int) -> list[int]:
        """Returns the sizes of the files of a chunk, which must be there and hold whole samples."""
        chunk = self.source_spec[split][index]
        where = f"{self.origin}: source_spec: split '{split}': chunk {index}"
        units = [1] * len(chunk.files)
        if chunk.type == "split_binary":
            units = [self.sample_bytes(chunk)] * len(chunk.files)
        elif chunk.type == "ragged_binary":
            units = [RANGE_BYTES, *(self.dtype(name).itemsize for name in chunk.features)]
        sizes = []
        for file, unit in zip(chunk.files, units, strict=True):
            path = self.base_directory / file
            if not path.is_file():
                raise ValueError(f"{where}: file '{file}' is not there ({path})")
            sizes.append(path.stat().st_size)
            if sizes[-1] % unit:
                raise ValueError(
                    f"{where}: file '{file}' has {sizes[-1]} bytes, not a whole number of "
                    f"rows of {unit} bytes (features {rules.listing(chunk.features)})"
                )
        if chunk.type == "ragged_binary":
            counts = [size // unit for size, unit in zip(sizes[1:], units[1:], strict=True)]
            if len(set(counts)) > 1:
                raise ValueError(
                    f"{where}: the files of values ({rules.listing(chunk.files[1:])}) have "
                    f"{rules.listing(counts)} values; expected equally many"
                )
        return sizes


def _sorted_pairs(value: Any) -> Any:
    """Returns mappings as sorted lists of pairs: the order of keys, of any type, does not count."""
    if isinstance(value, dict):
        pairs = ([repr(key), _sorted_pairs(item)] for key, item in value.items())
        return sorted(pairs, key=lambda pair: pair[0])
    return [_sorted_pairs(item) for item in value] if isinstance(value, list) else value
