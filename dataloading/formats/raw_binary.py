"""Split binaries through `tf.data`, a whole batch at a time: no Python per row."""

import bisect

import numpy as np

from dataloading.pipeline.chunk_dataset import ChunkDataset, StoredChunk, any_chunk, columns_of
from dataloading.spec.feature_spec import Chunk, FeatureSpec


class RawBinaryDataset(ChunkDataset):
    """The rows of one mapping of split_binary chunks; see `ChunkDataset`."""

    chunk_type = "split_binary"

    def _open_chunks(self, spec, mapping, used, everything):
        checked = None if everything else used or [any_chunk(spec, mapping)]
        num_rows = spec.num_rows(mapping, checked)
        chunks = spec.source_spec[mapping]
        return {index: _StoredChunk(spec, chunks[index], index) for index in used}, num_rows


class _StoredChunk(StoredChunk):
    """The files of a chunk, mapped into memory, as one array [rows, values per row]."""

    def __init__(self, spec: FeatureSpec, chunk: Chunk, index: int):
        last = columns_of(spec, chunk, index)[-1]
        self.dtype, self._values = last.dtype, last.end
        self._parts, self._first_rows, self._files = [], [0], []
        for file in chunk.files:
            path = spec.base_directory / file
            if path.stat().st_size:  # an empty file cannot be mapped
                part = np.memmap(path, self.dtype, "r").reshape(-1, self._values)
                self._parts.append(part.view(np.ndarray))
                self._first_rows.append(self._first_rows[-1] + len(part))
                self._files.append(file)
        self.num_rows = self._first_rows[-1]

    def read(self, rows) -> np.ndarray:
        if len(self._parts) == 1:
            part = self._parts[0]
            return part[rows].copy() if isinstance(rows, slice) else part.take(rows, axis=0)
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        values = np.empty((len(rows), self._values), self.dtype)
        part_of_row = np.searchsorted(self._first_rows, rows, side="right") - 1
        for index in np.unique(part_of_row):
            chosen = np.flatnonzero(part_of_row == index)
            in_part = rows[chosen] - self._first_rows[index]
            values[chosen] = self._parts[index].take(in_part, axis=0)
        return values

    def locate(self, row: int) -> tuple[str, int]:
        part = bisect.bisect_right(self._first_rows, row) - 1
        return self._files[part], row - self._first_rows[part]
