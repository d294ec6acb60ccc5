"""Rules of `--preset small` that families share: early stopping, schedule, batch sizes."""

import math
from collections.abc import Callable

from config.config import Config
from config.presets import Selection
from dataloading.spec.feature_spec import VALIDATION, FeatureSpec

# Training samples below which DLRM, DCNv2 and SIM have stronger regularization.
FEW_SAMPLES = 30_000
# Evaluations in a row without a better metric after which DLRM, DCNv2 and SIM stop.
PATIENCE = 4

# Rules by which the preset sets each flag, for `--help`.
SCHEDULE = {
    "warmup_steps": "5 % of the steps",
    "decay_start_step": "the end of the warm-up",
    "decay_steps": "until the end of the training",
    "decay_power": "1",
}
STOPPING = {
    "keep_best": "on, unless --auc_threshold is set or test samples are evaluated",
    "early_stopping": f"{PATIENCE}, with --keep_best",
}


def evaluates_validation_split(config: Config, spec: FeatureSpec) -> bool:
    """Returns whether the run is a training that evaluates a validation split."""
    trains = config.run.mode == "train" and not config.evaluation.benchmark
    is_evaluated = config.data.eval_mapping in ("auto", VALIDATION)
    return trains and is_evaluated and VALIDATION in spec.source_spec


def choose_stopping(
    values: Selection, num_samples: int, held_out: Callable[[int], int] | None, metric: str
) -> int:
    """Sets the flags that keep the best model and stop early; returns the number of samples that
    are trained on.

    `--nokeep_best` leaves them out, and so does `--auc_threshold`, which is another rule to stop.

    Args:
        values: the flags.
        num_samples: number of training samples.
        held_out: returns the number of training samples, of their number, that a training with
            early stopping evaluates and does not train on; None: the training has no validation
            samples, and is not stopped early.
        metric: by which evaluations are compared.
    """
    if held_out is None:
        return num_samples
    is_off = values["keep_best"] is False or values["auc_threshold"] is not None
    if values["evals_per_epoch"] and not is_off:
        values.set(keep_best=True, early_stopping=PATIENCE, metric=metric)
    return num_samples - (held_out(num_samples) if values["early_stopping"] else 0)


def choose_schedule(num_rows: int, values: Selection, num_parts: int = 1) -> None:
    """Sets a warm-up of 5 % of the steps, then linear decay until the end of the last epoch.

    `--max_steps` shortens the warm-up and not the decay: a training that it stops can be resumed.
    A step has `num_parts` batches.
    """
    steps = values["epochs"] * -(-num_rows // (values["batch_size"] * num_parts))
    max_steps = steps if values["max_steps"] == -1 else min(steps, values["max_steps"])
    values.set(warmup_steps=max_steps // 20)
    start = min(values["warmup_steps"], steps)
    if "decay_steps" in values.pinned:
        start = max(start, steps - values["decay_steps"])
    values.set(decay_start_step=start)
    values.set(decay_steps=max(1, steps - values["decay_start_step"]), decay_power=1.0)


def power_of_two(target: float, limit: int) -> int:
    """Returns the power of two nearest to `target` on a logarithmic scale, at most `limit`."""
    return 1 << max(0, min(round(math.log2(target)), int(math.log2(limit))))
