"""Samples of DLRM and DCNv2: stored ones, and ones that are generated from flags.

A training that stops early evaluates those of a split, or holds out the last ones of train.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.row_count import count_training_samples
from dataloading.spec import feature_spec as fs
from recipes import from_flags
from recipes.recipe import Dataset
from recipes.small_preset import evaluates_validation_split

# Generated samples over which the best reachable AUC is computed; its standard error is below 3e-4.
BEST_AUC_SAMPLES = 4_000_000


def spec_of_data(config: Config, spec: fs.FeatureSpec | None) -> fs.FeatureSpec:
    """Returns the feature spec of the samples; `spec` is that of the data set, if there is one."""
    data, synthetic = config.data, config.synthetic
    if data.dataset_type == "split_tfrecords":
        from dataloading.formats.split_tfrecords.folder_format import spec_of_folders

        assert spec is not None
        return spec_of_folders(spec)
    if data.dataset_type != "synthetic" or synthetic.synthetic_dataset_use_feature_spec:
        assert spec is not None
        return spec
    from dataloading.synthetic.rows import synthetic_spec

    hotness = synthetic.synthetic_dataset_hotness
    return synthetic_spec(
        synthetic.synthetic_dataset_cardinalities,
        hotness[0] if len(hotness) == 1 else hotness,
        synthetic.synthetic_dataset_alpha,
        synthetic.synthetic_dataset_num_numerical_features,
    )


def open_data(
    config: Config, spec: fs.FeatureSpec, world: World, features: list[int] | None = None
) -> tuple[Dataset | None, Dataset | None]:
    """Opens the samples to train on and those to evaluate.

    Args:
        config: the flags.
        spec: the data set.
        world: the ranks that share the samples.
        features: features that this rank reads for the whole batch; None: all, of its share.

    Returns:
        The training samples, None unless `--mode train`, and the samples to evaluate, None with
        `--evals_per_epoch 0`.
    """
    run, train = config.run, None
    load, train_options, valid_options = _loader(config)
    options = {
        "rank": world.rank,
        "world_size": world.size,
        "prefetch_batches": config.data.prefetch_batches,
        "global_features": features,
    }
    held_out = held_out_samples(config, spec)
    if held_out is not None:
        train_options |= {"samples": range(held_out.start)}
    if run.mode == "train":
        train = load(spec, fs.TRAIN, run.batch_size, **train_options, **options)
        if not config.evaluation.evals_per_epoch:
            return train, None
    if held_out is not None:
        valid = load(spec, fs.TRAIN, run.valid_batch_size, samples=held_out, **options)
        valid.split = fs.VALIDATION
        return train, valid
    if config.data.dataset_type == "synthetic":
        split = fs.VALIDATION if run.mode == "train" else fs.TEST
    else:
        split = from_flags.evaluation_split(config.data.eval_mapping, run.mode, spec)
    return train, load(spec, split, run.valid_batch_size, **valid_options, **options)


def _loader(config: Config) -> tuple[Callable[..., Dataset], dict[str, Any], dict[str, Any]]:
    """Returns the loader of the format, and its options for training and for evaluation."""
    data, run, synthetic = config.data, config.run, config.synthetic
    if data.dataset_type == "synthetic":
        from dataloading.synthetic.dataset import SyntheticDataset

        sizes = (
            synthetic.synthetic_dataset_train_batches * run.batch_size,
            synthetic.synthetic_dataset_valid_batches * (run.valid_batch_size or run.batch_size),
        )
        train, valid = ({"seed": run.seed, "num_samples": size} for size in sizes)
        return SyntheticDataset, train, valid
    window = config.family_flags.shuffle_window_rows
    order = {"shuffle": data.shuffle, "seed": run.seed, "window_samples": window}
    labels = {"with_labels": run.mode != "predict"}
    from dataloading.formats.open_chunk import TYPES_OF_FORMATS
    from dataloading.formats.stored_dataset import StoredDataset

    types = TYPES_OF_FORMATS[data.dataset_type]
    return functools.partial(StoredDataset, types=types), order, labels


def best_auc(
    config: Config, spec: fs.FeatureSpec, valid: Dataset | None
) -> Callable[[], float | None]:
    """Returns a function for the best AUC that any model can reach on samples of `valid`."""
    if valid is None:
        return lambda: None
    if config.data.dataset_type == "synthetic":
        from dataloading.synthetic.dataset import SyntheticDataset

        seed = config.run.seed
        assert seed is not None
        num_samples = min(valid.num_samples, BEST_AUC_SAMPLES)
        sample = SyntheticDataset(
            spec, valid.split, valid.batch_size, num_samples=num_samples, seed=seed
        )
        return lambda: sample.best_auc
    # Generated data sets store it, see `dataloading.synthetic.dataset.write_dataset`.
    stored = spec.metadata.get(valid.split)
    value = stored.get("best_auc") if isinstance(stored, dict) else None
    return lambda: value


def held_out(config: Config, spec: fs.FeatureSpec) -> Callable[[int], int] | None:
    """Returns the function that counts the training samples which a training with early stopping
    holds out, of their number: a tenth without a validation split, else 0.

    None: it cannot stop by its evaluations, which are of test samples or of generated ones.
    """
    if config.run.mode == "train" and _can_hold_out(config, spec):
        return lambda num_samples: max(1, num_samples // 10)
    is_stored = config.data.dataset_type != "synthetic"
    return (lambda _: 0) if is_stored and evaluates_validation_split(config, spec) else None


def held_out_samples(config: Config, spec: fs.FeatureSpec) -> range | None:
    """Returns the training samples that this training holds out; None without any.

    The flags decide, also those of a resumed training, whatever its `--evals_per_epoch` is.
    """
    stops_early = config.run.mode == "train" and config.evaluation.early_stopping is not None
    if not stops_early or not _can_hold_out(config, spec):
        return None
    num_samples = count_training_samples(spec) or 0
    return range(num_samples - max(1, num_samples // 10), num_samples)


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


def _can_hold_out(config: Config, spec: fs.FeatureSpec) -> bool:
    is_read = config.data.dataset_type == "tf_raw"
    has_split = fs.VALIDATION in spec.source_spec or fs.TRAIN not in spec.source_spec
    return is_read and not has_split and config.data.eval_mapping == "auto"
