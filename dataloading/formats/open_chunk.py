"""Files of a chunk opened by its type."""

from dataloading.formats import raw_binary, torch_tensor
from dataloading.formats.split_tfrecords import folder_format
from dataloading.formats.split_tfrecords.open_records import RecordChunk
from dataloading.pipeline.chunk_reader import OpenChunk
from dataloading.spec.feature_spec import Chunk, FeatureSpec
from dataloading.spec.history_channels import has_histories

_TYPES = (raw_binary.CHUNK_TYPE, torch_tensor.TENSOR_CHUNK_TYPE, folder_format.CHUNK_TYPE)


def is_readable(spec: FeatureSpec, chunk: Chunk) -> bool:
    """Returns whether `open_chunk` reads a chunk.

    The type `tfrecord` is that of split TFRecords, and also that of histories, whose records hold
    all features of a row: they differ in the channels of the spec.
    """
    if chunk.type == folder_format.CHUNK_TYPE and has_histories(spec):
        return False
    return chunk.type in _TYPES


def open_chunk(spec: FeatureSpec, split: str, chunk: Chunk) -> OpenChunk:
    """Opens the files of a chunk that `is_readable`.

    Raises:
        ValueError: files are damaged, or do not fit the spec.
    """
    if chunk.type == folder_format.CHUNK_TYPE:
        return RecordChunk(spec, split, chunk)
    if chunk.type == torch_tensor.TENSOR_CHUNK_TYPE:
        return torch_tensor.TensorChunk(spec, chunk)
    assert chunk.type == raw_binary.CHUNK_TYPE, chunk.type
    return raw_binary.BinaryChunk(spec, chunk)
