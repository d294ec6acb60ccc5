"""Chunks of a data set opened by their types."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dataloading.formats.raw_binary import BinaryChunk
from dataloading.formats.split_tfrecords.folder_format import CHUNK_TYPE as RECORDS
from dataloading.formats.split_tfrecords.folder_format import LENGTH_FILE, read_length
from dataloading.formats.split_tfrecords.open_records import RecordChunk
from dataloading.formats.torch_tensor import TensorChunk
from dataloading.pipeline.chunk_reader import ChunkReader, OpenChunk
from dataloading.pipeline.columns import Role
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from dataloading.spec.history_channels import has_histories
from dataloading.spec.rules import listing
from dataloading.spec.spans import spans_of

# Type of a chunk -> its reader. Of `dataloading.spec.rules.CHUNK_TYPES`, only histories have
# `ragged_binary`, and no tool reads `csv`.
_READERS: dict[str, Callable[[FeatureSpec, str, Chunk], OpenChunk]] = {
    "split_binary": BinaryChunk,
    "torch_tensor": TensorChunk,
    RECORDS: RecordChunk,
}
FIXED_TYPES = tuple(name for name in _READERS if name != RECORDS)
# Types of the chunks of a data set by its format, a value of --dataset_type.
TYPES_OF_FORMATS = {"tf_raw": FIXED_TYPES, "split_tfrecords": (RECORDS,)}


def is_readable(spec: FeatureSpec, chunk: Chunk) -> bool:
    """Returns whether `open_chunk` reads a chunk.

    The type `tfrecord` is that of split TFRecords, and also that of histories, whose records hold
    all features of a row: they differ in the channels of the spec.
    """
    return chunk.type in _READERS and not (chunk.type == RECORDS and has_histories(spec))


def open_chunk(spec: FeatureSpec, split: str, chunk: Chunk) -> OpenChunk:
    """Opens the files of a chunk.

    Raises:
        ValueError: files are damaged, or do not fit the spec, or no reader opens this type.
    """
    if not is_readable(spec, chunk):
        raise ValueError(
            f"{spec.origin}: source_spec: split '{split}': expected chunks of the types "
            f"{listing(_READERS)}, got {chunk.type} ({listing(chunk.files)})"
        )
    return _READERS[chunk.type](spec, split, chunk)


def open_chunks(
    spec: FeatureSpec, split: str, numbers: Sequence[int], checked: Sequence[int] | None = None
) -> tuple[dict[int, OpenChunk], int]:
    """Opens chunks of a split, at least one, and returns them by number, and their samples.

    Args:
        checked: numbers of the chunks whose files must be complete, those to open among them;
            None: those to open.

    Raises:
        ValueError: as of `open_chunk`, or chunks differ in their numbers of samples.
    """
    spec.validate_files(split, numbers if checked is None else checked)
    chunks = spec.source_spec[split]
    opened = {number: open_chunk(spec, split, chunks[number]) for number in numbers}
    for fault in length_faults(spec, split, opened):
        raise ValueError(fault)
    return opened, opened[numbers[0]].num_samples


def open_features(
    spec: FeatureSpec,
    split: str,
    roles: Mapping[str, Role],
    checked: Sequence[int] | None = None,
) -> ChunkReader:
    """Opens features of a split, each of which is a column.

    Args:
        roles: feature -> role, at least one.
        checked: see `open_chunks`.
    """
    spans = spans_of(spec, spec.source_spec[split])
    columns = [(role, spans[feature]) for feature, role in roles.items()]
    used = sorted({span.chunk for _, span in columns})
    return ChunkReader(spec, split, columns, *open_chunks(spec, split, used, checked))


def length_faults(spec: FeatureSpec, split: str, opened: Mapping[int, OpenChunk]) -> Iterator[str]:
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
        if not isinstance(chunk, RecordChunk):
            continue
        folder = (spec.base_directory / chunks[index].files[0]).parent.parent
        length = read_length(folder)
        if length not in (None, chunk.num_prebatches):
            yield (
                f"{folder / LENGTH_FILE} states {length} prebatches, and the files of feature "
                f"'{feature}' have {chunk.num_prebatches}; is a file missing or cut off? Or "
                "correct the number"
            )
