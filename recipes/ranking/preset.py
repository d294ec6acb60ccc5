"""Presets of DLRM and DCNv2: `small`, and MLPerf's benchmark."""

import math
from collections.abc import Callable
from pathlib import Path

from config import criteo_multi_hot, flag_file
from config.command_line import read_flags
from config.presets import Selection
from config.sections.data import is_drawn_from_flags
from config.sections.optimizer import OPTIMIZERS
from recipes import small_preset
from recipes.small_preset import FEW_SAMPLES, PATIENCE, choose_schedule, power_of_two

# Number of training samples from which on `auto` is `terabyte`: the warm-up of the published
# settings, 8,000 steps of 65,536 samples.
TERABYTE_FROM = 8_000 * 65_536

# Samples below which trainings that stop early have a constant rate, their most epochs, and epochs
# in a row without a lower log loss after which they stop.
_STOPPED_BELOW, _STOPPED_EPOCHS, _STOPPED_PATIENCE = 100_000, 60, 8
# Samples up to which all weights have the whole decay. With more, an epoch has more steps, and they
# decay by the same share per epoch: those of DCNv2 but its tables, or all weights without rare ids.
_FULL_DECAY = 4_000
_ROWS_PER_ID = 100  # on average; with fewer, a feature has rare ids

_MLPERF = Path(__file__).resolve().parents[1] / "presets/mlperf.flags"


def _describe_small() -> dict[str, str]:
    few = f"below {_STOPPED_BELOW:,} samples with early stopping"
    rates = ", ".join(f"{kind.default_rate:g} with {name}" for name, kind in OPTIMIZERS.items())
    rates += f"; half of it from 30,000 samples on {few}"
    return {
        **small_preset.SCHEDULE,
        **small_preset.STOPPING,
        "metric": "log_loss, with --keep_best; ndcg@k with --loss listwise or pairwise",
        "optimizer": "adam",
        "embedding_optimizer": f"adam {few}",
        "learning_rate": rates,
        "embedding_learning_rate": "that of --embedding_optimizer, if it is passed",
        "batch_size": f"256 {few}; else about 1.5 * sqrt(samples), a power of 2",
        "epochs": f"at most {_STOPPED_EPOCHS} {few}; else 12 below 1,500 samples, falling to 1 "
        "from a million on",
        "early_stopping": f"{_STOPPED_PATIENCE} epochs {few}; else {PATIENCE}; with --keep_best",
        "warmup_steps": f"0 {few}; else 5 % of the steps",
        "decay_start_step": f"0 {few}; else the end of the warm-up",
        "decay_steps": f"0, a constant rate, {few}; else until the end of the training",
        "weight_decay": f"2 below 30,000 samples; 1 from there on {few}. With --interaction cross, "
        f"or {_ROWS_PER_ID} samples per id in each feature, {few}: at most {2 * _FULL_DECAY:,} / "
        f"samples, from 30,000 on {4 * _FULL_DECAY:,} / samples",
        "embedding_weight_decay": f"with --interaction cross {few}, if a feature has fewer than "
        f"{_ROWS_PER_ID} samples per id: 2 below 30,000 samples, else 1",
        "dropout_rate": f"0.2 {few}",
        "epsilon": f"0.0001 {few}, with --optimizer adam",
        "numerical_embedding": "bins where the data set's encoder has them, unless --variant "
        "nvidia",
        "wide": "on, unless --variant nvidia",
        "embedding_dim": "16",
        "bottom_mlp_dims": "64,32,16; 512,256,64,16 from 10 million samples on",
        "top_mlp_dims": "128,64,1; 512,256,1 from 10 million samples on",
        "num_cross_layers": "2; 3 from 10 million samples on",
        "cross_layer_projection_dim": "32; 64 from 10 million samples on",
    }


SMALL = _describe_small()


