"""Stored samples through `tf.data`, a whole batch at a time: no Python per sample."""

from collections.abc import Iterable, Sequence

from dataloading.formats.open_chunk import FIXED_TYPES, open_chunks
from dataloading.pipeline.chunk_reader import ChunkReader
from dataloading.pipeline.columns import Role
from dataloading.pipeline.sample_dataset import SampleDataset, StoredOptions
from dataloading.pipeline.shuffle import ShiftedOrder
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.spans import Span, spans_of


class StoredDataset(SampleDataset):
    """The samples of one split of features and labels.

    Split binaries are mapped into memory, not loaded. Features of split TFRecords that are read are
    decoded into temporary files; multi-hot ones whose samples differ in length are `RaggedIds`, and
    the feature's hotness in the spec is the maximum number of ids per sample.

    Args:
        spec: with the channels `numerical`, `categorical` (each may be empty) and `label`. With
            `global_features`, only the files of these categorical features, of the numerical
            features and of the label must exist; if this rank reads none of them, the files of one
            chunk, to count its samples.
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
        reader = _open_columns(spec, split, tuple(types), options)
        num_samples = reader.num_samples
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


def _open_columns(
    spec: FeatureSpec, split: str, types: tuple[str, ...], options: StoredOptions
) -> ChunkReader:
    """Opens the chunks that this rank reads; neighboring numerical features are one column."""
    labels = (fs.LABEL_CHANNEL,) if options.with_labels else ()
    channels = (fs.NUMERICAL_CHANNEL, fs.CATEGORICAL_CHANNEL, *labels)
    spec.require(f"the {types[0]} loader", channels=channels, splits=(split,), chunk_types=types)
    chunks = spec.source_spec[split]
    spans = spans_of(spec, chunks)
    numerical = _joined(spans[feature] for feature in spec.channel(fs.NUMERICAL_CHANNEL))
    categorical = [spans[feature] for feature in spec.channel(fs.CATEGORICAL_CHANNEL)]
    label = [spans[feature] for channel in labels for feature in spec.channel(channel)]
    columns = [
        *((Role.NUMERICAL, span) for span in numerical),
        *((Role.CATEGORICAL, span) for span in categorical),
        *((Role.LABEL, span) for span in label),
    ]
    used = sorted({s.chunk for s in (*numerical, *options.read_features(categorical), *label)})
    checked = used
    if options.global_features is None and options.with_labels:
        # Includes the files of features that are in no channel.
        checked = list(range(len(chunks)))
    elif not used:  # any chunk is enough to count samples
        paths = [[spec.base_directory / file for file in chunk.files] for chunk in chunks]
        stored = (i for i, files in enumerate(paths) if all(path.is_file() for path in files))
        checked = [next(stored, 0)]
    opened, num_samples = open_chunks(spec, split, used or checked[:1], checked)
    return ChunkReader(spec, split, columns, opened, num_samples)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Joins values that follow each other in their chunk, so that they are copied at once."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and (last.chunk, last.end) == (span.chunk, span.begin):
            features = last.features + span.features
            joined[-1] = last._replace(features=features, end=span.end)
        else:
            joined.append(span)
    return joined
