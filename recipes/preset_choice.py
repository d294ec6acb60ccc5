"""Values of flags that `--preset` chooses for a data set."""

import functools

from config import presets
from config.checkpoint_flags import shape_flags
from config.config import Config
from dataloading.row_count import count_training_samples
from dataloading.spec.feature_spec import FeatureSpec
from runtime.checkpoint import Index


def with_preset(
    config: Config, spec: FeatureSpec | None, saved: Index | None = None, resumes: bool = False
) -> Config:
    """Returns the flags with the values that `--preset` chooses for a data set.

    Flags of the command line, or of the model of a checkpoint (`saved`), keep their values; so do
    all flags of a training that `resumes`.
    """
    if not resumes and (saved is None or config.run.mode == "train"):
        count = functools.partial(_count_training_samples, config, spec)
        facts = config.family.preset_facts(config, spec) if spec else {}
        config = presets.apply(config, count, _pinned_flags(config, saved), **facts)
    if config.run.mode == "train":
        config.family.check_weight_decay(config)
    return config


def _pinned_flags(config: Config, saved: Index | None) -> set[str]:
    pinned = set(config.explicit)
    if saved is not None:
        pinned |= shape_flags(saved.description)
    if config.data.dataset_type == "synthetic":
        pinned.add("batch_size")  # the number of samples depends on it
    return pinned


def _count_training_samples(config: Config, spec: FeatureSpec | None) -> int | None:
    """Returns the samples of the training split; None if they cannot be counted."""
    if config.data.dataset_type == "synthetic":
        return config.synthetic.synthetic_dataset_train_batches * config.run.batch_size
    if spec is None:  # --batch_sizes reads no data set
        return None
    try:
        return count_training_samples(spec, config.data.dataset_type == "split_tfrecords")
    except ValueError:
        if config.distribution.plan_only:  # a plan needs no samples
            return None
        raise
