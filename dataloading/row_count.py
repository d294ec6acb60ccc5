"""Number of training samples, whatever the files are."""

from dataloading.formats.open_chunk import open_chunks
from dataloading.formats.split_tfrecords.folder_format import spec_of_folders
from dataloading.histories.dataset import count_samples
from dataloading.spec.feature_spec import LABEL_CHANNEL, TRAIN, FeatureSpec
from dataloading.spec.history_channels import POSITIVE_CHANNEL


def count_training_samples(spec: FeatureSpec, split_tfrecords: bool = False) -> int | None:
    """Returns the samples of the training split; None if the data set has none.

    Only the files of the label, or of one feature of interactions and histories, have to be there.

    Args:
        spec: the data set.
        split_tfrecords: it holds split TFRecords, which its source_spec need not name.

    Raises:
        ValueError: a file is missing or incomplete.
    """
    if split_tfrecords:
        spec = spec_of_folders(spec)
    chunks = spec.source_spec.get(TRAIN)
    if not chunks:
        return None
    if POSITIVE_CHANNEL in spec.channel_spec:
        return count_samples(spec, TRAIN)
    labels = spec.channel_spec.get(LABEL_CHANNEL, ())
    index = next((i for i, c in enumerate(chunks) if set(labels) & set(c.features)), 0)
    return open_chunks(spec, TRAIN, [index])[1]
