"""Metrics of a checkpoint on the rows of a baseline."""

from __future__ import annotations

import time

from deployment.model.trained_model import TrainedModel, evaluation_rows, restored_model
from nn.metrics.evaluator import ClickEvaluator
from recipes.baseline.comparison import BaselineRow

_BATCH_ROWS = 1 << 16


def measure_checkpoint(trained: TrainedModel, split: str) -> BaselineRow:
    """Returns the metrics of a checkpoint.

    Raises:
        ValueError: the checkpoint or the data set cannot be read.
    """
    start = time.perf_counter()
    dataset = evaluation_rows(trained, trained.config.run.valid_batch_size or _BATCH_ROWS, split)
    model = restored_model(trained)
    if (make := trained.family.evaluator) is not None:
        evaluator = make(trained.config, model, dataset)
    else:
        evaluator = ClickEvaluator(model, dataset)
    metrics = dict(evaluator.evaluate())
    return BaselineRow(
        trained.recipe, trained.path.resolve().name, metrics, time.perf_counter() - start
    )
