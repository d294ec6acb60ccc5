"""Stored samples through `tf.data`, a whole batch at a time: no Python per sample."""

from collections.abc import Sequence

from dataloading.formats.open_chunk import FIXED_TYPES, open_chunks
from dataloading.pipeline.chunk_reader import ChunkLayout, ChunkReader
from dataloading.pipeline.sample_dataset import SampleDataset, StoredOptions
from dataloading.pipeline.shuffle import ShiftedOrder
from dataloading.spec.feature_spec import FeatureSpec


class StoredDataset(SampleDataset):
    """The samples of one split of features and labels.

    Split binaries are mapped into memory, not loaded. Features of split TFRecords that are read are
    decoded into temporary files; multi-hot ones whose samples differ in length are `RaggedIds`, and
    the feature's hotness in the spec is the maximum number of ids per sample.

    Args:
        spec: see `ChunkLayout`.
        types: those of the chunks.
        samples: numbers of those to read, consecutive; None: all of the split.
        options: see `StoredOptions`.

    Raises:
        ValueError: the spec, a file or an argument does not fit, a file is damaged, or there are no
            samples.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        batch_size: int,
        types: Sequence[str] = FIXED_TYPES,
        samples: range | None = None,
        **options,
    ):
        options = StoredOptions(batch_size=batch_size, **options)
        layout = ChunkLayout(spec, split, tuple(types), options)
        # Without any that is read, one is opened to count samples.
        opened = layout.used or layout.checked[:1]
        chunks, num_samples = open_chunks(spec, split, opened, layout.checked)
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
