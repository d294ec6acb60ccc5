"""Metrics of a checkpoint on the rows of a baseline."""

from __future__ import annotations

import time

from deployment.model.trained_model import TrainedModel, evaluation_rows, restored_model
from nn.metrics.evaluator import ClickEvaluator
from recipes.baseline.comparison import BaselineRow, BaselineTask

_BATCH_ROWS = 1 << 16


def measure_checkpoint(trained: TrainedModel, task: BaselineTask) -> BaselineRow:
    """Returns the metrics of a checkpoint.

    Raises:
        ValueError: the checkpoint or the data set cannot be read.
    """
    start = time.perf_counter()
    batch_rows = trained.config.run.valid_batch_size or _BATCH_ROWS
    dataset = evaluation_rows(trained, batch_rows, task.split)
    evaluator = (task.evaluator or ClickEvaluator)(restored_model(trained), dataset)
    metrics = dict(evaluator.evaluate())
    return BaselineRow(
        trained.config.model_name, trained.path.resolve().name, metrics, time.perf_counter() - start
    )
