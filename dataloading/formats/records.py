"""Records of TFRecord files, and arrays that are decoded from them into temporary files."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

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
