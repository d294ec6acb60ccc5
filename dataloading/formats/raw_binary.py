"""Chunks whose files hold the values of samples one after the other."""

import numpy as np

from dataloading.pipeline.chunk_reader import OpenChunk, stored_dtype
from dataloading.pipeline.gather import Scattered, aligned, gather
from dataloading.spec.feature_spec import Chunk, FeatureSpec


class BinaryChunk(OpenChunk):
    """The files of a chunk, mapped into memory."""

    def __init__(self, spec: FeatureSpec, split: str, chunk: Chunk):
        self.dtype = stored_dtype(spec, chunk.features[0])
        self._sample_bytes = spec.sample_bytes(chunk)
        self._width = self._sample_bytes // self.dtype.itemsize
        self._parts, self.starts, self.files = [], [0], []
        for file in chunk.files:
            path = spec.base_directory / file
            if path.stat().st_size:  # an empty file cannot be mapped
                part = np.memmap(path, np.uint8, "r").view(np.ndarray)
                self._parts.append(part)
                self.starts.append(self.starts[-1] + len(part) // self._sample_bytes)
                self.files.append(file)
        self.num_samples = self.starts[-1]

    def read(self, samples: range | Scattered) -> np.ndarray:
        read = self._read_run if isinstance(samples, range) else self._read_scattered
        return read(samples).view(self.dtype).reshape(-1, self._width)

    def _read_run(self, samples: range) -> np.ndarray:
        """Returns the bytes of neighboring samples."""
        values, end = aligned(len(samples) * self._sample_bytes), 0
        for part, first in zip(self._parts, self.starts, strict=False):
            start = max(samples.start - first, 0) * self._sample_bytes
            piece = part[start : max(samples.stop - first, 0) * self._sample_bytes]
            begin, end = end, end + len(piece)
            values[begin:end] = piece
        return values

    def _read_scattered(self, scattered: Scattered) -> np.ndarray:
        """Returns the bytes of the samples of a batch."""
        samples, places = scattered
        values = aligned(len(samples) * self._sample_bytes)
        bounds = np.searchsorted(samples, self.starts)
        for part, first, start, stop in zip(
            self._parts, self.starts, bounds[:-1], bounds[1:], strict=False
        ):
            offsets = (samples[start:stop] - first) * self._sample_bytes
            gather(part, offsets, places[start:stop], self._sample_bytes, values)
        return values
