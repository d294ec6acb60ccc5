"""Chunks of a data set opened by their types."""

import importlib
from collections.abc import Sequence

from dataloading.formats.split_tfrecords.folder_format import CHUNK_TYPE as RECORDS
from dataloading.formats.split_tfrecords.open_records import length_faults
from dataloading.pipeline.chunk_reader import OpenChunk
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from dataloading.spec.history_channels import has_histories
from dataloading.spec.rules import listing

# Type of a chunk -> the module whose `READER` opens it. Of `dataloading.spec.rules.CHUNK_TYPES`,
# only histories have `ragged_binary`, and no tool reads `csv`.
_MODULES = {
    "split_binary": "dataloading.formats.raw_binary",
    "torch_tensor": "dataloading.formats.torch_tensor",
    "tfrecord": "dataloading.formats.split_tfrecords.open_records",
}
FIXED_TYPES = tuple(name for name in _MODULES if name != RECORDS)
# Types of the chunks of a data set by its format, a value of --dataset_type.
TYPES_OF_FORMATS = {"tf_raw": FIXED_TYPES, "split_tfrecords": (RECORDS,)}


def is_readable(spec: FeatureSpec, chunk: Chunk) -> bool:
    """Returns whether `open_chunk` reads a chunk.

    The type `tfrecord` is that of split TFRecords, and also that of histories, whose records hold
    all features of a row: they differ in the channels of the spec.
    """
    return chunk.type in _MODULES and not (chunk.type == RECORDS and has_histories(spec))


def open_chunk(spec: FeatureSpec, split: str, chunk: Chunk) -> OpenChunk:
    """Opens the files of a chunk.

    Raises:
        ValueError: files are damaged, or do not fit the spec, or no reader opens this type.
    """
    if not is_readable(spec, chunk):
        raise ValueError(
            f"{spec.origin}: source_spec: split '{split}': expected chunks of the types "
            f"{listing((*FIXED_TYPES, RECORDS))}, got {chunk.type} ({listing(chunk.files)})"
        )
    return importlib.import_module(_MODULES[chunk.type]).READER(spec, split, chunk)


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