def choose_small(
    values: Selection,
    num_samples: int,
    held_out: Callable[[int], int] | None = None,
    has_bins: bool = False,
    largest_table: float = math.inf,
) -> None:
    """Sets the flags of DLRM and DCNv2: Adam, small layers, first-order terms.

    With few samples and early stopping, the rate is constant and weights decay: the best number of
    epochs differs between data sets. Otherwise there are about sqrt(samples) steps per epoch, and
    the rate decays until the end of a number of epochs that suits most data sets.

    Args:
        largest_table: ids of the feature that has most.
    """
    metric = "log_loss"
    if values["training_loss"] != metric:  # a loss of groups
        metric = f"ndcg@{values['group_cutoffs'][0]}"
    num_samples = small_preset.choose_stopping(values, num_samples, held_out, metric)
    values.set(optimizer="adam")
    dense = OPTIMIZERS[values["optimizer"]]
    tables = OPTIMIZERS.get(values["embedding_optimizer"], dense)  # dense: auto
    has_one_rate = dense.default_rate == tables.default_rate
    uses_adam = has_one_rate and values["optimizer"] == "adam"
    if values["variant"] != "nvidia":
        values.set(wide=True, **({"numerical_embedding": "bins"} if has_bins else {}))
    stops = bool(values["early_stopping"]) and num_samples < _STOPPED_BELOW
    # Ids of rare values need more decay of the weights where there are few samples.
    share = 0.5 if stops and num_samples >= FEW_SAMPLES else 1.0
    values.set(learning_rate=share * dense.default_rate)
    has_other_rate = values.is_other("learning_rate", share * dense.default_rate)
    if not has_one_rate and not has_other_rate:
        values.set(embedding_learning_rate=share * tables.default_rate)
    has_default_rate = num_samples < FEW_SAMPLES and not has_other_rate
    if uses_adam and (stops or has_default_rate):
        has_rare_ids = num_samples < _ROWS_PER_ID * largest_table
        _choose_decay(values, num_samples, share, stops, has_rare_ids)
    if stops:
        patience = _STOPPED_PATIENCE * values["evals_per_epoch"]
        values.set(early_stopping=patience, epochs=_STOPPED_EPOCHS, dropout_rate=0.2)
        values.set(batch_size=power_of_two(256, num_samples))
        if dense.of_tables:
            values.set(embedding_optimizer=values["optimizer"])  # rare ids decay, too
            # Adam would move the row of a rare id as far as those of frequent ones. Its gradients
            # are small, and an epsilon above them keeps it from learning its samples by heart.
            values.set(epsilon=1e-4)
    else:
        batch_size = power_of_two(1.5 * math.sqrt(num_samples), num_samples)
        values.set(batch_size=batch_size, epochs=_epochs(num_samples))
    schedule = {"decay_start_step", "decay_steps", "decay_power"}
    if stops and not schedule & set(values.pinned):
        values.set(warmup_steps=0, decay_start_step=0, decay_steps=0)
    else:
        choose_schedule(num_samples, values)
    _choose_sizes(num_samples, values)


def _choose_decay(
    values: Selection, num_samples: int, share: float, stops: bool, has_rare_ids: bool
) -> None:
    """Sets the decay of weights, against overfitting.

    Args:
        share: factor on the rate of the optimizer.
    """
    decay = 2.0 * share
    # A step decays weights by this times the rate: a share below 1.
    rate = max(values["learning_rate"], values["embedding_learning_rate"] or 0)
    if decay * rate >= 1:
        return
    is_cross = values["interaction"] == "cross"
    if stops and (is_cross or not has_rare_ids) and "weight_decay" not in values.pinned:
        if has_rare_ids:
            values.set(embedding_weight_decay=decay)  # they need all of it
        # An epoch decays weights by samples * share * decay, up to a constant factor.
        decay = min(decay, round(2 * _FULL_DECAY / (num_samples * share), 2))
    values.set(weight_decay=decay)


def _epochs(num_samples: int) -> int:
    """Returns the number of epochs: one epoch of few samples has too few steps."""
    for limit, epochs in ((1_500, 12), (4_000, 6), (30_000, 4), (300_000, 3), (1_000_000, 2)):
        if num_samples < limit:
            return epochs
    return 1


def _choose_sizes(num_samples: int, values: Selection) -> None:
    """Sets layer sizes; from 10 million samples on those of Naumov et al. for Criteo Kaggle."""
    large = num_samples >= 10_000_000
    bottom = (512, 256, 64) if large else (64, 32)
    width = "16"
    if values["interaction"] == "cross":
        values.set(num_cross_layers=3 if large else 2)
        values.set(cross_layer_projection_dim=64 if large else 32)
    elif "bottom_mlp_dims" in values.pinned and values["bottom_mlp_dims"]:
        width = str(values["bottom_mlp_dims"][-1])  # dot products need equal widths
    values.set(embedding_dim=width)
    if (width := values["embedding_dim"].split(",")[0].strip()).isdigit():
        bottom = (*bottom, int(width))
    values.set(bottom_mlp_dims=bottom, top_mlp_dims=(512, 256, 1) if large else (128, 64, 1))


def choose_mlperf(values: Selection) -> None:
    """Sets the flags of MLPerf's DLRM-DCNv2 (`recipes/presets/mlperf.flags`); synthetic samples
    have the features of its data."""
    config = values.config
    stored, names = read_flags(flag_file.read(_MLPERF), config.definition)
    settings = {name: stored[name] for name in stored if name in names - {"preset"}}
    target_auc = settings.pop("auc_threshold")
    values.set(**settings)
    values.set(valid_batch_size=values["batch_size"])
    if values["evals_per_epoch"]:
        values.set(auc_threshold=target_auc)
    if is_drawn_from_flags(config) and "synthetic_dataset_cardinalities" not in values.pinned:
        values.set(
            synthetic_dataset_cardinalities=criteo_multi_hot.CARDINALITIES,
            synthetic_dataset_hotness=criteo_multi_hot.HOTNESS,
            synthetic_dataset_num_numerical_features=13,
        )
