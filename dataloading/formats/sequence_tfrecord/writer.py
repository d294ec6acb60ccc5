"""Writes data sets of histories as TFRecords: the files of each split and the feature spec.

<split>.tfrecord             one record per sample, or per prebatch of samples
remainder_<split>.tfrecord   with prebatches: one record of the samples that fill none
feature_spec.yaml              names the files and, in its metadata, the prebatches
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dataloading.formats.sequence_tfrecord.channels import (
    CHUNK_TYPE,
    NEGATIVE_CHANNEL,
    POSITIVE_CHANNEL,
    TARGET_CHANNEL,
    USER_CHANNEL,
    prebatch_key,
    sequence_channels,
)
from dataloading.formats.sequence_tfrecord.encode import encode
from dataloading.formats.tfrecord.prebatches import Prebatches
from dataloading.spec.feature_spec import LABEL_CHANNEL, FeatureSpec
from dataloading.spec.output_folder import SPEC_FILE, VOCABULARY_FOLDER
from runtime.files.atomic import atomic_folder, write_errors_name

# Encoded at a time where records hold one sample: a few MB, which stay in the processor's caches.
_SAMPLES_AT_A_TIME = 2048


def sequence_spec(
    *,
    label: str,
    user: Mapping[str, int],
    target: Mapping[str, int],
    positive: Sequence[str],
    negative: Sequence[str],
    history_length: int,
    prebatch_sizes: Mapping[str, int],
) -> FeatureSpec:
    """Returns the feature spec of a data set of histories that `writes_data_set` writes.

    Args:
        label: name of the feature.
        user, target: names of the features -> their cardinalities.
        positive, negative: names of the features that correspond to those of `target`.
        history_length: steps of each history.
        prebatch_sizes: name of each split -> samples per prebatch, 0 for records of one sample.

    Raises:
        ValueError: the features do not fit together, or a number is out of range.
    """
    features = {label: {"dtype": "bool"}}
    for name, cardinality in [*user.items(), *target.items()]:
        features[name] = {"dtype": "int64", "cardinality": cardinality}
    for history in (positive, negative):
        for name, cardinality in zip(history, target.values(), strict=True):
            features[name] = {
                "dtype": "int64",
                "cardinality": cardinality,
                "dimensions": [history_length],
            }
    sources, metadata = {}, {}
    for split, size in prebatch_sizes.items():
        if size < 0:
            raise ValueError(f"prebatch size of split '{split}' is {size}; expected 0 or more")
        files = [f"{split}.tfrecord"] + [f"remainder_{split}.tfrecord"] * (size > 1)
        sources[split] = [{"type": CHUNK_TYPE, "features": list(features), "files": files}]
        metadata[prebatch_key(split)] = size
    channels = {
        LABEL_CHANNEL: [label],
        USER_CHANNEL: list(user),
        TARGET_CHANNEL: list(target),
        POSITIVE_CHANNEL: list(positive),
        NEGATIVE_CHANNEL: list(negative),
    }
    spec = FeatureSpec(features, sources, channels, metadata)
    sequence_channels(spec, tuple(prebatch_sizes))
    return spec


@contextlib.contextmanager
def writes_data_set(
    directory: Path, spec: FeatureSpec, vocabularies: Path | None = None
) -> Iterator[dict[str, "SplitWriter"]]:
    """Yields a writer for each split; the data set appears, whole, when the block ends well.

    Args:
        directory: new or empty; ValueError otherwise.
        spec: of `sequence_spec`.
        vocabularies: folder of vocabularies to copy; None: none.
    """
    with atomic_folder(directory) as partial, contextlib.ExitStack() as stack:
        writers = {
            split: stack.enter_context(contextlib.closing(SplitWriter(partial, spec, split)))
            for split in spec.source_spec
        }
        yield writers
        for writer in writers.values():
            writer.finish()
        if vocabularies is not None:
            shutil.copytree(vocabularies, partial / VOCABULARY_FOLDER)
        spec.to_yaml(partial / SPEC_FILE)


class SplitWriter:
    """The files of one split; at most a prebatch of the `num_samples` samples waits in memory."""

    def __init__(self, directory: Path, spec: FeatureSpec, split: str):
        (chunk,) = spec.source_spec[split]
        self.num_samples = 0
        self._features = chunk.features
        self._path, *self._remainder = [directory / file for file in chunk.files]
        size = spec.metadata[prebatch_key(split)] if self._remainder else _SAMPLES_AT_A_TIME
        self._prebatches = Prebatches(size)
        with write_errors_name(self._path):
            self._stream = self._path.open("wb")

    def add(self, arrays: Sequence[np.ndarray]) -> None:
        """Appends samples: integers `[samples, values]`, 0 or more, of each stored feature."""
        self.num_samples += len(arrays[0])
        for prebatch in self._prebatches.add(arrays):
            self._write(self._stream, self._path, prebatch)

    def _write(self, stream, path: Path, arrays: Sequence[np.ndarray]) -> None:
        if self._remainder:  # one record
            arrays = [array.reshape(1, -1) for array in arrays]
        with write_errors_name(path):
            stream.write(encode(dict(zip(self._features, arrays, strict=True))))

    def finish(self) -> None:
        """Writes the remaining samples."""
        rest = self._prebatches.rest()
        if not self._remainder:
            for arrays in rest:
                self._write(self._stream, self._path, arrays)
        for path in self._remainder:
            with write_errors_name(path), path.open("wb") as stream:
                for arrays in rest:
                    self._write(stream, path, arrays)
        self.close()

    def close(self) -> None:
        """Closes the file, however the writing ended."""
        with write_errors_name(self._path):
            self._stream.close()
