"""Chunks whose files hold one tensor each, as NVIDIA's NCF recipe stores them."""

import bisect

import numpy as np

from dataloading.pipeline.gather import Scattered
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from runtime.files.torch_file import read_matrix


class TensorChunk:
    """The files of a chunk; a single one is mapped into memory. See `OpenChunk`.

    Values have the dtype of the files, whatever the spec states, because `torch.save` stores it.

    Raises:
        ValueError: a file is not one of `torch.save`, its tensor has another width, files differ in
            their dtypes, or ids are not integers.
    """

    ragged = False

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
        self._files = chunk.files
        self._starts = np.cumsum([0, *map(len, parts)]).tolist()
        self.num_samples = self._starts[-1]
        self._values = parts[0] if len(parts) == 1 else np.concatenate(parts)

    def read(self, samples: range | Scattered) -> np.ndarray:
        if isinstance(samples, range):
            return np.array(self._values[samples.start : samples.stop]).view(self.dtype)
        values = np.empty((len(samples.samples), *self._values.shape[1:]), self._values.dtype)
        values[samples.places] = self._values[samples.samples]
        return values.view(self.dtype)

    def locate(self, sample: int) -> tuple[str, int]:
        part = bisect.bisect_right(self._starts, sample) - 1
        return self._files[part], sample - self._starts[part]
