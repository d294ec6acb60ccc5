"""Files of a data set: which features are stored together, and their feature spec."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from dataloading.spec.feature_spec import LABEL_CHANNEL, Chunk, FeatureSpec
from dataloading.synthetic.rows import stored_spec
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import IdEncoding
from preproc.encoding.numbers import Bins
from preproc.transcode.raw.spec import RawSpec


def binned(encoder: Encoder) -> tuple[str, ...]:
    """Returns the features that are numbers in raw data and ids of bins in a data set."""
    return tuple(feature.name for feature in encoder.features if isinstance(feature, Bins))


def with_encoder(spec: RawSpec, encoder: Encoder) -> RawSpec:
    """Returns the raw data with the dtypes, cardinalities and hotnesses of an encoder; indicators
    of missing values follow their feature."""
    spec = spec.with_ids(binned(encoder))
    features: dict[str, dict] = {}
    for name, stated in spec.features.items():
        encoding = encoder[name]
        keys = {**stated, "dtype": encoding.dtype}
        if isinstance(encoding, IdEncoding):
            keys["cardinality"] = encoding.num_ids
        if encoding.hotness > 1 and "dimensions" not in keys:
            keys["hotness"] = encoding.hotness
        for feature in encoding.features:
            if feature != name and feature in (*spec.features, *spec.unused):
                raise ValueError(
                    f"--missing_indicator: the indicator of '{name}' is called '{feature}', but "
                    f"{spec.origin} has a feature of that name: rename it"
                )
            features[feature] = dict(keys)
    channels = {
        channel: tuple(feature for name in names for feature in encoder[name].features)
        for channel, names in spec.channels.items()
    }
    return dataclasses.replace(spec, features=features, channels=channels)


def stored_layout(spec: RawSpec, source_of: Mapping[str, str], folder: Path) -> FeatureSpec:
    """Returns the feature spec of a data set in a folder.

    Args:
        spec: of `with_encoder`.
        source_of: split of the data set -> raw split that its rows are from.
    """
    labels = spec.channels[LABEL_CHANNEL]

    def has(split: str, feature: str) -> bool:
        return feature not in labels or spec.has(source_of[split], feature)

    if spec.is_interactions:
        channels: dict[str, Sequence[str]] = {
            c: names for c, names in spec.channels.items() if names
        }
        sources = {
            split: [
                Chunk("split_binary", names, (f"{split}/{channel}.bin",))
                for channel, names in channels.items()
                if has(split, names[0])
            ]
            for split in source_of
        }
    else:
        channels = spec.channels
        usual = stored_spec(spec.features, channels, source_of, spec.origin).source_spec
        sources = {
            split: [chunk for chunk in chunks if has(split, chunk.features[0])]
            for split, chunks in usual.items()
        }
    return FeatureSpec(spec.features, sources, channels, {}, folder, spec.origin)
