"""Plot of latency and throughput against batch size, without pyplot's global state."""

from collections.abc import Sequence
from pathlib import Path

from deployment.client.latency_statistics import Measurement
from runtime.logs import plots

_COLOURS = ("#1f5fa8", "#c8501e", "#3a8f5c", "#8a5aa8", "#9db4cc", "#999999")


def draw(path: str | Path, measurements: Sequence[Measurement]) -> None:
    """Draws p50, with a band up to p99, and rows per second against the batch size.

    Each model and number of requests in flight has a line. The PNG appears when it is complete.
    """
    from matplotlib.ticker import FuncFormatter

    figure = plots.make_figure(11, 4.4)
    latency, throughput = figure.subplots(1, 2)
    lines: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        lines.setdefault(f"{measurement.model}, {measurement.concurrency} in flight", []).append(
            measurement
        )
    for number, (label, points) in enumerate(lines.items()):
        points.sort(key=lambda measurement: measurement.batch_size)
        style = {"color": _COLOURS[number % len(_COLOURS)], "linewidth": 1.6, "markersize": 4}
        sizes = [p.batch_size for p in points]
        p50 = [p.p50_ms for p in points]
        latency.plot(sizes, p50, "o-", label=label, **style)
        latency.fill_between(
            sizes, p50, [p.p99_ms for p in points], color=style["color"], alpha=0.12, linewidth=0
        )
        throughput.plot(sizes, [p.rows_per_s for p in points], "o-", label=label, **style)
    for axes, title, unit in (
        (latency, "Latency", "p50, shaded up to p99 [ms]"),
        (throughput, "Throughput", "rows per second"),
    ):
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.15g}"))
        plots.set_labels(axes, title, "rows of a request", unit)
    plots.write_picture(figure, Path(path))
