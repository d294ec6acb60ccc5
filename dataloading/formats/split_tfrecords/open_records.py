"""Open chunks of split TFRecords: the values of samples, decoded once into temporary files."""

import contextlib
from pathlib import Path

import numpy as np

from dataloading.formats.records import Spool, read_records, reason_of
from dataloading.formats.split_tfrecords.folder_format import read_format
from dataloading.pipeline.chunk_reader import OpenChunk
from dataloading.pipeline.gather import Scattered, read_rows
from dataloading.pipeline.ragged import Ragged, Samples, ranges
from dataloading.spec.feature_spec import Chunk, FeatureSpec


class RecordChunk(OpenChunk):
    """The samples of a `tfrecord` chunk, decoded when it is opened.

    Samples are independent of record boundaries.

    Attributes:
        num_prebatches: records of all files.
        num_values: values of all samples.

    Raises:
        ValueError: a file is missing, truncated, damaged, or contradicts `format.json`.
    """

    def __init__(self, spec: FeatureSpec, split: str, chunk: Chunk):
        where = f"{spec.origin}: split '{split}': feature '{chunk.features[0]}'"
        folders = sorted({(spec.base_directory / file).parent for file in chunk.files})
        if len(folders) > 1:
            raise ValueError(
                f"{where}: expected files in one folder, whose format.json describes all of them; "
                f"got {', '.join(map(str, folders))}"
            )
        self.format = read_format(folders[0])
        self.dtype = np.dtype(self.format.dtype).newbyteorder("<")
        if self.dtype.kind == "b":
            self.dtype = np.dtype("u1")
        self._width = sum(spec.hotness(feature) for feature in chunk.features)
        self._check_format(folders[0], chunk.features)
        self.ragged = self.format.multihot and self.format.hotness is None
        self.files, self.starts = chunk.files, [0]
        self.num_samples = self.num_prebatches = self.num_values = 0
        self._spools = Spool(self.dtype), Spool(np.dtype(np.int64))
        self._spools[1].add(np.zeros(1))
        for file in chunk.files:
            for number, (record,) in enumerate(read_records(spec.base_directory, file, where)):
                try:
                    self._add(record)
                except ValueError as error:
                    place = f"record {number} of file '{file}' (counted from 0)"
                    raise ValueError(f"{where}: {place} {error}") from None
            self.starts.append(self.num_samples)
        values, self._row_splits = (spool.array() for spool in self._spools)
        self._values = values if self.ragged else values.reshape(-1, self._width)

    def _check_format(self, folder: Path, features: tuple[str, ...]) -> None:
        stated = self.format
        if stated.multihot and len(features) > 1:
            raise ValueError(
                f"{folder}: multihot is true and the chunk has the features {', '.join(features)}; "
                "expected one multi-hot feature per folder"
            )
        stored = stated.hotness if stated.multihot else stated.num_features
        if stored not in (None, self._width):
            raise ValueError(
                f"{folder}: {stored} values per row; the feature spec has {self._width} "
                f"(features {', '.join(features)}): correct the features or their hotness there"
            )

    def _add(self, record: bytes) -> None:
        """Decodes a record; the text of its ValueErrors follows the name of the record."""
        import tensorflow as tf

        name, dtype = self.format.feature_name, tf.as_dtype(self.format.dtype)
        row_splits = None
        try:
            feature = {name: tf.io.FixedLenFeature([], tf.string)}
            content = tf.io.parse_single_example(record, feature)[name]
            if self.format.multihot:
                content, splits = tf.io.parse_tensor(content, tf.string)
                row_splits = _parse_row_splits(splits)
            values = tf.io.parse_tensor(content, dtype).numpy()
        # TensorFlow quotes the bytes that it cannot parse, and Python fails to make text of them.
        except (tf.errors.OpError, ValueError, TypeError) as error:
            raise ValueError(
                f"does not hold a serialized tensor of {self.format.dtype} as the bytes feature "
                f"'{name}' (multihot: {self.format.multihot}, format.json): {reason_of(error)}"
            ) from None
        if row_splits is None:
            num_samples = values.size // self._width
            shape = (num_samples, self._width)
            if values.shape != shape and (self._width != 1 or values.shape != shape[:1]):
                raise ValueError(f"holds a prebatch of shape {list(values.shape)}, not {shape}")
        else:
            num_samples = len(row_splits) - 1
            self._check_row_splits(row_splits, values)
            if self.ragged:
                self._spools[1].add(row_splits[1:] + np.int64(self.num_values))
        self._spools[0].add(values.view(self.dtype))
        self.num_values += values.size
        self.num_samples += num_samples
        self.num_prebatches += 1

    def _check_row_splits(self, row_splits: np.ndarray, values: np.ndarray) -> None:
        """Raises ValueError for row splits that are not those of a record's values."""
        lengths = np.diff(row_splits)
        if row_splits[0] != 0 or row_splits[-1] != values.size or (lengths < 0).any():
            raise ValueError(
                f"has row splits that do not lead from 0 to its {values.size} ids; write the file "
                "again"
            )
        hotness = self._width
        for row in np.flatnonzero(lengths > hotness if self.ragged else lengths != hotness)[:1]:
            rule = (
                f"the feature's hotness {hotness} in the feature spec is the maximum: raise it"
                if self.ragged
                else f"format.json states {hotness} for every row: write the file again, or set "
                "hotness to null there"
            )
            raise ValueError(f"has {lengths[row]} ids in row {row}; {rule}")

    def read(self, samples: range | Scattered) -> Samples:
        if self.ragged:
            if isinstance(samples, range):
                numbers = np.arange(samples.start, samples.stop)
            else:
                numbers = samples.in_batch_order()
            begins = self._row_splits[numbers]
            lengths = self._row_splits[numbers + 1] - begins
            return Ragged.from_lengths(self._values[ranges(begins, lengths)], lengths)
        return read_rows(self._values, samples)


def _parse_row_splits(content) -> np.ndarray:
    """Returns a serialized vector of int32 or int64 with one number or more."""
    import tensorflow as tf

    for dtype in (tf.int32, tf.int64):
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            row_splits = tf.io.parse_tensor(content, dtype).numpy()
            if row_splits.ndim == 1 and row_splits.size:
                return row_splits
    raise ValueError("its row splits are not a vector of int32 or int64")
