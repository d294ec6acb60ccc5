"""`--preset small` of NeuMF, GMF and MLP."""

import math

from config.help import format_value
from config.presets import Selection
from recipes import small_preset
from recipes.small_preset import choose_schedule, power_of_two

# Number of interactions from which on `auto` is `terabyte`: the published settings were tuned on 20
# million (ML-20M).
TERABYTE_FROM = 10_000_000

_SETTINGS = {
    "negative_samples": 8,
    "beta1": 0.9,
    "beta2": 0.999,
    "factors": 128,
    "layers": (64, 32, 16),
}
# Below 300,000 interactions, and from there on.
_FEW = {"epochs": 20, "dropout": 0.5, "embedding_optimizer": "adam"}
_FEW_RATES = {
    "learning_rate": 0.001,
    "embedding_learning_rate": 0.01,
    "weight_decay": 0.35,
}
_MANY = {"epochs": 10, "dropout": 0.2, "negative_exponent": 0.3}
_MANY_RATES = {
    "learning_rate": 0.002,
    "embedding_learning_rate": 0.02,
    "weight_decay": 0.3,
}
_ALL_MANY = _MANY | _MANY_RATES
# Weight decay of few interactions where users and items have fewer than this on average. Validation
# HR@10 with it instead of 0.35: .387 instead of .362 with 3.2 per user and item; .619 instead of
# .606 with 4.0 (measured with 0.6 and with 1); .725 instead of .751 with 9.6, .794 instead of .832
# with 15.
_SPARSE_BELOW, _SPARSE_DECAY = 6, 0.7

SMALL = {
    **small_preset.SCHEDULE,
    "keep_best": "on, unless test samples are evaluated",
    "batch_size": "about 10.7 * sqrt(rows) and at most rows / 64, a power of 2",
    "negative_exponent": "0.3 from 300,000 interactions on",
    **{name: format_value(value) for name, value in _SETTINGS.items()},
    **{
        name: f"{value}; {_ALL_MANY.get(name, 'auto')} from 300,000 interactions on"
        for name, value in (_FEW | _FEW_RATES).items()
    },
    "weight_decay": f"{_SPARSE_DECAY} below {_SPARSE_BELOW} interactions per user and item, else "
    f"{_FEW_RATES['weight_decay']}; {_MANY_RATES['weight_decay']} from 300,000 interactions on",
}


def choose_small(
    values: Selection, num_samples: int, num_ids: int = 0, validates: bool = False
) -> None:
    """Sets the flags of NeuMF, GMF and MLP. Batches contain interactions and drawn negatives.

    Args:
        values: the flags.
        num_samples: interactions of the training split.
        num_ids: users and items; 0 if unknown.
        validates: whether a validation split is evaluated.
    """
    values.set(**_SETTINGS)
    if validates and values["evals_per_epoch"]:
        values.set(keep_best=True)
    num_rows = num_samples * (1 + values["negative_samples"])
    few = num_samples < 300_000
    values.set(
        batch_size=power_of_two(min(10.7 * math.sqrt(num_rows), num_rows / 64), num_rows),
        **(_FEW if few else _MANY),
    )
    rates = _FEW_RATES if few else _MANY_RATES
    if not values.is_other("learning_rate", rates["learning_rate"]):
        values.set(**rates)
        if few and num_samples < _SPARSE_BELOW * num_ids:
            values.set(weight_decay=_SPARSE_DECAY)
    choose_schedule(num_rows, values, values["grads_accumulated"])
