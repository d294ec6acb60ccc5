"""Decoded samples of histories in memory: all, or those of the records that were used last."""

import threading
from collections.abc import Sequence

import numpy as np

from dataloading.formats.sequence_tfrecord.decode import decode
from dataloading.formats.tfrecord.index import RecordIndex
from dataloading.pipeline.columns import Column
from dataloading.pipeline.ragged import ranges

# Decoded at a time, so that TensorFlow's int64 numbers take little memory next to the buffer.
_SAMPLES_AT_A_TIME = 16_384


class DecodedReader:
    """Reads samples from a buffer of decoded records; a `SampleReader`.

    The buffer is virtual memory until it is filled. Safe for several threads.

    Args:
        files: the records.
        columns: what is decoded; other features of the records are skipped.
        num_kept: records that the buffer has room for, 1 or more. If that is all of them, each is
            decoded once, and takes the memory of its samples. Otherwise each has room for a whole
            prebatch (of irregular files fewer are kept, so that this is not more than all samples
            would take), and the least recently used one is replaced.
    """

    def __init__(self, files: RecordIndex, columns: Sequence[Column], num_kept: int):
        self._files, self.columns = files, tuple(columns)
        self.num_samples = files.num_samples
        if num_kept >= files.num_records:
            num_kept, self._slot_starts = files.num_records, files.first_samples
        else:
            num_kept = min(num_kept, -(-files.num_samples // files.prebatch))
            self._slot_starts = np.arange(num_kept + 1) * files.prebatch
        self._arrays = {
            column: np.empty((self._slot_starts[-1], column.width), column.dtype)
            for column in columns
        }
        # Slots of the buffer: which one has a record, and vice versa.
        self._slot_of = np.full(files.num_records, -1, np.int64)
        self._record_in = np.full(num_kept, -1, np.int64)
        self._last_use = np.zeros(num_kept, np.int64)
        self._num_uses = 0
        self._lock = threading.Lock()

    def read(self, samples: range | np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        """See `SampleReader`; ValueError also for another invalid sample of a record."""
        if isinstance(samples, range):
            samples = np.arange(samples.start, samples.stop)
        record = self._files.record_of(samples)
        needed = np.unique(record)
        if len(needed) > len(self._record_in):
            half = len(samples) // 2
            parts = [self.read(part, columns) for part in (samples[:half], samples[half:])]
            return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        with self._lock:
            self._load(needed)
            position = self._slot_starts[self._slot_of[record]]
            position += samples - self._files.first_samples[record]
            return [self._arrays[column].take(position, axis=0) for column in columns]

    def _load(self, needed: np.ndarray) -> None:
        """Decodes those of these records that are not in the buffer."""
        self._num_uses += 1
        slots = self._slot_of[needed]
        self._last_use[slots[slots >= 0]] = self._num_uses
        missing = needed[slots < 0]
        if not len(missing):
            return
        if len(self._record_in) == len(self._slot_of):  # record i in slot i
            free = missing
        else:
            # Empty slots have the lowest use, 0, and those that are needed now the highest.
            free = np.argsort(self._last_use, kind="stable")[: len(missing)]
        num_so_far = np.cumsum(self._num_samples(missing))
        stops = np.flatnonzero(np.diff((num_so_far - 1) // _SAMPLES_AT_A_TIME)) + 1
        for records, slots in zip(np.split(missing, stops), np.split(free, stops), strict=True):
            self._fill(records, slots)

    def _num_samples(self, records: np.ndarray) -> np.ndarray:
        return self._files.first_samples[records + 1] - self._files.first_samples[records]

    def _fill(self, records: np.ndarray, slots: np.ndarray) -> None:
        """Decodes records into slots, whose records are given up."""
        files, num_samples = self._files, self._num_samples(records)

        def locate(number, row):
            return files.location(int(records[number]), row)

        decoded = decode(files.read(records), num_samples, self.columns, locate)
        replaced = self._record_in[slots]
        self._slot_of[replaced[replaced >= 0]] = -1
        self._record_in[slots] = -1
        places = ranges(self._slot_starts[slots], num_samples)
        for array, values in zip(self._arrays.values(), decoded, strict=True):
            array[places] = values
        self._slot_of[records] = slots
        self._record_in[slots] = records
        self._last_use[slots] = self._num_uses
