"""Writes split TFRecords: rows of any number at a time, cut into prebatches."""

from pathlib import Path

import numpy as np

from dataloading.formats.split_tfrecords.folder_format import (
    CHUNK_TYPE,
    FORMAT_FILE,
    LENGTH_FILE,
    Format,
    folders_of,
    write_length,
)
from dataloading.pipeline.ragged import Ragged, concatenate_rows, cut_rows
from dataloading.pipeline.row_dataset import Columns
from dataloading.spec.feature_spec import FeatureSpec
from runtime.files.atomic import write_errors_name

# What the original's reader expects in the bytes feature.
_FEATURE_NAME = "data"


class SplitTFRecordsWriter:
    """The folders of one mapping, `numerical`, `label` and `categorical_0` and so on.

    The dtypes are the original's, int8 labels and int32 ids, except where a feature is int64;
    numericals stay as they are, in the widest of their dtypes.

    Args:
        directory: of the data set.
        mapping: e.g. `train`; the folder within.
        spec: the features, their channels and hotness.
        columns: what `add` will get. Without a label there is no folder `label`.
        prebatch: rows of each prebatch but the last.
        batches_per_file: prebatches of each file but the last.
    """

    def __init__(
        self,
        directory: Path,
        mapping: str,
        spec: FeatureSpec,
        columns: Columns,
        *,
        prebatch: int,
        batches_per_file: int,
    ):
        self._mapping, self._columns = mapping, columns
        self._directory = directory / mapping
        self._folders = {name: None for name in folders_of(spec)}
        if columns.label is None:
            self._folders.pop("label", None)
        self._features = {name: folders_of(spec)[name] for name in self._folders}
        kinds = {"label": (np.dtype(np.int8), 1)}
        if columns.numerical:
            widths = sum(width for _, width in columns.numerical)
            kinds["numerical"] = (np.result_type(*(d for d, _ in columns.numerical)), widths)
        for index, (dtype, hotness) in enumerate(columns.categorical):
            wide = dtype.itemsize > 4
            kinds[f"categorical_{index}"] = (np.dtype(np.int64 if wide else np.int32), hotness)
        for name in self._folders:
            dtype, width = kinds[name]
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

    def add(self, arrays: list[np.ndarray | Ragged]) -> None:
        """Appends rows, one array per `columns.all()`.

        Raises:
            ValueError: numericals that the dtype of their folder does not hold exactly.
            OSError: a file could not be written.
        """
        count = len(self._columns.numerical)
        rows = {f"categorical_{index}": array for index, array in enumerate(arrays[count:])}
        if self._columns.label is not None:
            rows["label"] = rows.pop(f"categorical_{len(self._columns.categorical)}")
        if count:
            dtype = np.dtype(self._folders["numerical"].format.dtype)
            rows["numerical"] = np.concatenate(
                [exactly(array, dtype, self._features["numerical"]) for array in arrays[:count]],
                axis=1,
            )
        for name, folder in self._folders.items():
            folder.add(rows[name])

    def close(self) -> list[dict]:
        """Writes what is left, and the JSON files; returns the chunks of the mapping's spec.

        Raises:
            OSError: a file could not be written.
        """
        chunks = []
        for name, folder in self._folders.items():
            files = [f"{self._mapping}/{name}/{file}" for file in folder.close()]
            chunks.append(
                {"type": CHUNK_TYPE, "features": list(self._features[name]), "files": files}
            )
        with write_errors_name(self._directory / LENGTH_FILE):
            write_length(self._directory, folder.num_prebatches)
        return chunks


class _FolderWriter:
    """The `data_<k>.tfrecords` of one folder; at most a prebatch of rows waits in memory."""

    def __init__(self, folder: Path, format: Format):
        folder.mkdir(parents=True)
        self.format = format
        self.num_prebatches = 0
        self._folder = folder
        self._files: list[str] = []
        self._stream = None
        self._waiting, self._num_waiting = [], 0

    def add(self, rows: np.ndarray | Ragged) -> None:
        count = len(rows.row_splits) - 1 if isinstance(rows, Ragged) else len(rows)
        start = 0
        while start < count:
            stop = min(count, start + self.format.prebatch - self._num_waiting)
            self._waiting.append(cut_rows(rows, start, stop))
            self._num_waiting += stop - start
            start = stop
            if self._num_waiting == self.format.prebatch:
                self._write()

    def _write(self) -> None:
        import tensorflow as tf

        rows = concatenate_rows(self._waiting)
        self._waiting, self._num_waiting = [], 0
        if self.num_prebatches % self.format.batches_per_file == 0:
            self._close_file()
            self._files.append(f"data_{len(self._files)}.tfrecords")
            with write_errors_name(self._folder / self._files[-1]):
                self._stream = tf.io.TFRecordWriter(str(self._folder / self._files[-1]))
        content = tf.io.serialize_tensor(_tensor(rows, self.format)).numpy()
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
        features = tf.train.Features(feature={self.format.feature_name: feature})
        with write_errors_name(self._folder / self._files[-1]):
            self._stream.write(tf.train.Example(features=features).SerializeToString())
        self.num_prebatches += 1

    def close(self) -> list[str]:
        """Returns the names of the files."""
        if self._num_waiting:
            self._write()
        self._close_file()
        with write_errors_name(self._folder / FORMAT_FILE):
            self.format.write(self._folder)
        return self._files

    def _close_file(self) -> None:
        if self._stream is not None:
            with write_errors_name(self._folder / self._files[-1]):
                self._stream.close()


def _tensor(rows: np.ndarray | Ragged, format: Format):
    """What is serialized of a prebatch: its numbers, or the serialized parts of a ragged tensor."""
    import tensorflow as tf

    if not format.multihot:
        return tf.constant(rows.astype(format.dtype, copy=False))
    if isinstance(rows, Ragged):
        values, row_splits = rows
    else:
        values = rows.ravel()
        row_splits = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(format.hotness)
    parts = (values.astype(format.dtype, copy=False), row_splits)
    return tf.stack([tf.io.serialize_tensor(tf.constant(part)) for part in parts])


def exactly(array: np.ndarray, dtype: np.dtype, features) -> np.ndarray:
    """The array in another dtype that holds each of its values.

    Raises:
        ValueError: a value would be rounded or cut off.
    """
    with np.errstate(over="ignore"):  # what overflows differs, too
        converted = array.astype(dtype, copy=False)
    if array.dtype != dtype and not np.array_equal(converted, array):
        raise ValueError(
            f"features {', '.join(features)}: values of dtype {array.dtype} do not fit into "
            f"{np.dtype(dtype)}; give the features a dtype that holds them in the feature spec"
        )
    return converted
