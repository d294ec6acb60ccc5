"""Writes data sets of histories as TFRecords: the files of each split and the feature spec.

<split>.tfrecord             one record per sample, or per prebatch of samples
remainder_<split>.tfrecord   with prebatches: one record of the samples that fill none
feature_spec.yaml              names the files and, in its metadata, the prebatches
"""

import contextlib
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dataloading.formats.records import Prebatches
from dataloading.spec.data_set_files import (
    ENCODER_FOLDER,
    SPEC_FILE,
    VOCABULARY_FOLDER,
    check_files_apart,
)
from dataloading.spec.feature_spec import LABEL_CHANNEL, FeatureSpec
from dataloading.spec.history_channels import (
    CHUNK_TYPE,
    NEGATIVE_CHANNEL,
    POSITIVE_CHANNEL,
    TARGET_CHANNEL,
    USER_CHANNEL,
    prebatch_key,
    sequence_channels,
)
from runtime.files.disk import write_errors_name
from runtime.files.outputs import DATA_SET
from runtime.files.staging import output_folder

_TOOL = "dataloading.formats.sequence_tfrecord"


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
    check_files_apart(spec.source_spec, spec.origin)
    return spec


@contextlib.contextmanager
def writes_data_set(
    directory: Path, spec: FeatureSpec, source: Path | None = None
) -> Iterator[dict[str, "SplitWriter"]]:
    """Yields a writer for each split; the data set appears, whole, when the block ends well.

    Args:
        directory: new or empty.
        spec: of `sequence_spec`.
        source: data set whose encoder (or vocabularies) is copied, if it has one.

    Raises:
        ValueError: `directory` has content, or TensorFlow is not installed.
    """
    with output_folder(directory, _TOOL, DATA_SET) as partial, contextlib.ExitStack() as stack:
        writers = {
            split: stack.enter_context(contextlib.closing(SplitWriter(partial, spec, split)))
            for split in spec.source_spec
        }
        yield writers
        for writer in writers.values():
            writer.finish()
        for name in (ENCODER_FOLDER, VOCABULARY_FOLDER):
            if source is not None and (source / name).is_dir():
                shutil.copytree(source / name, partial / name)
        spec.to_yaml(partial / SPEC_FILE)


class SplitWriter:
    """The files of one split; at most a prebatch of the `num_samples` samples waits in memory."""

    def __init__(self, directory: Path, spec: FeatureSpec, split: str):
        (chunk,) = spec.source_spec[split]
        self.num_samples = 0
        self._features = chunk.features
        self._path, *self._remainder = [directory / file for file in chunk.files]
        self._prebatches = None
        if self._remainder:
            self._prebatches = Prebatches(spec.metadata[prebatch_key(split)])
        self._stream = _open(self._path)

    def add(self, arrays: Sequence[np.ndarray]) -> None:
        """Appends samples: integers `[samples, values]`, 0 or more, of each stored feature."""
        self.num_samples += len(arrays[0])
        if self._prebatches is None:
            records = zip(*arrays, strict=True)
        else:
            records = self._prebatches.add(arrays)
        self._write(self._stream, self._path, records)

    def _write(self, stream, path: Path, records: Iterable[Sequence[np.ndarray]]) -> None:
        """Writes records of one array per feature."""
        import tensorflow as tf

        train = tf.train
        with write_errors_name(path):
            for arrays in records:
                features = {}
                for name, array in zip(self._features, arrays, strict=True):
                    values = train.Int64List(value=array.ravel().tolist())
                    features[name] = train.Feature(int64_list=values)
                example = train.Example(features=train.Features(feature=features))
                stream.write(example.SerializeToString())

    def finish(self) -> None:
        """Writes the remaining samples."""
        for path in self._remainder:
            with write_errors_name(path), _open(path) as stream:
                self._write(stream, path, self._prebatches.rest())
        self.close()

    def close(self) -> None:
        """Closes the file, however the writing ended."""
        with write_errors_name(self._path):
            self._stream.close()


def _open(path: Path):
    try:
        import tensorflow as tf
    except ImportError:
        raise ValueError(
            f"{path.name}: expected TensorFlow, which writes it, in the environment of "
            f"{sys.executable}; use .venv/bin/python"
        ) from None
    with write_errors_name(path):
        return tf.io.TFRecordWriter(str(path))
