"""Plots of a run as PNG: learning curve, and curves of an evaluation with calibration and scores.

matplotlib is imported when a plot is drawn, and without pyplot, whose state is global.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.files.outputs import output_file

# Series that the panel of the loss has: normalized entropy is a multiple of the log loss.
_LOSSES = ("train_loss", *(f"validation_{n}" for n in ("loss", "log_loss", "normalized_entropy")))
_TRAIN, _VALIDATION, _QUIET = "#9db4cc", "#1f5fa8", "#999999"
_BEST = "#c8501e"
_CLASSES = ("#7a8794", _VALIDATION)  # negatives, positives

Points = Sequence[tuple[float, float]]  # (step, value)


def draw(kind: str, path: str | Path, **content: Any) -> None:
    """Draws a picture.

    Args:
        kind: name of a function of this module, with its arguments.

    Raises:
        OSError: it could not be drawn or written.
    """
    functions = {f.__name__: f for f in (learning_curve, evaluation, comparison, importance)}
    try:
        functions[kind](path, **content)
    except Exception as error:
        raise OSError(f"{path} could not be drawn: {error}") from error


def learning_curve(
    path: str | Path,
    history: Mapping[str, Points],
    best_reachable_auc: float | None = None,
    split: str = "validation",
    best_step: int | None = None,
) -> None:
    """Plots the loss, and the metric of evaluations if there are any, against the step.

    Args:
        path: the PNG; its folder is created.
        history: points under "train_loss" (means since the previous point), "validation_loss" and
            the metrics of `--metric`, such as "validation_auc"; all are optional, and values that
            are not finite are left out. The first metric that is not a loss is drawn.
        best_reachable_auc: of the evaluated split, if it is known.
        split: name of the evaluated split, which replaces "validation".
        best_step: step of the best evaluation, which is marked in both panels.
    """
    metrics = (name for name in history if name not in _LOSSES)
    metric = next(metrics, "validation_auc")
    train, validation, quality = (
        [(step, value) for step, value in history.get(name, ()) if math.isfinite(value)]
        for name in ("train_loss", "validation_loss", metric)
    )
    figure = make_figure(10 if quality else 5.5, 4)
    axes = figure.subplots(1, 2 if quality else 1, squeeze=False, sharex=True)[0]
    _draw_loss(axes[0], join_short_means(train), validation, split, best_step)
    if quality:
        _draw_evaluations(axes[1], quality, split, best_step)
        name = metric.removeprefix("validation_").upper()
        if name == "AUC" and best_reachable_auc is not None:
            label = f"best reachable {best_reachable_auc:.5f}"
            axes[1].axhline(best_reachable_auc, color=_QUIET, ls="--", linewidth=1, label=label)
        title = "ROC AUC" if name == "AUC" else name
        set_labels(axes[1], title, "training step", title)
    if train or validation:
        _count_steps(axes[0])
    write_picture(figure, Path(path))


def _draw_loss(
    axes: Any, train: Points, validation: Points, split: str, best_step: int | None
) -> None:
    if train:
        style = {"color": _TRAIN, "linewidth": 1.2, "markersize": 4}
        form = "-" if len(train) > 1 else "o"  # a line of one point is invisible
        axes.plot(*zip(*train, strict=True), form, label="training", **style)
    if validation:
        _draw_evaluations(axes, validation, split, best_step)
    if top := loss_limit([*train, *validation]):
        axes.set_ylim(top=top)
    set_labels(axes, "Loss", "training step", "log loss [nats]")


def join_short_means(points: Points) -> list[tuple[float, float]]:
    """Joins means over few steps with their neighbours, so that the curve has no bumps there.

    The value of a pair is the mean over the steps since the previous pair. A loss is also read at
    every evaluation: some means are over few steps, and noisy. Pairs are joined until they cover
    the median number of steps, or a quarter of all steps so far if that is less.
    """
    if not points:
        return []
    starts = [0, *(step for step, _ in points[:-1])]
    lengths = [step - start for start, (step, _) in zip(starts, points, strict=True)]
    median = sorted(lengths)[len(lengths) // 2]
    joined: list[tuple[float, float]] = []
    total, covered = 0.0, 0.0
    for length, (step, value) in zip(lengths, points, strict=True):
        total, covered = total + length * value, covered + length
        if covered >= min(median, step / 4):
            joined.append((step, total / covered if covered else value))
            total, covered = 0.0, 0
    if covered:
        joined.append((points[-1][0], total / covered))
    return joined


def loss_limit(points: Points) -> float | None:
    """Returns the upper limit of the loss axis, so that high first losses do not flatten the curve.

    The losses of the first 5 % of the steps are cut off if they exceed all later ones by more than
    half of the range of these; None if all can be shown.
    """
    last = max((step for step, _ in points), default=0)
    later = [value for step, value in points if step > 0.05 * last]
    if len(later) < 2:
        return None
    low, high = min(later), max(later)
    if max(value for _, value in points) <= high + 0.5 * (high - low):
        return None
    return high + 0.1 * (high - low)


def comparison(path: str | Path, curves: Mapping[str, Mapping[str, Points]]) -> None:
    """Plots a value of several runs against the step, in one panel per value.

    `curves` has the points of each run by the title of the panel and the name of the run; values
    that are not finite, and None, are left out. A run has one color in all panels.
    """
    names = list(dict.fromkeys(name for runs in curves.values() for name in runs))
    figure = make_figure(max(5.5, 5 * len(curves)), 4 + 0.2 * len(names))
    drawn: dict[str, Any] = {}
    for axes, (title, runs) in zip(
        figure.subplots(1, max(1, len(curves)), squeeze=False)[0], curves.items(), strict=False
    ):
        for name, points in runs.items():
            finite = [(s, v) for s, v in points if v is not None and math.isfinite(v)]
            if title.startswith("Training"):
                finite = join_short_means(finite)
            if finite:
                style = {"color": f"C{names.index(name)}", "markersize": 3, "linewidth": 1.3}
                form = "o-" if len(finite) < 30 else "-"
                (drawn[name],) = axes.plot(*zip(*finite, strict=True), form, **style)
        set_labels(axes, title, "training step", "")
        _count_steps(axes)
    figure.legend(drawn.values(), drawn, loc="outside lower center", frameon=False)
    write_picture(figure, Path(path))


def importance(path: str | Path, rows: Sequence[Mapping[str, Any]], split: str) -> None:
    """Plots the importance of features as bars, the most important one at the top.

    `rows` are the fields of `nn.metrics.importance.FeatureImportance`, in the order of the bars.
    """
    from matplotlib.ticker import MaxNLocator

    figure = make_figure(11, 1.4 + 0.28 * len(rows))
    figure.suptitle(f"What the {split} split loses without a feature")
    names = [row["feature"] for row in rows]
    panels = (("auc_drop", "AUC lost"), ("log_loss_rise", "log loss gained"))
    for axes, (key, title) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        values, errors = ([row[k] or 0 for row in rows] for k in (key, f"{key}_std"))
        axes.barh(names, values, xerr=errors, color=_VALIDATION, ecolor=_BEST, height=0.65)
        axes.axvline(0, color=_QUIET, linewidth=0.8)
        set_labels(axes, "", title, "")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.margins(y=0.5 / len(rows))
    axes.invert_yaxis()
    write_picture(figure, Path(path))


def evaluation(
    path: str | Path,
    curves: Mapping[str, Any],
    reliability: Mapping[str, Sequence[float]],
    histogram: Mapping[str, Any],
    split: str,
    step: int | None = None,
) -> None:
    """Plots ROC curve, precision-recall curve, calibration and distribution of scores.

    Args:
        path: the PNG.
        curves: `fpr` and `tpr` of nn.metrics.classification, `auc` and `pr_auc`. If the AUC is NaN
            (one class only), a text replaces both curves.
        reliability: the fields of `nn.metrics.calibration.Reliability`.
        histogram: `largest` and `shares` of `nn.metrics.calibration.Calibration.histogram`.
        split: name of the evaluated split.
        step: of a training, after which it was evaluated.
    """
    figure = make_figure(18, 4.6)
    figure.suptitle(f"{split} split" + ("" if step is None else f", weights of step {step:,}"))
    axes = figure.subplots(1, 4)
    fpr, tpr = curves["fpr"], curves["tpr"]
    positives, rows = reliability["observed"], reliability["mass"]
    rate = sum(o * m for o, m in zip(positives, rows, strict=True)) / sum(rows)
    _draw_roc(axes[0], fpr, tpr, curves["auc"])
    _draw_precision(axes[1], fpr, tpr, curves["pr_auc"], rate)
    _draw_reliability(axes[2], **reliability)
    _draw_histogram(axes[3], **histogram)
    write_picture(figure, Path(path))


def _draw_roc(axes: Any, fpr: Sequence[float], tpr: Sequence[float], auc: float) -> None:
    axes.plot([0, 1], [0, 1], "--", color=_QUIET, linewidth=1, label="chance, AUC 0.5")
    if math.isnan(auc):
        axes.text(0.5, 0.6, "no curve: labels of one class only", ha="center", color=_BEST)
    else:
        axes.plot(fpr, tpr, color=_VALIDATION, linewidth=1.8, label=f"model, AUC {auc:.5f}")
        axes.fill_between(fpr, tpr, color=_VALIDATION, alpha=0.08, linewidth=0)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    set_labels(axes, "ROC", "false positive rate", "true positive rate")


def _draw_precision(
    axes: Any, fpr: Sequence[float], tpr: Sequence[float], pr_auc: float, rate: float
) -> None:
    label = f"chance, precision {rate:.4f}"
    axes.axhline(rate, color=_QUIET, ls="--", linewidth=1, label=label)
    if 0 < rate < 1:
        points = [
            (t, rate * t / (rate * t + (1 - rate) * f))
            for f, t in zip(fpr, tpr, strict=True)
            if t > 0
        ]
        label = f"model, area {pr_auc:.5f}"
        axes.plot(*zip(*points, strict=True), color=_VALIDATION, linewidth=1.8, label=label)
    else:
        axes.text(0.5, 0.6, "no curve: labels of one class only", ha="center", color=_BEST)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    set_labels(axes, "Precision and recall", "recall", "precision")


def _draw_reliability(
    axes: Any, predicted: Sequence[float], observed: Sequence[float], mass: Sequence[float]
) -> None:
    """Plots mean prediction against share of positives per group, with 95 % intervals."""
    rows = sum(mass)
    means = [sum(m * v for m, v in zip(mass, x, strict=True)) / rows for x in (predicted, observed)]
    errors = [1.96 * math.sqrt(o * (1 - o) / m) for o, m in zip(observed, mass, strict=True)]
    end = 1.05 * max(*predicted, *observed)
    axes.plot([0, end], [0, end], "--", color=_QUIET, linewidth=1, label="perfectly calibrated")
    label = f"mean predicted {means[0]:.4f}, observed {means[1]:.4f}"
    style = {"color": _VALIDATION, "markersize": 4, "linewidth": 1.2, "elinewidth": 0.8}
    axes.errorbar(predicted, observed, errors, fmt="o-", label=label, **style)
    axes.set(xlim=(0, end), ylim=(0, end), aspect="equal")
    set_labels(axes, "Calibration", "predicted probability", "share of positives")


def _draw_histogram(axes: Any, largest: float, shares: Sequence[Sequence[float]]) -> None:
    edges = [largest * k / len(shares[0]) for k in range(len(shares[0]) + 1)]
    for values, label, colour in zip(shares, ("negatives", "positives"), _CLASSES, strict=True):
        if any(values):
            axes.stairs(values, edges, color=colour, fill=True, alpha=0.25)
            axes.stairs(values, edges, color=colour, linewidth=1.4, label=label)
    axes.set(xlim=(0, largest))
    set_labels(axes, "Scores", "predicted probability", "share of the class")


def make_figure(width_inches: float, height_inches: float) -> Any:
    """Returns a figure of matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_inches, height_inches), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_evaluations(axes: Any, points: Points, split: str, best_step: int | None) -> None:
    axes.plot(*zip(*points, strict=True), "o-", color=_VALIDATION, markersize=3, label=split)
    for step, value in points:
        if step == best_step:
            label = f"best step {step:,}: {value:.5f}"
            axes.plot([step], [value], "*", color=_BEST, markersize=13, label=label, zorder=3)


def _count_steps(axes: Any) -> None:
    """Labels the shared axis with whole numbers of steps from 0."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def set_labels(axes: Any, title: str, x: str, y: str) -> None:
    """Sets titles and grid of a panel, and its legend, which is below it."""
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)


def write_picture(figure: Any, path: Path) -> None:
    """Writes the PNG, which appears when it is complete."""
    with output_file(path) as stream:
        figure.canvas.print_png(stream)  # `savefig` draws twice
