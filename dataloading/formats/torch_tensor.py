"""Chunks whose files hold one tensor each, as NVIDIA's NCF recipe stores them."""

import numpy as np

from dataloading.pipeline.chunk_reader import OpenChunk
from dataloading.pipeline.gather import Scattered, read_rows
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from runtime.files.torch_file import read_matrix


class TensorChunk(OpenChunk):
    """The files of a chunk; a single one is mapped into memory.

    Values have the dtype of the files, whatever the spec states, because `torch.save` stores it.

    Raises:
        ValueError: a file is not one of `torch.save`, its tensor has another width, files differ in
            their dtypes, or ids are not integers.
    """

    def __init__(self, spec: FeatureSpec, split: str, chunk: Chunk):
        width = sum(spec.hotness(name) for name in chunk.features)
        parts = [read_matrix(spec.base_directory / file, width) for file in chunk.files]
        dtypes = {str(part.dtype) for part in parts}
        ids = [name for name in chunk.features if "cardinality" in spec.feature_spec[name]]
        self.dtype = parts[0].dtype
        if len(dtypes) > 1 or (ids and self.dtype.kind not in "iu"):
            raise ValueError(
                f"{spec.origin}: {', '.join(chunk.files)}: expected tensors of one dtype, of "
                f"integers for ids ({', '.join(ids) or 'none here'}), got {', '.join(dtypes)}"
            )
        if self.dtype.kind == "b":  # checked as bytes, like those of split binaries
            self.dtype = np.dtype("u1")
        self.files = chunk.files
        self.starts = np.cumsum([0, *map(len, parts)]).tolist()
        self.num_samples = self.starts[-1]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self._values = np.ascontiguousarray(whole)  # no copy of what is stored row by row

    def read(self, samples: range | Scattered) -> np.ndarray:
        return read_rows(self._values, samples).view(self.dtype)
