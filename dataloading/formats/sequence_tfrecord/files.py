"""Record files of a split of a data set of histories.

A record is a tf.train.Example with one int64 list per feature. It holds one sample, or a prebatch:
those of several samples one after the other. The records of a file hold the same number of samples,
the last one possibly fewer.
"""

import numpy as np

from dataloading.formats.sequence_tfrecord.decode import count_values
from dataloading.formats.tfrecord.index import RecordIndex
from dataloading.pipeline.columns import Column
from dataloading.spec.feature_spec import FeatureSpec

# Of a split; those of training and evaluation are well below the 1,024 of a process.
_MAPPED_FILES = 128


def open_records(spec: FeatureSpec, split: str, counted: Column) -> RecordIndex:
    """Opens the files of a split.

    The number of samples per record is counted in the first and the last record of each file; the
    others are checked when they are decoded.

    Args:
        counted: a column of one value per sample.

    Raises:
        ValueError: a file is missing, truncated, damaged, or has other records.
    """
    spec.validate_files(split)
    (chunk,) = spec.source_spec[split]
    where = f"{spec.origin}: mapping '{split}'"
    index = RecordIndex(spec.base_directory, chunk.files, where, _MAPPED_FILES)

    def count(record: int) -> int:
        num_samples = count_values(
            *index.read(np.array([record])), counted, lambda _, row: index.location(record, row)
        )
        if num_samples == 0:
            raise ValueError(
                f"{index.location(record)} has no values of feature '{counted.feature}'; correct "
                "the names in the feature spec, or write the file again"
            )
        return num_samples

    num_samples = np.zeros(index.num_records, np.int64)
    for file in np.unique(index.files):
        records = np.flatnonzero(index.files == file)
        num_samples[records] = count(records[0])
        num_samples[records[-1]] = count(records[-1])
    index.set_num_rows(num_samples)
    return index
