"""The bytes of split binaries: appended, and read again where ids become narrower."""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dataloading.transcode.encode.vocabulary import UNKNOWN
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
