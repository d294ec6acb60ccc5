"""Samples of users, items and histories through `tf.data`.

They are stored as ranges of sorted events, or in TFRecords, the format of NVIDIA's SIM: a record is
a tf.train.Example with one int64 list per feature. It holds one sample, or a prebatch: those of
several samples one after the other.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dataloading.formats.sequence_tfrecord.decoded_reader import DecodedReader
from dataloading.histories.range_reader import RangeReader
from dataloading.pipeline.batch import Batch, SequenceInputs
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.sample_dataset import LoaderOptions, SampleDataset
from dataloading.pipeline.shuffle import BlockShuffle, FileOrder, RepeatedOrder
from dataloading.spec.feature_spec import LABEL_CHANNEL, TRAIN, FeatureSpec, smallest_id_dtype
from dataloading.spec.history_channels import (
    RANGES_TYPE,
    TARGET_CHANNEL,
    draws_labels,
    num_ids,
    prebatch_key,
    sequence_channels,
    stores_ranges,
)

# Samples that are shuffled fully; of more, each batch mixes samples of this many from anywhere.
_WINDOW_SAMPLES = 262_144
# Single samples that are neighbors in the file and stay together in a window: 64 KiB or so.
_BLOCK_SAMPLES = 64
ROWS_AT_A_TIME = 16_384  # of features that are read in file order


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(LoaderOptions):
    """Options of the loader of histories.

    Attributes:
        with_labels: False reads no labels, which may be absent: `Batch.labels` is then `None`.
        with_negatives: False reads no negative histories, which are half of the ids; only an
            auxiliary loss needs them. `SequenceInputs.negative` is `()` then.
        shuffle: a new order in each pass over the data, a function of (seed, epoch, pass) and the
            size of the prebatches: these are permuted (blocks of 64 samples without prebatches),
            then the samples within windows of 262,144 (of a prebatch if that is larger).
        seed: seed of the order.
        redraws_negatives: draws other negatives in each pass over ranges of events, as functions of
            the data set's seed and the pass. Those of TFRecords are stored.
        drop_remainder: leaves out the epoch's last batch if that would be short.
        repeat_count: passes over the data per epoch; 0 is 1. `num_samples` counts all of them.
        prebatch_size: expected samples per TFRecord, 0 or 1 for single samples. None: any.
    """

    with_labels: bool = True
    with_negatives: bool = True
    shuffle: bool = False
    seed: int = 0
    redraws_negatives: bool = False
    drop_remainder: bool = False
    repeat_count: int = 0
    prebatch_size: int | None = None


class SequenceDataset(SampleDataset):
    """The samples of one split of a data set of histories, `Batch`es of `SequenceInputs`.

    Ranges of events are read where they are, see `RangeReader`. TFRecords are decoded when they are
    opened, into temporary files, in the smallest dtypes that hold their ids; of each rank, because
    a shuffle assigns other samples to a rank in each pass. Every sample is checked: ids must be in
    [0, `num_ids`), histories not longer than in the spec, with padding (zeros) only before the
    first id and at the same steps in all of them. Batches are independent of the number of samples
    per record.

    Args:
        spec: see `sequence_channels`.
        options: see `SequenceOptions`.

    Raises:
        ValueError: the spec, a file, a sample or an argument does not fit, or the split is empty.
    """

    def __init__(self, spec: FeatureSpec, split: str, batch_size: int, **options):
        options = SequenceOptions(batch_size=batch_size, **options)
        channels = sequence_channels(
            spec, (split,), with_labels=options.with_labels, with_negatives=options.with_negatives
        )
        negative = channels.negative if options.with_negatives else ()
        inputs = SequenceInputs(channels.user, channels.target, channels.positive, negative)
        features = [*itertools.chain(*inputs), *channels.label]
        files = row_reader(spec, split, features)
        _check_prebatch(spec, split, files, options.prebatch_size)
        if files.num_samples == 0:
            raise ValueError(f"{spec.origin}: source_spec: split '{split}' has no rows")
        passes = max(1, options.repeat_count)
        order = FileOrder()
        if options.shuffle:
            window = max(1, _WINDOW_SAMPLES // files.prebatch) * files.prebatch
            block = files.prebatch if files.prebatch > 1 else _BLOCK_SAMPLES
            order = BlockShuffle(files.num_samples, options.seed, block, window)
        redraws = options.redraws_negatives and isinstance(files, RangeReader)
        num_samples = passes * files.num_samples
        if options.drop_remainder:
            num_samples -= num_samples % batch_size
        if not num_samples:
            raise ValueError(
                f"{spec.origin}: split '{split}' has {passes * files.num_samples} rows, fewer "
                f"than the global batch of {batch_size}, and drop_remainder leaves out short "
                "batches: no row is left. Use a smaller batch, or keep the remainder"
            )
        super().__init__(
            files,
            split,
            options,
            order=RepeatedOrder(order, files.num_samples, passes, redraws),
            num_samples=num_samples,
            arrange=lambda batch: _arrange(batch, inputs),
        )


def _arrange(batch: Batch, features: SequenceInputs) -> Batch:
    """Returns a batch with its ids by channel."""
    ids = iter(batch.inputs.categorical)
    return batch._replace(
        inputs=SequenceInputs(*(tuple(itertools.islice(ids, len(names))) for names in features))
    )


def row_reader(
    spec: FeatureSpec, split: str, features: Sequence[str]
) -> DecodedReader | RangeReader:
    """Opens features of a split to be read by the numbers of the samples.

    The features need not be in a channel. A label that is not stored doubles the samples, see
    `RangeReader`.

    Raises:
        ValueError: see `SequenceDataset`.
    """
    if stores_ranges(spec, split):
        return RangeReader(spec, split, features)
    columns = []
    for feature in features:
        if feature in spec.channel_spec.get(LABEL_CHANNEL, ()):
            columns.append(Column(Role.LABEL, feature, np.dtype(np.int8), 1))
        elif "cardinality" in spec.feature_spec[feature]:
            columns.append(_id_column(spec, feature))
        else:
            width = spec.hotness(feature)
            columns.append(Column(Role.NUMERICAL, feature, np.dtype(np.int64), width))
    return DecodedReader(spec, split, columns, _id_column(spec, spec.channel(TARGET_CHANNEL)[0]))


def blocks(spec: FeatureSpec, split: str, features: Sequence[str]) -> Iterator[list[np.ndarray]]:
    """Yields integers `[samples, hotness]` of each feature, all samples in file order."""
    reader = row_reader(spec, split, features)
    for start in range(0, reader.num_samples, ROWS_AT_A_TIME):
        stop = min(start + ROWS_AT_A_TIME, reader.num_samples)
        yield reader.read(range(start, stop), reader.columns)


def count_samples(spec: FeatureSpec, split: str) -> int:
    """Returns the samples of a split; opens the files of one feature."""
    if not stores_ranges(spec, split):
        return row_reader(spec, split, spec.channel(TARGET_CHANNEL)[:1]).num_samples
    (ranges,) = (i for i, c in enumerate(spec.source_spec[split]) if c.type == RANGES_TYPE)
    return spec.num_samples(split, [ranges]) * (2 if draws_labels(spec, split) else 1)


def _id_column(spec: FeatureSpec, feature: str) -> Column:
    ids = num_ids(spec, feature)
    return Column(Role.CATEGORICAL, feature, smallest_id_dtype(ids), spec.hotness(feature), ids)


def _check_prebatch(
    spec: FeatureSpec, split: str, files: DecodedReader | RangeReader, expected: int | None
) -> None:
    """Raises ValueError if the metadata or a flag state other prebatches than the files hold."""
    key = prebatch_key(split)
    flag = "--prebatch_train_size" if split == TRAIN else "--prebatch_test_size"
    if isinstance(files, RangeReader):
        if expected is not None:
            raise ValueError(f"{flag} is {expected}, and {spec.origin} has no TFRecords; remove it")
        return
    for source, size in ((f"metadata: {key}", spec.metadata.get(key)), (flag, expected)):
        # Fewer samples than a prebatch are one record, the remainder.
        is_number = isinstance(size, int)
        is_equal = size is None or (is_number and files.prebatch == max(1, size))
        is_remainder = is_number and files.num_records <= 1 and files.prebatch < size
        if not (is_equal or is_remainder):
            raise ValueError(
                f"{spec.origin}: {source} is {size!r}, and the records of split '{split}' hold "
                f"{files.prebatch} rows; leave {flag} at 0, the loader finds out, and correct "
                "the metadata"
            )
