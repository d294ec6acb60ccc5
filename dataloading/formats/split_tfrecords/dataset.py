"""Split TFRecords through `tf.data`: NVIDIA's multi-hot format, also with ragged features."""

from collections.abc import Iterator

from dataloading.formats.split_tfrecords.folder_format import (
    CHUNK_TYPE,
    LENGTH_FILE,
    read_length,
    spec_of_folders,
)
from dataloading.formats.split_tfrecords.open_records import RecordChunk
from dataloading.pipeline.chunk_reader import ChunkLayout, ChunkReader
from dataloading.pipeline.sample_dataset import SampleDataset, StoredOptions
from dataloading.spec.feature_spec import FeatureSpec


class SplitTFRecordsDataset(SampleDataset):
    """The samples of one split of `tfrecord` chunks.

    Multi-hot features whose samples differ in length are `RaggedIds`; the feature's hotness in the
    spec is the maximum number of ids per sample. Batches do not depend on the size of prebatches.
    Opening it decodes the features that are read into temporary files.

    Args:
        spec: with chunks of type `tfrecord`; or any other spec of a data set of the original,
            whose folders then define what is stored (`spec_of_folders`).
        options: see `StoredOptions`.

    Raises:
        ValueError: the spec, a file or an argument does not fit, a file is damaged, or the split
            is empty.
    """

    def __init__(self, spec: FeatureSpec, split: str, batch_size: int, **options):
        options = StoredOptions(batch_size=batch_size, **options)
        spec = spec_of_folders(spec)
        layout = ChunkLayout(spec, split, CHUNK_TYPE, options)
        spec.validate_files(split, layout.checked)
        stored = spec.source_spec[split]
        numbers = layout.used or layout.checked[:1]  # without any that is read, to count samples
        chunks = {number: RecordChunk(spec, split, stored[number]) for number in numbers}
        for fault in length_faults(spec, split, chunks):
            raise ValueError(fault)
        num_samples = chunks[numbers[0]].num_samples
        reader = ChunkReader(spec, split, layout.columns, chunks, num_samples)
        super().__init__(reader, split, options, order=options.order(num_samples))


def length_faults(spec: FeatureSpec, split: str, opened: dict[int, RecordChunk]) -> Iterator[str]:
    """Yields a message for each of these chunks (number in the split -> chunk) that lacks samples
    or prebatches, or has too many."""
    chunks = spec.source_spec[split]
    first = next(iter(opened), None)
    for index, chunk in opened.items():
        feature = chunks[index].features[0]
        if chunk.num_samples != opened[first].num_samples:
            yield (
                f"{spec.origin}: source_spec: split '{split}': feature "
                f"'{chunks[first].features[0]}' has {opened[first].num_samples} rows and feature "
                f"'{feature}' has {chunk.num_samples}; expected equally many. Is a file missing or "
                "cut off?"
            )
        folder = (spec.base_directory / chunks[index].files[0]).parent.parent
        length = read_length(folder)
        if length not in (None, chunk.num_prebatches):
            yield (
                f"{folder / LENGTH_FILE} states {length} prebatches, and the files of feature "
                f"'{feature}' have {chunk.num_prebatches}; is a file missing or cut off? Or "
                "correct the number"
            )
