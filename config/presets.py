"""Presets: values of flags for a data set or a benchmark.

The defaults of the flags are the published settings for large data sets (`--preset terabyte`). With
them, smaller data sets would have batches larger than the data set, or end within the warm-up:
`--preset small` is computed from the number of training samples. `--preset mlperf` is the setting
of a benchmark, whatever the data set.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

from config import criteo_multi_hot, flag_file
from config.command_line import read_flags
from config.config import Config
from config.flag import COLLABORATIVE, RANKING, SEQUENTIAL
from config.sections.data import is_drawn_from_flags
from config.sections.run import AUTO, MLPERF, SMALL, TERABYTE

# Number of training samples from which on `auto` is `terabyte`.
_TERABYTE_FROM = {
    # The warm-up of the published settings: 8,000 steps of 65,536 samples.
    **dict.fromkeys(RANKING, 8_000 * 65_536),
    # The published settings were tuned on 20 million interactions (ML-20M) and on Amazon Books.
    **dict.fromkeys(SEQUENTIAL + COLLABORATIVE, 10_000_000),
}

# Learning rates of the small preset by optimizer.
_RANKING_RATES = {"adam": 0.002, "lazy_adam": 0.002, "adagrad": 0.02, "sgd": 0.5}
# Training samples below which DLRM, DCNv2 and SIM have stronger regularization.
_FEW_SAMPLES = 30_000
# Below `_FEW_SAMPLES`, and from there on.
_FEW_EVENTS = {"epochs": 12, "learning_rate": 0.01, "weight_decay": 1.0, "dropout_rate": 0.5}
_MANY_EVENTS = {"epochs": 3, "learning_rate": 0.02, "weight_decay": 0.0, "dropout_rate": 0.5}
_COLLABORATIVE = {
    "negative_samples": 8,
    "beta1": 0.9,
    "beta2": 0.999,
    "factors": 128,
    "layers": (64, 32, 16),
}
# Below 300,000 interactions, and from there on.
_FEW_INTERACTIONS = {"epochs": 20, "dropout": 0.5, "embedding_optimizer": "adam"}
_FEW_INTERACTIONS_RATES = {
    "learning_rate": 0.001,
    "embedding_learning_rate": 0.01,
    "weight_decay": 0.35,
}
_MANY_INTERACTIONS = {"epochs": 10, "dropout": 0.2, "negative_exponent": 0.3}
_MANY_INTERACTIONS_RATES = {
    "learning_rate": 0.002,
    "embedding_learning_rate": 0.02,
    "weight_decay": 0.3,
}

# Samples below which DLRM and DCNv2 that stop early have a constant rate, their most epochs, and
# epochs in a row without a lower log loss after which they stop.
_STOPPED_BELOW, _STOPPED_EPOCHS, _STOPPED_PATIENCE = 100_000, 60, 8
# Evaluations in a row without a better metric after which DLRM, DCNv2 and SIM stop.
_PATIENCE = 4

_MLPERF = Path(__file__).resolve().parents[1] / "recipes/presets/mlperf.flags"


class Choice(NamedTuple):
    """Preset chosen for a data set, the flags it sets, and the reason."""

    preset: str
    values: dict[str, Any]
    reason: str

    def __str__(self) -> str:
        values = ", ".join(f"{name} {_text(value)}" for name, value in self.values.items())
        return f"preset {self.preset} ({self.reason}): {values or 'no flag is changed'}"


class _Selection:
    """Values of all flags; those that are not pinned can be set."""

    def __init__(self, config: Config, pinned: Collection[str]):
        self._config, self.pinned = config, pinned
        self.chosen: dict[str, Any] = {}

    def set(self, **values: Any) -> None:
        self.chosen |= {k: v for k, v in values.items() if k not in self.pinned}

    def __getitem__(self, name: str) -> Any:
        return self.chosen.get(name, self._config.value(name))


def apply(
    config: Config,
    count: Callable[[], int | None],
    pinned: Collection[str],
    held_out: Callable[[int], int] | None = None,
    has_bins: bool = False,
) -> Config:
    """Returns the flags with the values of `--preset`, and with a sentence on it (`preset_note`).

    `count`, which returns the number of training samples, is called only if it decides; the other
    arguments are those of `choose`.
    """
    num_samples = None if config.run.preset in (TERABYTE, MLPERF) else count()
    choice = choose(config, num_samples, pinned, held_out, has_bins)
    config = dataclasses.replace(config, preset_note=str(choice))
    return config.with_values({"preset": choice.preset, **choice.values})


def choose(
    config: Config,
    num_samples: int | None,
    pinned: Collection[str],
    held_out: Callable[[int], int] | None = None,
    has_bins: bool = False,
) -> Choice:
    """Chooses the values of the flags that are not pinned.

    Args:
        num_samples: samples (NCF: interactions) of the training split; None if unknown, for which
            the preset is `terabyte`.
        pinned: names of flags that keep their value: those of the command line, or of a checkpoint.
        held_out: returns the number of training samples, of their number, that a training with
            early stopping evaluates and does not train on; None: the training has no validation
            samples, and is not stopped early.
        has_bins: whether the data set's encoder has bins of its numerical features.
    """
    preset, limit = config.run.preset, _TERABYTE_FROM[config.flag_set]
    values = _Selection(config, pinned)
    if preset == TERABYTE:
        return Choice(TERABYTE, {}, "as requested")
    if preset == MLPERF:
        _choose_mlperf(values, is_drawn_from_flags(config))
        return Choice(MLPERF, values.chosen, "as requested")
    if num_samples is None:
        return Choice(TERABYTE, {}, "the number of training samples is unknown")
    reason = f"{num_samples:,} training samples"
    if preset == AUTO:
        reason += f", {'fewer than' if num_samples < limit else 'at least'} {limit:,}"
        if num_samples >= limit:
            return Choice(TERABYTE, {}, reason)
    if held_out is not None:
        _choose_stopping(config.flag_set, values)
        if values["early_stopping"]:
            num_samples -= held_out(num_samples)
    if config.flag_set in RANKING:
        _choose_ranking(num_samples, values, has_bins)
    elif config.flag_set in SEQUENTIAL:
        _choose_sequential(num_samples, values)
    else:
        _choose_collaborative(num_samples, values)
    return Choice(SMALL, values.chosen, reason)


def describe_small(flag_set: str) -> dict[str, str]:
    """Returns the rule by which `small` sets each flag, for `--help`."""
    texts = {
        "epochs": "falls with the number of samples",
        "learning_rate": "0.002",
        "warmup_steps": "5 % of the steps",
        "decay_start_step": "the end of the warm-up",
        "decay_steps": "until the end of the training",
        "decay_power": "1",
    }
    if flag_set not in COLLABORATIVE:
        texts |= {
            "keep_best": "on, unless --auc_threshold is set or test samples are evaluated",
            "early_stopping": f"{_PATIENCE}, with --keep_best",
            "metric": "log_loss, with --keep_best; ndcg@k with --loss listwise or pairwise"
            if flag_set in RANKING
            else "auc, with --keep_best",
        }
    if flag_set in RANKING:
        return texts | _describe_ranking()
    if flag_set in SEQUENTIAL:
        return texts | {
            "batch_size": "about 2.5 * sqrt(samples) and at most samples / 48, a power of 2",
            "valid_batch_size": "--batch_size",
            "history_product": "on with --variant paper",
            "user_dropout_rate": "0.9; 0 from 30,000 samples on, or with --variant nvidia",
            **{
                name: f"{value:g}; {_MANY_EVENTS[name]:g} from 30,000 samples on"
                for name, value in _FEW_EVENTS.items()
            },
            "dropout_rate": f"{_FEW_EVENTS['dropout_rate']:g}",
        }
    many = _MANY_INTERACTIONS | _MANY_INTERACTIONS_RATES
    return texts | {
        "batch_size": "about 10.7 * sqrt(rows) and at most rows / 64, a power of 2",
        "negative_exponent": "0.3 from 300,000 interactions on",
        **{name: _text(value) for name, value in _COLLABORATIVE.items()},
        **{
            name: f"{_text(value)}; {_text(many.get(name, 'auto'))} from 300,000 interactions on"
            for name, value in (_FEW_INTERACTIONS | _FEW_INTERACTIONS_RATES).items()
        },
    }


def _describe_ranking() -> dict[str, str]:
    few = f"below {_STOPPED_BELOW:,} samples with early stopping"
    rates = ", ".join(f"{rate:g} with {name}" for name, rate in _RANKING_RATES.items())
    rates += f"; half of it from 30,000 samples on {few}"
    return {
        "optimizer": "adam",
        "embedding_optimizer": f"adam {few}",
        "learning_rate": rates,
        "batch_size": f"256 {few}; else about 1.5 * sqrt(samples), a power of 2",
        "epochs": f"at most {_STOPPED_EPOCHS} {few}; else 12 below 1,500 samples, falling to 1 "
        "from a million on",
        "early_stopping": f"{_STOPPED_PATIENCE} epochs {few}; else {_PATIENCE}; with --keep_best",
        "warmup_steps": f"0 {few}; else 5 % of the steps",
        "decay_start_step": f"0 {few}; else the end of the warm-up",
        "decay_steps": f"0, a constant rate, {few}; else until the end of the training",
        "weight_decay": f"2 below 30,000 samples; 1 from there on {few}",
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


@functools.cache
def mlperf_settings() -> dict[str, Any]:
    """Returns the settings of MLPerf Training's DLRM-DCNv2, `recipes/presets/mlperf.flags`."""
    values, names = read_flags(flag_file.read(_MLPERF), "dcnv2", {}, {})
    return {name: value for name, value in values.items() if name in names - {"preset"}}


