"""TFRecords of users, items and histories through `tf.data`: the format of NVIDIA's SIM."""

import itertools
from collections.abc import Sequence

import numpy as np

from dataloading.formats.sequence_tfrecord.channels import num_ids, prebatch_key, sequence_channels
from dataloading.formats.sequence_tfrecord.decode import Column
from dataloading.formats.sequence_tfrecord.files import RecordFiles
from dataloading.formats.sequence_tfrecord.row_cache import DecodedRows
from dataloading.pipeline.batch import Batch, SequenceInputs
from dataloading.pipeline.row_dataset import Columns, RowDataset
from dataloading.pipeline.shuffle import BlockShuffle, FileOrder
from dataloading.spec.feature_spec import TRAIN, FeatureSpec, smallest_id_dtype

# Rows that are shuffled fully; of more, each batch mixes rows of this many from anywhere.
_WINDOW_ROWS = 262_144
# Single rows that are neighbours on the disk and stay together in a window: 64 KiB or so.
_BLOCK_ROWS = 64
_CACHE_LIMIT_BYTES = 4 << 30


class SequenceTFRecordDataset(RowDataset):
    """The rows of one mapping of a data set of histories, `Batch`es of `SequenceInputs`.

    Batches do not depend on whether records hold single rows or prebatches, on their sizes, or on
    the cache. Without `shuffle` rows come in file order. With it the order is new in each pass over
    the data and a function of (seed, epoch, pass) and the size of the prebatches: these are
    permuted (blocks of 64 rows where there are none), then the rows within windows of 262,144
    rows (of a prebatch where that is more).

    Every row is checked when it is decoded: ids must lie in [0, `num_ids`) and labels be 0 or 1,
    histories not be longer than the spec says, with padding (zeros) in front only and at the same
    steps in all histories of the row. Another row ends the iteration with
    `tf.errors.InvalidArgumentError`; `failure` then holds a sentence that names file and record.

    Args:
        spec: with the channels of `sequence_channels` and one chunk of type `tfrecord`.
        mapping: e.g. `train`.
        with_labels: False reads no labels: `Batch.labels` is None and the channel may be absent.
        with_negatives: False reads no negative histories, which are half of the ids; only an
            auxiliary loss needs them. `SequenceInputs.negative` is `()` then.
        batch_size, rank, world_size, prefetch_batches: see `RowDataset`.
        parallel_reads: see `RowDataset`. Rows are decoded, and copied from the buffer, under one
            lock: for one of these batches at a time.
        drop_remainder: leaves out the rows of the epoch's last batch if that would be short; with
            `shuffle` others in each epoch.
        repeat_count: passes over the data that make an epoch; 0 is 1. `num_rows` counts all.
        cache: keeps rows in memory once they are decoded, in the smallest dtypes that hold their
            ids: `cache_bytes` when all are there, e.g. 1.2 KB a row for 400 ids of which half need
            4 bytes and half 2; on each rank, because a shuffle gives a rank other rows each time.
            Where it would be more than `cache_limit_bytes`, and without it, rows are decoded
            anew in each pass: prebatches that a shuffle uses stay, two windows of them.
        prebatch_size: what the caller believes the files to hold: rows of a prebatch, 0 or 1 for
            single rows. None: whatever they hold.

    Attributes:
        split: the mapping.
        cached: whether all rows are kept once they are decoded.
        cache_bytes: memory that this takes or would take.

    Raises:
        ValueError: the spec or a file is not as described here, there are no rows, or an argument
            is out of range.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        mapping: str,
        batch_size: int,
        *,
        with_labels: bool = True,
        with_negatives: bool = True,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        prefetch_batches: int = 2,
        parallel_reads: int = 2,
        drop_remainder: bool = False,
        repeat_count: int = 0,
        cache: bool = True,
        cache_limit_bytes: int = _CACHE_LIMIT_BYTES,
        prebatch_size: int | None = None,
    ):
        channels = sequence_channels(
            spec, (mapping,), with_labels=with_labels, with_negatives=with_negatives
        )
        inputs = SequenceInputs(
            channels.user,
            channels.target,
            channels.positive,
            channels.negative if with_negatives else (),
        )
        self._sizes = tuple(map(len, inputs))
        self.split = mapping
        columns = [_id_column(spec, f) for features in inputs for f in features]
        columns += [Column(feature, 1, None, np.dtype(np.int8)) for feature in channels.label]
        files = RecordFiles(spec, mapping, _id_column(spec, channels.target[0]))
        _check_prebatch(spec, mapping, files, prebatch_size)
        if files.num_rows == 0:
            raise ValueError(f"{spec.origin}: source_spec: mapping '{mapping}' has no rows")
        if repeat_count < 0:
            raise ValueError(f"repeat_count is {repeat_count}; allowed: 0 or more")
        self._passes = max(1, repeat_count)
        self._rows_of_pass = files.num_rows
        num_rows = self._passes * files.num_rows
        window = max(1, _WINDOW_ROWS // files.prebatch) * files.prebatch
        if shuffle:
            block = files.prebatch if files.prebatch > 1 else _BLOCK_ROWS
            self._order = BlockShuffle(files.num_rows, seed, block, window)
        else:
            self._order = FileOrder()
        super().__init__(
            num_rows,
            batch_size,
            Columns(
                numerical=(),
                categorical=tuple((c.dtype, c.width) for c in columns if c.cardinality),
                label=columns[-1].dtype if channels.label else None,
            ),
            rank=rank,
            world_size=world_size,
            prefetch_batches=prefetch_batches,
            parallel_reads=parallel_reads,
        )
        if drop_remainder:
            self.num_rows -= num_rows % batch_size
            if self.num_rows == 0:
                raise ValueError(
                    f"{spec.origin}: mapping '{mapping}' has {num_rows} rows, fewer than the "
                    f"global batch of {batch_size}, and drop_remainder leaves out short batches: "
                    "no row is left. Use a smaller batch, or keep the remainder"
                )
        self.cache_bytes = files.num_rows * sum(c.width * c.dtype.itemsize for c in columns)
        self.cached = cache and self.cache_bytes <= cache_limit_bytes
        if self.cached:
            num_kept = files.num_records
        elif files.prebatch > 1:
            # Batches that are read at the same time are of two windows at most, or neighbours.
            num_kept = 2 * ((window if shuffle else batch_size) // files.prebatch + 1)
        else:
            num_kept = -(-batch_size // world_size)  # nothing is read twice
        self._rows = DecodedRows(files, columns, num_kept)

    def _read(self, epoch: int, start: int, stop: int, wanted: Sequence[int]) -> list[np.ndarray]:
        rows = []
        while start < stop:
            number, begin = divmod(start, self._rows_of_pass)
            end = min(self._rows_of_pass, begin + stop - start)
            found = self._order.rows(epoch * self._passes + number, begin, end)
            rows.append(np.arange(begin, end) if isinstance(found, slice) else found)
            start += end - begin
        return self._rows.take(np.concatenate([np.empty(0, np.int64), *rows]), wanted)

    def _to_batch(self, arrays: dict, weights) -> Batch:
        batch = super()._to_batch(arrays, weights)
        ids = iter(batch.inputs.categorical)
        channels = (tuple(itertools.islice(ids, size)) for size in self._sizes)
        return batch._replace(inputs=SequenceInputs(*channels))


def count_rows(spec: FeatureSpec, mapping: str, feature: str) -> int:
    """Returns the rows of a split, counted by a feature of one value per row."""
    return RecordFiles(spec, mapping, _id_column(spec, feature)).num_rows


def _id_column(spec: FeatureSpec, feature: str) -> Column:
    ids = num_ids(spec, feature)
    return Column(feature, spec.hotness(feature), ids, smallest_id_dtype(ids))


def _check_prebatch(
    spec: FeatureSpec, mapping: str, files: RecordFiles, believed: int | None
) -> None:
    """Raises ValueError where the files hold other prebatches than the metadata or a flag says."""
    key = prebatch_key(mapping)
    flag = "--prebatch_train_size" if mapping == TRAIN else "--prebatch_test_size"
    said = {f"metadata: {key}": spec.metadata.get(key), flag: believed}
    for who, size in said.items():
        if size is None:
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"{spec.origin}: {who} is {size!r}; allowed: a whole number from 0 on")
        rows = max(1, size)
        # Fewer rows than a prebatch are one record, the remainder.
        fits = files.prebatch <= rows if files.num_records <= 1 else files.prebatch == rows
        if not fits:
            raise ValueError(
                f"{spec.origin}: {who} is {size}, and the records of mapping '{mapping}' hold "
                f"{files.prebatch} rows; leave {flag} at 0, the loader finds out, and correct "
                "what the metadata says"
            )
