"""Flags of the data set."""

import functools
from dataclasses import dataclass

from config.flag import FIXED, OWN, TRAIN, Need, Rules, Values, excludes, requires
from config.sections.evaluation import evaluates

_STORED = requires("dataset_type", "tf_raw", "split_tfrecords")
_SYNTHETIC = requires("dataset_type", "synthetic")
_DRAWN = (_SYNTHETIC, excludes("synthetic_dataset_use_feature_spec"))


def is_drawn_from_flags(flags: Values) -> bool:
    """Returns whether the samples are synthetic and their features are those of the flags."""
    return all(need.holds(flags) for need in _DRAWN)


_HAS_FEATURE_SPEC = Need(
    "with --dataset_type tf_raw, split_tfrecords or --synthetic_dataset_use_feature_spec",
    lambda flags: not is_drawn_from_flags(flags),
)
_drawn = functools.partial(Rules, resume=FIXED, part="ranking", used_with=_DRAWN)


@dataclass(frozen=True)
class DataConfig:
    """Data set and input pipeline."""

    dataset_path: str | None = Rules(is_local=True, used_with=(_HAS_FEATURE_SPEC,)).flag(
        None, "folder of the data set, which holds the feature spec"
    )
    feature_spec: str = Rules(used_with=(_HAS_FEATURE_SPEC,)).flag(
        "feature_spec.yaml", "file name of the feature spec in --dataset_path"
    )
    dataset_type: str = Rules(
        resume=FIXED, choices=("tf_raw", "split_tfrecords", "synthetic"), part="ranking"
    ).flag(
        "tf_raw",
        "format of the data set; tf_raw: split binary files; split_tfrecords: prebatched "
        "TFRecords, also with variable hotness; synthetic: samples generated on the fly, labelled "
        "by a known teacher",
    )
    eval_mapping: str = Rules(
        choices=("auto", "train", "validation", "test"), read_when=evaluates, used_with=(_STORED,)
    ).flag(
        "auto",
        "split to evaluate on; auto is validation (else test) during training and for --mode "
        "importance, and test (else validation) in the other modes",
    )
    shuffle: bool = Rules(resume=FIXED, part="clicks", modes=TRAIN, used_with=(_STORED,)).flag(
        True,
        "shuffle the training samples; the order differs in each epoch and is a function of "
        "--seed; --noshuffle reads them in file order",
    )
    prefetch_batches: int = Rules(resume=OWN, at_least=0, part="clicks").flag(
        2, "batches read ahead of the training step"
    )


@dataclass(frozen=True)
class SyntheticConfig:
    """Synthetic data set (--dataset_type synthetic)."""

    synthetic_dataset_train_batches: int = Rules(
        resume=FIXED, at_least=1, part="ranking", modes=TRAIN, used_with=(_SYNTHETIC,)
    ).flag(64008, "training batches of the synthetic data set")
    synthetic_dataset_valid_batches: int = Rules(
        at_least=1, part="ranking", used_with=(_SYNTHETIC,)
    ).flag(1350, "validation batches of the synthetic data set")
    synthetic_dataset_cardinalities: tuple[int, ...] = _drawn(at_least=1).flag(
        (1000,) * 26, "rows of each table of the synthetic data set"
    )
    synthetic_dataset_hotness: tuple[int, ...] = _drawn(at_least=1).flag(
        (1,), "ids per sample of each synthetic feature; a single value applies to all features"
    )
    synthetic_dataset_alpha: float = _drawn(at_least=0).flag(
        1.1, "exponent of the power law of synthetic ids, P(id=k) ~ (k+1)^-alpha; 0 is uniform"
    )
    synthetic_dataset_num_numerical_features: int = _drawn(at_least=0).flag(
        13, "numerical features of the synthetic data set"
    )
    synthetic_dataset_use_feature_spec: bool = Rules(
        resume=FIXED, part="ranking", used_with=(_SYNTHETIC,)
    ).flag(False, "take the features from --dataset_path; the file is --feature_spec")


def check_dataset_path(flags: Values) -> None:
    """Raises ValueError if samples must be read and no folder is named."""
    reads_data = flags.family.reads_data(flags) and not is_drawn_from_flags(flags)
    if flags.value("dataset_path") or not reads_data:
        return
    alternative = ""
    if flags.has("dataset_type"):
        alternative = ", or train on generated samples with --dataset_type synthetic"
    raise ValueError(
        "--dataset_path is missing: pass the folder of a prepared data set, the --output of a "
        f"preparation such as preproc.transcode{alternative}"
    )
