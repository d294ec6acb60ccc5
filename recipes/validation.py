"""Validation samples of a training that stops early: those of a split, or the last of train."""

from __future__ import annotations

from config import Config
from config.flag import COLLABORATIVE, RANKING
from dataloading.row_count import count_training_samples
from dataloading.spec.feature_spec import TRAIN, VALIDATION, FeatureSpec


def can_validate(config: Config, spec: FeatureSpec | None) -> bool:
    """Returns whether `--preset small` may stop a training by its evaluations: they are of
    validation samples, or can be of held-out training samples, never of test samples."""
    if spec is None or config.run.mode != "train" or config.evaluation.benchmark:
        return False
    if config.flag_set in COLLABORATIVE or config.data.dataset_type == "synthetic":
        return False
    has_split = VALIDATION in spec.source_spec and config.data.eval_mapping in ("auto", VALIDATION)
    return has_split or _can_hold_out(config, spec)


def count_held_out(config: Config, spec: FeatureSpec, num_samples: int) -> int:
    """Returns the number of the last training samples that a training with early stopping holds
    out for its evaluations: a tenth without a validation split, else 0."""
    return max(1, num_samples // 10) if _can_hold_out(config, spec) else 0


def held_out_samples(config: Config, spec: FeatureSpec) -> range | None:
    """Returns the training samples that this training holds out; None without any.

    The flags decide, also those of a resumed training, whatever its `--evals_per_epoch` is.
    """
    stops_early = config.run.mode == "train" and config.evaluation.early_stopping is not None
    if not stops_early or not _can_hold_out(config, spec):
        return None
    num_samples = count_training_samples(spec) or 0
    return range(num_samples - count_held_out(config, spec, num_samples), num_samples)


def note_held_out(config: Config, samples: range | None, remedy: str) -> str:
    """Returns a note on held-out training samples; "" without any.

    Args:
        config: the flags.
        samples: see `held_out_samples`.
        remedy: how to make a validation split.
    """
    if samples is None:
        return ""
    is_explicit = "early_stopping" in config.explicit
    switch = "without --early_stopping" if is_explicit else "with --nokeep_best"
    return (
        f"the data set has no validation split: the last {len(samples):,} of {samples.stop:,} rows "
        f"of train are held out to stop early and to choose the checkpoint; {switch} all are "
        f"trained on. For a validation split {remedy}"
    )


def _can_hold_out(config: Config, spec: FeatureSpec) -> bool:
    is_read = config.flag_set in RANKING and config.data.dataset_type == "tf_raw"
    has_split = VALIDATION in spec.source_spec or TRAIN not in spec.source_spec
    return is_read and not has_split and config.data.eval_mapping == "auto"
