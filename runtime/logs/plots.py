"""Pictures of a run as PNG: the learning curve, and the ROC curve with calibration and scores.

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

from runtime.files.atomic import atomic_file

_TRAIN, _VALIDATION, _QUIET = "#9db4cc", "#1f5fa8", "#999999"
_BEST = "#c8501e"
_CLASSES = ("#7a8794", _VALIDATION)  # negatives, positives
_METRICS = {"auc": "ROC AUC"}


def draw(kind: str, path: str | Path, **content) -> None:
    """Draws in a process of its own, so that matplotlib's 30 MiB are not added to this one's.

    Args:
        kind: "learning_curve" or "evaluation", with the arguments of that function; numbers may be
            NumPy's.

    Raises:
        OSError: it could not be drawn or written, with the process's last words.
    """
    plain = json.dumps(content, default=lambda value: value.tolist())
    done = subprocess.run(
        [sys.executable, "-m", "runtime.logs.plots", kind, os.path.abspath(path)],
        input=plain,
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{path} could not be drawn: {done.stderr.strip().splitlines()[-1:]}")


def learning_curve(
    path: str | Path,
    history: Mapping[str, Sequence[tuple[float, float]]],
    best_reachable_auc: float | None = None,
    split: str = "validation",
):
    """Writes the loss, and the quality on evaluated rows where there is one, against the step.

    Args:
        path: the PNG; its folder is made, and the file appears under its name only when it is
            whole.
        history: (step, value) pairs under "train_loss", "validation_loss" and a metric of which
            more is better, such as "validation_auc"; any may be missing, and values that are not
            finite are left out. A training loss is the mean since the pair before.
        best_reachable_auc: of the rows that were evaluated, where it is known.
        split: name of the split that was evaluated, whatever the names in `history` begin with.

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
    train = join_short_means(train)
    figure = _figure(10 if quality else 5.5, 4)
    axes = figure.subplots(1, 2 if quality else 1, squeeze=False, sharex=True)[0]
    if train:
        style = {"color": _TRAIN, "linewidth": 1.2, "markersize": 4}
        form = "-" if len(train) > 1 else "o"  # a line of one point would not be seen
        axes[0].plot(*zip(*train, strict=True), form, label="training", **style)
    if validation:
        _plot_points(axes[0], validation, split)
        _mark_best(axes[0], *min(validation, key=lambda point: point[1]))
    if top := loss_limit([*train, *validation]):
        axes[0].set_ylim(top=top)
    _label(axes[0], "Loss", "training step", "log loss [nats]", loc="upper right")
    if quality:
        name = _METRICS.get(metric := metric.removeprefix("validation_"), metric.upper())
        _plot_points(axes[1], quality, split)
        _mark_best(axes[1], *max(quality, key=lambda point: point[1]))
        if best_reachable_auc is not None and metric == "auc":
            label = f"best reachable {best_reachable_auc:.5f}"
            axes[1].axhline(best_reachable_auc, color=_QUIET, ls="--", linewidth=1, label=label)
        _label(axes[1], name, "training step", name, loc="lower right")
    if train or validation:
        _count_steps(axes[0])
    _write(figure, Path(path))