def _choose_mlperf(values: _Selection, draws_samples: bool) -> None:
    """Sets the flags of MLPerf's DLRM-DCNv2; synthetic samples have the features of its data."""
    settings = dict(mlperf_settings())
    target_auc = settings.pop("auc_threshold")
    values.set(**settings)
    values.set(valid_batch_size=values["batch_size"])
    if values["evals_per_epoch"]:
        values.set(auc_threshold=target_auc)
    if draws_samples and "synthetic_dataset_cardinalities" not in values.pinned:
        values.set(
            synthetic_dataset_cardinalities=criteo_multi_hot.CARDINALITIES,
            synthetic_dataset_hotness=criteo_multi_hot.HOTNESS,
            synthetic_dataset_num_numerical_features=13,
        )


def _choose_stopping(flag_set: str, values: _Selection) -> None:
    """Sets the flags that keep the best model and stop early.

    The metric is the log loss, or the NDCG of the losses of groups. That of SIM is the AUC, which
    rises longer than the log loss falls: on few samples the best AUC was .673 after 8 epochs, and
    .658 at the best log loss, after 2.

    `--nokeep_best` leaves them out, and so does `--auc_threshold`, which is another rule to stop.
    """
    is_off = values["keep_best"] is False or values["auc_threshold"] is not None
    if values["evals_per_epoch"] and not is_off:
        metric = "auc" if flag_set in SEQUENTIAL else "log_loss"
        if values["training_loss"] != "log_loss":
            metric = f"ndcg@{values['group_cutoffs'][0]}"
        values.set(keep_best=True, early_stopping=_PATIENCE, metric=metric)


