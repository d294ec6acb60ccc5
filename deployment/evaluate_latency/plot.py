"""Plot of latency and throughput against batch size, without pyplot's global state."""

from collections.abc import Sequence
from pathlib import Path

from deployment.client.latency_statistics import Measurement
from runtime.files.atomic import atomic_file

_COLOURS = ("#1f5fa8", "#c8501e", "#3a8f5c", "#8a5aa8", "#9db4cc", "#999999")


def draw(path: str | Path, measurements: Sequence[Measurement]) -> None:
    """Draws p50, with a band up to p99, and rows per second against the batch size.

    Each model and number of requests in flight has a line. The PNG appears when it is complete.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(11, 4.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
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
    latency.set(title="Latency", ylabel="p50, shaded up to p99 [ms]")
    throughput.set(title="Throughput", ylabel="rows per second")
    for axes in (latency, throughput):
        axes.set(xlabel="rows of a request", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.15g}"))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    latency.legend(frameon=False)
    with atomic_file(path) as stream:
        figure.savefig(stream, format="png")
