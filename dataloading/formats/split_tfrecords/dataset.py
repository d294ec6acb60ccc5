"""Split TFRecords through `tf.data`: NVIDIA's multi-hot format, also with rows of any length."""

from collections.abc import Iterator

from dataloading.formats.split_tfrecords.chunk import RecordChunk
from dataloading.formats.split_tfrecords.folder_format import (
    CHUNK_TYPE,
    LENGTH_FILE,
    read_length,
    spec_of_folders,
)
from dataloading.pipeline.chunk_dataset import ChunkDataset, any_chunk
from dataloading.spec.feature_spec import FeatureSpec


class SplitTFRecordsDataset(ChunkDataset):
    """The rows of one mapping of tfrecord chunks; see `ChunkDataset`.

    Multi-hot features whose rows differ in length are `RaggedIds`; the feature's hotness in the
    spec is the most ids that a row may have. Batches do not depend on the size of prebatches.
    A damaged or cut-off file is a `ValueError`, when it is opened or when the damage is read.

    Args:
        spec: with chunks of type `tfrecord`; or any other spec of a data set of the original,
            whose folders then say what is stored (`spec_of_folders`).
    """

    chunk_type = CHUNK_TYPE

    def __init__(self, spec: FeatureSpec, mapping: str, batch_size: int, **settings):
        super().__init__(spec_of_folders(spec), mapping, batch_size, **settings)

    def _open_chunks(self, spec, mapping, used, everything):
        chunks = spec.source_spec[mapping]
        if everything:
            opened = range(len(chunks))
        else:
            opened = used or [any_chunk(spec, mapping)]
        spec.validate_files(mapping, opened)
        found = {index: RecordChunk(spec, mapping, chunks[index]) for index in opened}
        for fault in length_faults(spec, mapping, found):
            raise ValueError(fault)
        num_rows = next(iter(found.values())).num_rows
        return {index: found[index] for index in used}, num_rows


def length_faults(spec: FeatureSpec, mapping: str, opened: dict[int, RecordChunk]) -> Iterator[str]:
    """Sentences that say which chunks of a mapping lack rows or prebatches, or have too many.

    Args:
        opened: by its number in the mapping, each chunk to look at.
    """
    chunks = spec.source_spec[mapping]
    first = next(iter(opened), None)
    for index, chunk in opened.items():
        feature = chunks[index].features[0]
        if chunk.num_rows != opened[first].num_rows:
            yield (
                f"{spec.origin}: source_spec: mapping '{mapping}': feature "
                f"'{chunks[first].features[0]}' has {opened[first].num_rows} rows and feature "
                f"'{feature}' has {chunk.num_rows}; allowed: equally many. Is a file missing or "
                "cut off?"
            )
        folder = (spec.base_directory / chunks[index].files[0]).parent.parent
        length = read_length(folder)
        if length not in (None, chunk.num_prebatches):
            yield (
                f"{folder / LENGTH_FILE} says {length} prebatches, and the files of feature "
                f"'{feature}' have {chunk.num_prebatches}; is a file missing or cut off? Or "
                "correct the number"
            )