def _choose_ranking(num_samples: int, values: _Selection, has_bins: bool) -> None:
    """Sets the flags of DLRM and DCNv2: Adam, small layers, first-order terms.

    With few samples and early stopping, the rate is constant and weights decay: the best number of
    epochs differs between data sets. Otherwise there are about sqrt(samples) steps per epoch, and
    the rate decays until the end of a number of epochs that suits most data sets.
    """
    default_rate = not {"optimizer", "learning_rate"} & set(values.pinned)
    values.set(optimizer="adam")
    if values["variant"] != "nvidia":
        values.set(wide=True, **({"numerical_embedding": "bins"} if has_bins else {}))
    stops = bool(values["early_stopping"]) and num_samples < _STOPPED_BELOW
    # Ids of rare values need more decay of the weights where there are few samples.
    share = 0.5 if stops and num_samples >= _FEW_SAMPLES else 1.0
    values.set(learning_rate=share * _RANKING_RATES[values["optimizer"]])
    if default_rate and (stops or num_samples < _FEW_SAMPLES):
        # Against overfitting. A step decays weights by this times the learning rate, so that the
        # two are chosen together.
        values.set(weight_decay=2.0 * share)
    if stops:
        patience = _STOPPED_PATIENCE * values["evals_per_epoch"]
        values.set(early_stopping=patience, epochs=_STOPPED_EPOCHS, dropout_rate=0.2)
        values.set(batch_size=_power_of_two(256, num_samples))
        if values["optimizer"] == "adam":
            values.set(embedding_optimizer="adam")  # rare ids decay, too
            # Adam would move the row of a rare id as far as those of frequent ones. Its gradients
            # are small, and an epsilon above them keeps it from learning its samples by heart.
            values.set(epsilon=1e-4)
    else:
        batch_size = _power_of_two(1.5 * math.sqrt(num_samples), num_samples)
        values.set(batch_size=batch_size, epochs=_epochs(num_samples))
    schedule = {"epochs", "decay_start_step", "decay_steps", "decay_power"}
    if stops and not schedule & set(values.pinned):
        values.set(warmup_steps=0, decay_start_step=0, decay_steps=0)
    else:
        _choose_schedule(num_samples, values)
    _choose_ranking_sizes(num_samples, values)


