"""`--preset small` of SIM, DIEN and DIN."""

import math
from collections.abc import Callable

from config.presets import Selection
from recipes import small_preset
from recipes.small_preset import FEW_SAMPLES, choose_schedule, power_of_two

# Number of training samples from which on `auto` is `terabyte`: the published settings were tuned
# on Amazon Books.
TERABYTE_FROM = 10_000_000

# Below `FEW_SAMPLES`, and from there on.
_FEW = {"epochs": 12, "learning_rate": 0.01, "weight_decay": 1.0, "dropout_rate": 0.5}
_MANY = {"epochs": 3, "learning_rate": 0.02, "weight_decay": 0.0, "dropout_rate": 0.5}
# Samples below which a model without history that stops early has the epochs of few samples.
# Validation AUC after 3 epochs, and the best one of 12: .826 and .837 with 102,000 samples, .731
# and .744 with 156,000. DIN (one seed each) gained on one log, .824 and .833, and lost on another,
# .858 and .854.
_STOPPED_BELOW = 1_000_000

SMALL = {
    **small_preset.SCHEDULE,
    **small_preset.STOPPING,
    "metric": "auc, with --keep_best",
    "batch_size": "about 2.5 * sqrt(samples) and at most samples / 48, a power of 2",
    "valid_batch_size": "--batch_size",
    "history_product": "on with --variant paper",
    "user_dropout_rate": "0.9; 0 from 30,000 samples on, or with --variant nvidia",
    **{name: f"{value:g}; {_MANY[name]:g} from 30,000 samples on" for name, value in _FEW.items()},
    "epochs": f"{_FEW['epochs']}; {_MANY['epochs']} from 30,000 samples on, of no_history with "
    "early stopping from a million on",
    "dropout_rate": f"{_FEW['dropout_rate']:g}",
}


def choose_small(
    values: Selection, num_samples: int, held_out: Callable[[int], int] | None = None
) -> None:
    """Sets the flags of SIM, DIEN and DIN.

    The metric is the AUC, which rises longer than the log loss falls: on few samples the best AUC
    was .673 after 8 epochs, and .658 at the best log loss, after 2.
    """
    num_samples = small_preset.choose_stopping(values, num_samples, held_out, "auc")
    settings = dict(_FEW if num_samples < FEW_SAMPLES else _MANY)
    has_history = values["model_type"] != "no_history"
    if values["early_stopping"] and num_samples < _STOPPED_BELOW and not has_history:
        settings["epochs"] = _FEW["epochs"]
    has_other_rate = values.is_other("learning_rate", settings["learning_rate"])
    if has_other_rate or values["variant"] == "nvidia":
        # A step decays weights by this times the learning rate; with NVIDIA's formulas by this.
        del settings["weight_decay"]
    values.set(
        batch_size=power_of_two(min(2.5 * math.sqrt(num_samples), num_samples / 48), num_samples),
        **settings,
    )
    if has_history and values["variant"] == "paper":
        values.set(history_product=True)
        if num_samples < FEW_SAMPLES:
            values.set(user_dropout_rate=0.9)
    values.set(valid_batch_size=values["batch_size"])
    choose_schedule(num_samples * max(1, values["repeat_count"]), values)