def join_short_means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Joins means over few steps with their neighbours, so that the curve has no bumps there.

    The value of a pair is the mean over the steps since the pair before. A loss is read at every
    evaluation, too: some means are over few steps, and noisy. Pairs are joined until they cover
    the median number of steps, or a quarter of all steps so far where these are fewer.
    """
    if len(points) < 2:
        return list(points)
    starts = [0, *(step for step, _ in points[:-1])]
    lengths = [step - start for start, (step, _) in zip(starts, points, strict=True)]
    median = sorted(lengths)[len(lengths) // 2]
    joined, total, covered = [], 0.0, 0
    for length, (step, value) in zip(lengths, points, strict=True):
        total, covered = total + length * value, covered + length
        if covered >= min(median, step / 4):
            joined.append((step, total / covered if covered else value))
            total, covered = 0.0, 0
    if covered:
        joined.append((points[-1][0], total / covered))
    return joined


def loss_limit(points: Sequence[tuple[float, float]]) -> float | None:
    """The upper end of the axis of losses where the first ones would leave no room for the others.

    The losses of the first 5 % of the steps are cut off where they are more than half as far above
    all later ones as those are apart; None where all may be shown.
    """
    last = max((step for step, _ in points), default=0)
    later = [value for step, value in points if step > 0.05 * last]
    if len(later) < 2:
        return None
    low, high = min(later), max(later)
    if max(value for _, value in points) <= high + 0.5 * (high - low):
        return None
    return high + 0.1 * (high - low)


def evaluation(
    path: str | Path,
    roc: Mapping[str, Sequence[float] | float],
    reliability: Mapping[str, Sequence[float]],
    histogram: Mapping[str, Sequence[Sequence[float]] | float],
    split: str,
):
    """Writes the ROC curve, the calibration and the distribution of scores, side by side.

    Args:
        path: the PNG.
        roc: `fpr` and `tpr`, as nn.metrics.classification gives them, and `auc`. Where the AUC is
            NaN (one class
            only) a text in the picture replaces the curve.
        reliability: the fields of `nn.metrics.calibration.Reliability`.
        histogram: `largest` and `shares`, as `nn.metrics.calibration.Calibration.histogram` gives
        them.
        split: name of the split that was evaluated.

    Raises:
        ValueError: fpr and tpr of different lengths.
    """
    if len(roc["fpr"]) != len(roc["tpr"]):
        raise ValueError(
            "evaluation: expected fpr and tpr of equal length, got "
            f"{len(roc['fpr'])} and {len(roc['tpr'])}"
        )
    figure = _figure(14, 4.6)
    figure.suptitle(f"{split} split")
    axes = figure.subplots(1, 3)
    _draw_roc(axes[0], **roc)
    _draw_reliability(axes[1], **reliability)
    _draw_histogram(axes[2], **histogram)
    _write(figure, Path(path))


def _draw_roc(axes, fpr, tpr, auc):
    axes.plot([0, 1], [0, 1], "--", color=_QUIET, linewidth=1, label="chance, AUC 0.5")
    if math.isnan(auc):
        axes.text(0.5, 0.6, "no curve: labels of one class only", ha="center", color=_BEST)
    else:
        axes.plot(fpr, tpr, color=_VALIDATION, linewidth=1.8, label=f"model, AUC {auc:.5f}")
        axes.fill_between(fpr, tpr, color=_VALIDATION, alpha=0.08, linewidth=0)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    _label(axes, "ROC", "false positive rate", "true positive rate", loc="lower right")


def _draw_reliability(axes, predicted, observed, mass):
    """Mean prediction against the share of positives of each group, with 95 % intervals."""
    rows = sum(mass)
    means = [sum(m * v for m, v in zip(mass, x, strict=True)) / rows for x in (predicted, observed)]
    errors = [1.96 * math.sqrt(o * (1 - o) / m) for o, m in zip(observed, mass, strict=True)]
    end = 1.05 * max(*predicted, *observed)
    axes.plot([0, end], [0, end], "--", color=_QUIET, linewidth=1, label="perfectly calibrated")
    label = f"mean predicted {means[0]:.4f}, observed {means[1]:.4f}"
    style = {"color": _VALIDATION, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.8}
    axes.errorbar(predicted, observed, errors, fmt="o-", label=label, **style)
    axes.set(xlim=(0, end), ylim=(0, end), aspect="equal")
    _label(axes, "Calibration", "predicted probability", "share of positives", loc="upper left")


def _draw_histogram(axes, largest, shares):
    edges = [largest * k / len(shares[0]) for k in range(len(shares[0]) + 1)]
    for values, label, colour in zip(shares, ("negatives", "positives"), _CLASSES, strict=True):
        if any(values):
            axes.stairs(values, edges, color=colour, fill=True, alpha=0.25)
            axes.stairs(values, edges, color=colour, linewidth=1.4, label=label)
    axes.set(xlim=(0, largest))
    _label(axes, "Scores", "predicted probability", "share of the class", loc="upper right")


def _figure(width_inches, height_inches):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_inches, height_inches), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _plot_points(axes, points, label):
    style = {"color": _VALIDATION, "markersize": 3, "label": label}
    axes.plot(*zip(*points, strict=True), "o-", **style)


def _count_steps(axes):
    """Whole numbers of steps from 0 on, on an axis that all panels share."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter("{x:,.0f}")


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
    with atomic_file(path) as stream:
        figure.savefig(stream, format="png")


if __name__ == "__main__":
    kind, path = sys.argv[1:]
    {"learning_curve": learning_curve, "evaluation": evaluation}[kind](path, **json.load(sys.stdin))
