"""Metrics of simple models, and of a checkpoint, on the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.config import Config
from dataloading.spec import feature_spec as fs
from dataloading.spec.feature_spec import FeatureSpec
from recipes.baseline.after_training import check_packages
from recipes.baseline.fitted import SimpleModel, constant, popularity, scores_over
from recipes.baseline.gradient_boosting import gradient_boosting
from recipes.baseline.logistic import logistic_regression
from recipes.baseline.sample_arrays import ClickSplit, read_fitting_rows
from recipes.from_flags import evaluation_split

if TYPE_CHECKING:
    from deployment.model.trained_model import TrainedModel

CLICK_METRICS = ("auc", "log_loss", "normalized_entropy")

_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class BaselineRow:
    """Metrics of a model.

    Attributes:
        model: name of the model.
        settings: those that were chosen, in words.
        metrics: name -> value; those that the model does not have are left out.
        elapsed_s: time of fitting and scoring.
    """

    model: str
    settings: str
    metrics: dict[str, float]
    elapsed_s: float


@dataclass(frozen=True)
class BaselineTask:
    """Data set and evaluated rows of a comparison.

    Attributes:
        split: the evaluated split.
        description: data, split and fitting in words.
        metrics: names of the metrics, first the one by which models are compared.
        models: functions that fit and measure a model; None: the data set has nothing for it.
        evaluator: makes the evaluator of a checkpoint's model over samples; None: of clicks.
    """

    split: str
    description: str
    metrics: tuple[str, ...]
    models: Sequence[Callable[[], BaselineRow | None]]
    evaluator: Callable[[Any, Any], Any] | None = None


def task(spec: FeatureSpec, config: Config, max_rows: int) -> BaselineTask:
    """Returns the comparison on a ranking data set; see `Family.baseline`.

    Raises:
        ValueError: the spec or a file does not fit, the labels of train are all equal, or a package
            is not installed.
    """
    check_packages()
    evaluated = ClickSplit(spec, evaluation_split("auto", "eval", spec))
    fitting = read_fitting_rows(spec, evaluated.split, max_rows)
    train, choosing = fitting.train, fitting.choosing
    if train.labels.all() or not train.labels.any():
        raise ValueError(
            f"{spec.origin}: expected labels of both classes in '{fs.TRAIN}', got "
            f"{int(train.labels[0])} in all rows: prepare the data with another split or label"
        )
    fits: tuple[Callable[[], SimpleModel | None], ...] = (
        lambda: constant(train),
        lambda: popularity(train, choosing),
        lambda: logistic_regression(train, choosing),
        lambda: gradient_boosting(train, choosing),
    )
    rows = f"{evaluated.split} split of {evaluated.num_rows:,} rows"
    models = [_measuring(fit, evaluated) for fit in fits]
    return BaselineTask(evaluated.split, f"{rows}; {fitting.description}", CLICK_METRICS, models)


def _measuring(
    fit: Callable[[], SimpleModel | None], evaluated: ClickSplit
) -> Callable[[], BaselineRow | None]:
    def measure() -> BaselineRow | None:
        start = time.perf_counter()
        model = fit()
        if model is None:
            return None
        blocks = ((model.logits(rows), rows.labels) for rows in evaluated.blocks())
        values = scores_over(blocks)._asdict()
        elapsed_s = time.perf_counter() - start
        chosen = {name: values[name] for name in CLICK_METRICS}
        return BaselineRow(model.name, model.settings, chosen, elapsed_s)

    return measure


def measure_checkpoint(trained: TrainedModel, task: BaselineTask) -> BaselineRow:
    """Returns the metrics of a checkpoint on the evaluated rows.

    Raises:
        ValueError: the checkpoint or the data set cannot be read.
    """
    from deployment.model.trained_model import evaluation_rows, restored_model
    from nn.metrics.evaluator import ClickEvaluator

    start, config = time.perf_counter(), trained.config
    dataset = evaluation_rows(trained, config.run.valid_batch_size or _BATCH_ROWS, task.split)
    evaluator = (task.evaluator or ClickEvaluator)(restored_model(trained), dataset)
    metrics = dict(evaluator.evaluate())
    name = trained.path.resolve().name
    return BaselineRow(config.model_name, name, metrics, time.perf_counter() - start)
