"""Records of TFRecord files: read, spooled into temporary files, cut from samples."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dataloading.pipeline.ragged import Ragged, Samples, concatenate_samples, cut_samples
from runtime.files.disk import write_errors_name

_BUFFER_BYTES = 4 << 20
_FRAME_BYTES = 16  # of a record in addition to its content: length and checksums


def read_records(folder: Path, file: str, where: str, size: int = 1) -> Iterator[np.ndarray]:
    """Yields the records of a file, up to `size` at a time, as an array of bytes objects.

    Args:
        folder: the folder that `file` is relative to.
        where: name of data set and split in messages.

    Raises:
        ValueError: the file is truncated or damaged.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # see `dataset_of`
    dataset = tf.data.TFRecordDataset(str(folder / file), buffer_size=_BUFFER_BYTES)
    num_bytes = 0
    try:
        for records in dataset.batch(size).with_options(options).as_numpy_iterator():
            num_bytes += sum(len(record) + _FRAME_BYTES for record in records)
            yield records
        # TensorFlow takes a file that is cut within a length for one that ends before it.
        reason = "" if num_bytes == (folder / file).stat().st_size else "the last record"
    except tf.errors.DataLossError as error:
        reason = reason_of(error)
    if reason:
        raise ValueError(
            f"{where}: file '{file}' is damaged, cut off, or not a TFRecord file ({reason}); "
            "write the file again"
        )


def reason_of(error: Exception) -> str:
    """Returns the text of an error, of TensorFlow's without the names of its functions."""
    return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", str(error), flags=re.DOTALL)


class Spool:
    """An array that grows in an unnamed temporary file, and is then mapped into memory.

    Its pages are the file system's: they take memory only as long as nothing else needs it.
    """

    def __init__(self, dtype: np.dtype):
        self._dtype = dtype
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed when it is mapped

    def add(self, values: np.ndarray) -> None:
        """Appends values, row after row."""
        with write_errors_name(Path(tempfile.gettempdir())):
            self._file.write(np.ascontiguousarray(values, self._dtype))

    def array(self) -> np.ndarray:
        """Returns all values, `[n]`, which cannot be changed; no more can be added."""
        with self._file, write_errors_name(Path(tempfile.gettempdir())):
            self._file.flush()
            if not self._file.tell():  # an empty file cannot be mapped
                return np.empty(0, self._dtype)
            return np.memmap(self._file, self._dtype, "r").view(np.ndarray)


class Prebatches:
    """Cuts samples into prebatches of `size`, of which one waits in memory."""

    def __init__(self, size: int):
        self._size = size
        self._waiting: list[list[Samples]] = []
        self._num_waiting = 0

    def add(self, arrays: Sequence[Samples]) -> Iterator[list[Samples]]:
        """Yields the prebatches that these samples, one array per column, complete."""
        start, first = 0, arrays[0]
        count = len(first.row_splits) - 1 if isinstance(first, Ragged) else len(first)
        while start < count:
            stop = min(count, start + self._size - self._num_waiting)
            self._waiting.append([cut_samples(array, start, stop) for array in arrays])
            self._num_waiting += stop - start
            start = stop
            if self._num_waiting == self._size:
                yield from self.rest()

    def rest(self) -> list[list[Samples]]:
        """Returns the last prebatch, which may be shorter; empty without one."""
        if not self._waiting:
            return []
        columns = zip(*self._waiting, strict=True)
        self._waiting, self._num_waiting = [], 0
        return [[concatenate_samples(pieces) for pieces in columns]]
