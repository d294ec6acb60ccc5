"""Split binaries through `tf.data`, a whole batch at a time: no Python per sample."""

import bisect

import numpy as np

from dataloading.pipeline.chunk_reader import ChunkLayout, ChunkReader, stored_dtype
from dataloading.pipeline.gather import Scattered, aligned, gather
from dataloading.pipeline.sample_dataset import SampleDataset, StoredOptions
from dataloading.pipeline.shuffle import ShiftedOrder
from dataloading.spec.feature_spec import Chunk, FeatureSpec

CHUNK_TYPE = "split_binary"


class RawBinaryDataset(SampleDataset):
    """The samples of one split of `split_binary` chunks.

    The files are mapped into memory, not loaded.

    Args:
        spec: see `ChunkLayout`.
        samples: numbers of those to read, consecutive; None: all of the split.
        options: see `StoredOptions`.

    Raises:
        ValueError: the spec, a file or an argument does not fit, or there are no samples.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        batch_size: int,
        samples: range | None = None,
        **options,
    ):
        options = StoredOptions(batch_size=batch_size, **options)
        layout = ChunkLayout(spec, split, CHUNK_TYPE, options)
        num_samples = spec.num_samples(split, layout.checked)
        stored = spec.source_spec[split]
        chunks = {number: BinaryChunk(spec, stored[number]) for number in layout.used}
        reader = ChunkReader(spec, split, layout.columns, chunks, num_samples)
        samples = range(num_samples) if samples is None else samples
        if not samples or samples.stop > num_samples:
            raise ValueError(
                f"{spec.origin}: expected samples of the {num_samples:,} of {split}, got "
                f"{samples.start:,} to {samples.stop - 1:,}"
            )
        order = options.order(len(samples))
        if samples.start:
            order = ShiftedOrder(order, samples.start)
        super().__init__(reader, split, options, order=order, num_samples=len(samples))


class BinaryChunk:
    """The files of a chunk, mapped into memory; see `OpenChunk`."""

    ragged = False

    def __init__(self, spec: FeatureSpec, chunk: Chunk):
        self.dtype = stored_dtype(spec, chunk.features[0])
        self._sample_bytes = spec.sample_bytes(chunk)
        self._width = self._sample_bytes // self.dtype.itemsize
        self._parts, self._starts, self._files = [], [0], []
        for file in chunk.files:
            path = spec.base_directory / file
            if path.stat().st_size:  # an empty file cannot be mapped
                part = np.memmap(path, np.uint8, "r").view(np.ndarray)
                self._parts.append(part)
                self._starts.append(self._starts[-1] + len(part) // self._sample_bytes)
                self._files.append(file)
        self.num_samples = self._starts[-1]

    def read(self, samples: range | Scattered) -> np.ndarray:
        read = self._read_run if isinstance(samples, range) else self._read_scattered
        return read(samples).view(self.dtype).reshape(-1, self._width)

    def _read_run(self, samples: range) -> np.ndarray:
        """Returns the bytes of neighboring samples."""
        values, end = aligned(len(samples) * self._sample_bytes), 0
        for part, first in zip(self._parts, self._starts, strict=False):
            start = max(samples.start - first, 0) * self._sample_bytes
            piece = part[start : max(samples.stop - first, 0) * self._sample_bytes]
            begin, end = end, end + len(piece)
            values[begin:end] = piece
        return values

    def _read_scattered(self, scattered: Scattered) -> np.ndarray:
        """Returns the bytes of the samples of a batch."""
        samples, places = scattered
        values = aligned(len(samples) * self._sample_bytes)
        bounds = np.searchsorted(samples, self._starts)
        for part, first, start, stop in zip(
            self._parts, self._starts, bounds[:-1], bounds[1:], strict=False
        ):
            offsets = (samples[start:stop] - first) * self._sample_bytes
            gather(part, offsets, places[start:stop], self._sample_bytes, values)
        return values

    def locate(self, sample: int) -> tuple[str, int]:
        part = bisect.bisect_right(self._starts, sample) - 1
        return self._files[part], sample - self._starts[part]
