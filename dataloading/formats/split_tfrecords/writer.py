"""Writes split TFRecords: any number of samples at a time, cut into prebatches."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dataloading.formats.records import Prebatches
from dataloading.formats.split_tfrecords.folder_format import (
    CHUNK_TYPE,
    FORMAT_FILE,
    LENGTH_FILE,
    Format,
    folders_of,
)
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.ragged import Ragged, Samples
from dataloading.spec.casts import cast_exactly
from dataloading.spec.feature_spec import FeatureSpec
from runtime.files.disk import write_errors_name

# Name of the bytes feature that the original's reader expects.
_FEATURE_NAME = "data"


class SplitTFRecordsWriter:
    """The folders of one split, `numerical`, `label` and `categorical_0` and so on.

    The dtypes are the original's, int8 labels and int32 ids, except where a feature is int64;
    numerical features stay as they are, in the widest of their dtypes.

    Args:
        directory: of the data set.
        split: e.g. `train`; the folder within.
        spec: the features, their channels and hotness.
        columns: those of the arrays of `add`.
        prebatch: samples of each prebatch but the last.
        batches_per_file: prebatches of each file but the last.
    """

    def __init__(
        self,
        directory: Path,
        split: str,
        spec: FeatureSpec,
        columns: Sequence[Column],
        *,
        prebatch: int,
        batches_per_file: int,
    ):
        self._split, self._directory = split, directory / split
        self._features, self._columns, self._num_samples = folders_of(spec), columns, 0
        self._columns_of = {
            name: [i for i, column in enumerate(columns) if column.feature in features]
            for name, features in self._features.items()
        }
        if not self._columns_of.get("label", True):
            del self._columns_of["label"]
        self._folders = {}
        self._prebatches = Prebatches(prebatch)
        for name, numbers in self._columns_of.items():
            dtype, width = _stored_kind([columns[number] for number in numbers])
            multihot = name.startswith("categorical") and width != 1
            self._folders[name] = _FolderWriter(
                self._directory / name,
                Format(
                    format="tfrecords",
                    dtype=dtype.name,
                    multihot=multihot,
                    feature_name=_FEATURE_NAME,
                    num_features=1 if multihot else width,
                    batches_per_file=batches_per_file,
                    prebatch=prebatch,
                    hotness=width if multihot else None,
                ),
            )

    def add(self, arrays: Sequence[Samples]) -> None:
        """Appends samples, one array per column; ValueError for what `cast_exactly` refuses."""
        samples = []
        for name, folder in self._folders.items():
            numbers, dtype = self._columns_of[name], np.dtype(folder.format.dtype)
            parts = [self._cast(self._columns[i], arrays[i], dtype) for i in numbers]
            samples.append(np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0])
        first = arrays[0]
        self._num_samples += len(first.row_splits) - 1 if isinstance(first, Ragged) else len(first)
        self._write(self._prebatches.add(samples))

    def _cast(self, column: Column, samples: Samples, dtype: np.dtype) -> Samples:
        def place(row: int, position: int) -> str:
            if isinstance(samples, Ragged):
                row = int(np.searchsorted(samples.row_splits, row, side="right")) - 1
            name = column.features[position] if column.features else column.feature
            return f"split '{self._split}': feature '{name}': row {self._num_samples + row}"

        if isinstance(samples, Ragged):
            return samples._replace(values=cast_exactly(samples.values, dtype, place))
        return cast_exactly(samples, dtype, place)

    def _write(self, prebatches: Iterable[list[Samples]]) -> None:
        for prebatch in prebatches:
            for folder, samples in zip(self._folders.values(), prebatch, strict=True):
                folder.write(samples)

    def close(self) -> list[dict]:
        """Writes the remaining samples and the JSON files; returns the chunks of the split."""
        self._write(self._prebatches.rest())
        chunks = []
        for name, folder in self._folders.items():
            files = [f"{self._split}/{name}/{file}" for file in folder.close()]
            chunks.append(
                {"type": CHUNK_TYPE, "features": list(self._features[name]), "files": files}
            )
        with write_errors_name(self._directory / LENGTH_FILE):
            (self._directory / LENGTH_FILE).write_text(json.dumps(folder.num_prebatches))
        return chunks


def _stored_kind(columns: Sequence[Column]) -> tuple[np.dtype, int | None]:
    """Returns dtype and values per sample of the folder of these columns; None: samples differ."""
    first = columns[0]
    if first.role is Role.LABEL:
        return np.dtype(np.int8), 1
    if first.role is Role.NUMERICAL:
        dtype = np.result_type(*(column.dtype for column in columns))
        return dtype, sum(column.width for column in columns)
    return np.dtype(np.int64 if first.dtype.itemsize > 4 else np.int32), first.width


class _FolderWriter:
    """The `data_<k>.tfrecords` of one folder."""

    def __init__(self, folder: Path, format: Format):
        folder.mkdir(parents=True)
        self.format = format
        self.num_prebatches = 0
        self._folder = folder
        self._files: list[str] = []
        self._stream = None

    def write(self, samples: Samples) -> None:
        """Appends a prebatch."""
        import tensorflow as tf

        if self.num_prebatches % self.format.batches_per_file == 0:
            self._close_file()
            self._files.append(f"data_{len(self._files)}.tfrecords")
            with write_errors_name(self._folder / self._files[-1]):
                self._stream = tf.io.TFRecordWriter(str(self._folder / self._files[-1]))
        content = _serialized(samples, self.format)
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
        features = tf.train.Features(feature={self.format.feature_name: feature})
        with write_errors_name(self._folder / self._files[-1]):
            self._stream.write(tf.train.Example(features=features).SerializeToString())
        self.num_prebatches += 1

    def close(self) -> list[str]:
        """Returns the names of the files."""
        self._close_file()
        with write_errors_name(self._folder / FORMAT_FILE):
            self.format.write(self._folder)
        return self._files

    def _close_file(self) -> None:
        if self._stream is not None:
            with write_errors_name(self._folder / self._files[-1]):
                self._stream.close()


def _serialized(samples: Samples, format: Format) -> bytes:
    """Returns the tensor of a prebatch: its numbers, or the serialized parts of a ragged tensor."""
    import tensorflow as tf

    def serialize(tensor) -> bytes:
        return tf.io.serialize_tensor(tensor).numpy()

    if not format.multihot:
        return serialize(samples)
    if not isinstance(samples, Ragged):
        row_splits = np.arange(len(samples) + 1, dtype=np.int32) * np.int32(format.hotness)
        samples = Ragged(samples.ravel(), row_splits)
    return serialize([serialize(samples.values), serialize(samples.row_splits)])
