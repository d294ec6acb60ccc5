"""Pictures of a run as PNG: the learning curve and the ROC curve.

matplotlib is imported when a picture is drawn, and without pyplot, whose global state stays the
caller's. Runs draw in a process of its own (`draw`).
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_TRAIN, _VALIDATION, _QUIET = "#9db4cc", "#1f5fa8", "#999999"
_BEST = "#c8501e"


def draw(kind: str, path: str | Path, **content) -> None:
    """Draws in a process of its own, so that matplotlib's 30 MiB are not added to this one's.

    Args:
        kind: "learning_curve" or "roc_curve", with the arguments of that function; numbers may be
            NumPy's.

    Raises:
        OSError: it could not be drawn or written, with the process's last words.
    """
    plain = json.dumps(content, default=lambda value: value.tolist())
    done = subprocess.run(
        [sys.executable, "-m", "runtime.plots", kind, os.path.abspath(path)],
        input=plain,
        cwd=Path(__file__).resolve().parent.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{path} could not be drawn: {done.stderr.strip().splitlines()[-1:]}")


def learning_curve(path: str | Path, history: Mapping[str, Sequence[tuple[float, float]]]):
    """Writes the loss, and the quality on held-out rows where there is one, against the step.

    Args:
        path: the PNG; its folder is made, and the file appears under its name only when it is
            whole.
        history: (step, value) pairs under "train_loss", "validation_loss" and a metric of which
            more is better, such as "validation_auc"; any may be missing, and values that are not
            finite are left out.

    Raises:
        ValueError: a name that is not one of these.
    """
    losses = ("train_loss", "validation_loss")
    others = sorted(set(history) - set(losses))
    if len(others) > 1 or not all(name.startswith("validation_") for name in others):
        raise ValueError(
            f"learning_curve: the history holds {others}; "
            'allowed are "train_loss", "validation_loss" and one metric like "validation_auc"'
        )
    metric = others[0] if others else "validation_auc"
    train, validation, quality = (
        [(step, value) for step, value in history.get(name, ()) if math.isfinite(value)]
        for name in (*losses, metric)
    )
    figure = _figure(10 if quality else 5.5, 4)
    axes = figure.subplots(1, 2 if quality else 1, squeeze=False)[0]
    if train:
        axes[0].plot(*zip(*train, strict=True), color=_TRAIN, linewidth=1.2, label="training")
    if validation:
        axes[0].plot(
            *zip(*validation, strict=True),
            "o-",
            color=_VALIDATION,
            markersize=3,
            label="validation",
        )
        _mark_best(axes[0], *min(validation, key=lambda point: point[1]))
    _label(axes[0], "Loss", "training step", "log loss [nats]")
    if quality:
        axes[1].plot(
            *zip(*quality, strict=True), "o-", color=_VALIDATION, markersize=3, label="validation"
        )
        _mark_best(axes[1], *max(quality, key=lambda point: point[1]))
        name = metric.removeprefix("validation_")
        _label(axes[1], "Quality", "training step", "ROC AUC" if name == "auc" else name)
    _write(figure, Path(path))


def roc_curve(path: str | Path, fpr: Sequence[float], tpr: Sequence[float], auc: float):
    """Writes the ROC curve through (fpr, tpr), as nn.metrics gives them, with its area.

    Where the AUC is NaN (one class only) the picture says that there is no curve.

    Raises:
        ValueError: fpr and tpr of different lengths.
    """
    if len(fpr) != len(tpr):
        raise ValueError(
            f"roc_curve: fpr and tpr must be equally long, received {len(fpr)} and {len(tpr)}"
        )
    figure = _figure(4.8, 4.8)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], "--", color=_QUIET, linewidth=1, label="chance, AUC 0.5")
    if math.isnan(auc):
        axes.text(0.5, 0.6, "no curve: labels of one class only", ha="center", color=_BEST)
    else:
        axes.plot(fpr, tpr, color=_VALIDATION, linewidth=1.8, label=f"model, AUC {auc:.5f}")
        axes.fill_between(fpr, tpr, color=_VALIDATION, alpha=0.08, linewidth=0)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    _label(axes, "ROC", "false positive rate", "true positive rate", loc="lower right")
    _write(figure, Path(path))


def _figure(width_inches, height_inches):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_inches, height_inches), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _mark_best(axes, step, value):
    axes.plot(
        [step],
        [value],
        "*",
        color=_BEST,
        markersize=13,
        label=f"best {value:.5f} at step {step:,}",
        zorder=3,
    )


def _label(axes, title, x, y, loc="best"):
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc=loc, frameon=False)


def _write(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(partial, format="png")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    kind, path = sys.argv[1:]
    {"learning_curve": learning_curve, "roc_curve": roc_curve}[kind](path, **json.load(sys.stdin))
