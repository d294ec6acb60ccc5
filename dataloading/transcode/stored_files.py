"""The bytes of split binaries: appended, and read again where ids become narrower."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dataloading.spec.feature_spec import Chunk, FeatureSpec, smallest_id_dtype
from dataloading.synthetic.rows import stored_spec
from dataloading.transcode.encode.vocabulary import UNKNOWN
from dataloading.transcode.raw_spec import RawSpec
from runtime.files.atomic import write_errors_name

_NARROWED_IDS = 1 << 20  # at a time


def put(stream: BinaryIO, values: np.ndarray) -> None:
    """Appends the bytes of an array to a file.

    Raises:
        OSError: it cannot; the message names the file.
    """
    with write_errors_name(Path(stream.name)):
        values.tofile(stream)
        stream.flush()


def write_ids(path: Path, blocks: Iterable[np.ndarray], dtype: np.dtype) -> int:
    """Writes ids as `dtype`; returns how many of them are `UNKNOWN`."""
    unknown = 0
    with open(path, "wb") as stream:
        for ids in blocks:
            unknown += int(np.count_nonzero(ids == UNKNOWN))
            put(stream, ids.astype(dtype))
    return unknown


def stored_ids(path: Path) -> Iterable[np.ndarray]:
    """The ids of a file of int64, a block at a time."""
    with open(path, "rb") as stream:
        while len(ids := np.fromfile(stream, "<i8", _NARROWED_IDS)):
            yield ids


UNKNOWN_CARDINALITY = 1 << 63  # placeholder until all data is read


def stored_layout(
    spec: RawSpec, cardinalities: dict[str, int], folder: Path, metadata: dict
) -> FeatureSpec:
    """The spec of the raw features as split binaries.

    Args:
        cardinalities: of features of ids, in addition to those of the raw spec; an absent dtype
            is the smallest that holds the ids, int64 for `UNKNOWN_CARDINALITY`.
        folder: what the file names are relative to.
    """
    features = {}
    for name, keys in spec.features.items():
        keys = dict(keys)
        cardinality = cardinalities.get(name)
        if cardinality is not None:
            keys["cardinality"] = cardinality
        if cardinality == UNKNOWN_CARDINALITY:
            keys["dtype"] = "int64"
        elif name in spec.ids:
            keys.setdefault("dtype", smallest_id_dtype(keys["cardinality"]).name)
        features[name] = keys
    sources = {
        mapping: [
            chunk
            for chunk in chunks
            if all(spec.has(mapping, feature) for feature in chunk.features)
        ]
        for mapping, chunks in _chunks(spec, features).items()
    }
    channels = spec.channels
    if spec.is_interactions:  # an absent label is left out
        channels = {channel: names for channel, names in channels.items() if names}
    return FeatureSpec(features, sources, channels, metadata, folder, spec.origin)


def _chunks(spec: RawSpec, features: dict) -> dict[str, Sequence[Chunk]]:
    """Mapping -> the chunks of all features, also of a label that the mapping does not store."""
    if not spec.is_interactions:
        return stored_spec(features, spec.channels, spec.sources, spec.origin).source_spec
    return {
        mapping: [
            Chunk("split_binary", names, (f"{mapping}/{channel}.bin",))
            for channel, names in spec.channels.items()
            if names
        ]
        for mapping in spec.sources
    }
