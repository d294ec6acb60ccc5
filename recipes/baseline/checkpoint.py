"""Metrics of a checkpoint on the rows of a baseline."""

from __future__ import annotations

import time
from pathlib import Path

from deployment.model.trained_model import evaluation_rows, open_checkpoint, restored_model
from nn.metrics.evaluator import ClickEvaluator
from recipes.baseline.comparison import BaselineRow

_BATCH_ROWS = 1 << 16


def measure_checkpoint(path: Path, dataset_path: Path, split: str) -> BaselineRow:
    """Returns the metrics of a checkpoint, or of the best or newest one of a folder.

    Raises:
        ValueError: the checkpoint cannot be read, or is that of another data set.
    """
    start = time.perf_counter()
    trained = open_checkpoint(str(path), str(dataset_path))
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