def _epochs(num_samples: int) -> int:
    """Returns the number of epochs: one epoch of few samples has too few steps."""
    for limit, epochs in ((1_500, 12), (4_000, 6), (30_000, 4), (300_000, 3), (1_000_000, 2)):
        if num_samples < limit:
            return epochs
    return 1


def _choose_ranking_sizes(num_samples: int, values: _Selection) -> None:
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


def _choose_sequential(num_samples: int, values: _Selection) -> None:
    """Sets the flags of SIM, DIEN and DIN."""
    settings = dict(_FEW_EVENTS if num_samples < _FEW_SAMPLES else _MANY_EVENTS)
    if "learning_rate" in values.pinned or values["variant"] == "nvidia":
        # A step decays weights by this times the learning rate; with NVIDIA's formulas by this.
        del settings["weight_decay"]
    values.set(
        batch_size=_power_of_two(min(2.5 * math.sqrt(num_samples), num_samples / 48), num_samples),
        **settings,
    )
    if values["model_type"] != "no_history" and values["variant"] == "paper":
        values.set(history_product=True)
        if num_samples < _FEW_SAMPLES:
            values.set(user_dropout_rate=0.9)
    values.set(valid_batch_size=values["batch_size"])
    _choose_schedule(num_samples * max(1, values["repeat_count"]), values)


def _choose_collaborative(num_samples: int, values: _Selection) -> None:
    """Sets the flags of NeuMF, GMF and MLP. Batches contain interactions and drawn negatives."""
    values.set(**_COLLABORATIVE)
    num_rows = num_samples * (1 + values["negative_samples"])
    few = num_samples < 300_000
    values.set(
        batch_size=_power_of_two(min(10.7 * math.sqrt(num_rows), num_rows / 64), num_rows),
        **(_FEW_INTERACTIONS if few else _MANY_INTERACTIONS),
    )
    if "learning_rate" not in values.pinned:
        values.set(**(_FEW_INTERACTIONS_RATES if few else _MANY_INTERACTIONS_RATES))
    _choose_schedule(num_rows, values)


def _choose_schedule(num_rows: int, values: _Selection) -> None:
    """Sets a warm-up of 5 % of the steps, then linear decay until the end of the last epoch.

    `--max_steps` shortens the warm-up and not the decay: a training that it stops can be resumed.
    """
    batch = values["batch_size"] * values["grads_accumulated"]
    steps = values["epochs"] * -(-num_rows // batch)
    max_steps = steps if values["max_steps"] == -1 else min(steps, values["max_steps"])
    values.set(warmup_steps=max_steps // 20)
    start = min(values["warmup_steps"], steps)
    if "decay_steps" in values.pinned:
        start = max(start, steps - values["decay_steps"])
    values.set(decay_start_step=start)
    values.set(decay_steps=max(1, steps - values["decay_start_step"]), decay_power=1.0)


def _power_of_two(target: float, limit: int) -> int:
    """Returns the power of two nearest to `target` on a logarithmic scale, at most `limit`."""
    return 1 << max(0, min(round(math.log2(target)), int(math.log2(limit))))


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
