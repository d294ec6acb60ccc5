"""Table and picture of a comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recipes.baseline.after_training import PICTURE, RESULTS
from recipes.baseline.comparison import BaselineRow, BaselineTask
from runtime.files.outputs import output_file
from runtime.logs.plots import make_figure, set_labels, write_picture

_SIMPLE, _CHECKPOINT = "#9db4cc", "#c8501e"


def header(task: BaselineTask) -> str:
    """Returns the first line of the table."""
    columns = "".join(f"{name:>{_width(name)}}" for name in task.metrics)
    return f"{'model':<22}{columns}{'seconds':>9}  settings"


def line(row: BaselineRow, task: BaselineTask) -> str:
    """Returns the line of a model."""
    texts = (f"{row.metrics[name]:.5f}" if name in row.metrics else "-" for name in task.metrics)
    columns = "".join(
        f"{text:>{_width(name)}}" for name, text in zip(task.metrics, texts, strict=True)
    )
    return f"{row.model:<22}{columns}{row.elapsed_s:>9.1f}  {row.settings}".rstrip()


def _width(name: str) -> int:
    return max(len(name), 7) + 2


def verdict(
    task: BaselineTask, rows: Sequence[BaselineRow], checkpoint: BaselineRow | None
) -> str | None:
    """Returns the difference between the checkpoint and the best simple model, in words, or that it
    is undefined; None without a checkpoint."""
    metric = task.metrics[0]
    if any(math.isnan(row.metrics.get(metric, 0)) for row in rows):
        return f"note: {metric} is undefined on the {task.split} split: the models are not compared"
    if checkpoint is None:
        return None
    best = max((row for row in rows if metric in row.metrics), key=lambda row: row.metrics[metric])
    gap = checkpoint.metrics[metric] - best.metrics[metric]
    text = f"{metric} of the checkpoint less that of {best.model}, the best simple model"
    return f"{text}: {gap:+.5f}"


def write(
    folder: Path, task: BaselineTask, rows: Sequence[BaselineRow], checkpoint: BaselineRow | None
) -> list[Path]:
    """Writes results and picture; returns their files.

    Raises:
        OSError: a file cannot be written.
    """
    results = {
        "split": task.split,
        "description": task.description,
        "models": [asdict(row) for row in rows],
        "checkpoint": None if checkpoint is None else asdict(checkpoint),
    }
    with output_file(folder / RESULTS) as stream:
        stream.write(json.dumps(results, indent=1).encode())
    draw(folder / PICTURE, task, rows, checkpoint)
    return [folder / RESULTS, folder / PICTURE]


def draw(
    path: Path, task: BaselineTask, rows: Sequence[BaselineRow], checkpoint: BaselineRow | None
) -> None:
    """Draws a panel for each of the first two metrics."""
    shown = [*rows, *([checkpoint] if checkpoint else [])]
    metrics = task.metrics[:2]
    figure = make_figure(5.5 * len(metrics), 1.4 + 0.36 * len(shown))
    panels: Any = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        points = [row for row in shown if math.isfinite(row.metrics.get(metric, math.nan))]
        values = [row.metrics[metric] for row in points]
        colours = [_CHECKPOINT if row is checkpoint else _SIMPLE for row in points]
        names = [row.model for row in points]
        axes.scatter(values, names, color=colours, s=50, zorder=3)
        for name, value in zip(names, values, strict=True):
            place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{value:.4f}", (value, name), **place)
        axes.margins(x=0.25, y=0.1)
        axes.invert_yaxis()
        set_labels(axes, metric.replace("_", " "), f"{task.split} split", "")
    write_picture(figure, path)
