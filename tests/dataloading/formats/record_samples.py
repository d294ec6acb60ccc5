"""Samples of split TFRecords, also of data sets whose feature spec does not name them."""

from dataloading.formats.open_chunk import TYPES_OF_FORMATS
from dataloading.formats.split_tfrecords.folder_format import spec_of_folders
from dataloading.formats.stored_dataset import StoredDataset


def open_samples(spec, *arguments, **options):
    types = TYPES_OF_FORMATS["split_tfrecords"]
    return StoredDataset(spec_of_folders(spec), *arguments, types=types, **options)
