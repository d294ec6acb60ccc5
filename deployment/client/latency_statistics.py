"""Results of latency measurements: numbers, a CSV file and a table.

The file has a header and a line per measurement:

    model               name of the served model
    client              own or perf_analyzer
    batching            dynamic: the server batches requests that wait; static: it does not
    batch_size          rows per request
    concurrency         requests in flight
    repeat              round, from 1
    requests            answered requests, of which latencies and rows are
    errors              requests that were refused or lost
    elapsed_s           duration
    rows_per_s          answered rows per second
    mean_ms ... p99_ms  time from sending a request to its scores, seen by the client
    rows_per_execution  rows per batch that the server ran
"""

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

PERCENTILES = (50, 90, 95, 99)


class Measurement(NamedTuple):
    """A line of the CSV file; see the module."""

    model: str
    client: str
    batching: str
    batch_size: int
    concurrency: int
    repeat: int
    requests: int
    errors: int
    elapsed_s: float
    rows_per_s: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    rows_per_execution: float


class Timing(NamedTuple):
    """Times of requests of one size.

    Attributes:
        requests: number of answered requests.
        errors: number of others.
        elapsed_s: duration of all.
        mean_ms: mean latency of the answered requests.
        percentiles_ms: their latencies at `PERCENTILES`.
    """

    requests: int
    errors: int
    elapsed_s: float
    mean_ms: float
    percentiles_ms: tuple[float, ...]


def timing(latencies_s: Sequence[float], errors: int, elapsed_s: float) -> Timing:
    """Returns the statistics of one or more latencies in seconds."""
    in_ms = np.asarray(latencies_s) * 1e3
    return Timing(
        len(in_ms),
        errors,
        elapsed_s,
        float(in_ms.mean()),
        tuple(np.percentile(in_ms, PERCENTILES).tolist()),
    )


def write_csv(path: str | Path, measurements: Iterable[Measurement]) -> None:
    """Writes the CSV file and creates its folder."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Measurement._fields)
    for measurement in measurements:
        writer.writerow([f"{v:.4f}" if isinstance(v, float) else v for v in measurement])
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text.getvalue())


def medians(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Merges the repeats of each setting: medians, sums of errors; `repeat` is their number."""
    settings: dict[tuple, list[Measurement]] = {}
    for measurement in measurements:
        setting = measurement[: Measurement._fields.index("repeat")]
        settings.setdefault(setting, []).append(measurement)
    merged = []
    for setting, repeats in settings.items():
        columns = {f: [getattr(m, f) for m in repeats] for f in Measurement._fields[len(setting) :]}
        middle = {name: statistics.median(values) for name, values in columns.items()}
        whole = {
            "repeat": len(repeats),
            "requests": round(middle["requests"]),
            "errors": sum(columns["errors"]),
        }
        merged.append(Measurement(*setting, **(middle | whole)))
    return merged


_COLUMNS = {  # of the table: how a measurement is shown
    "model": lambda m: m.model,
    "client": lambda m: m.client,
    "batching": lambda m: m.batching,
    "batch": lambda m: f"{m.batch_size:,}",
    "in flight": lambda m: f"{m.concurrency}",
    "rows/s": lambda m: f"{m.rows_per_s:,.0f}",
    "p50 ms": lambda m: f"{m.p50_ms:.2f}",
    "p90": lambda m: f"{m.p90_ms:.2f}",
    "p95": lambda m: f"{m.p95_ms:.2f}",
    "p99": lambda m: f"{m.p99_ms:.2f}",
    "errors": lambda m: f"{m.errors:,}",
    "rows/execution": lambda m: f"{m.rows_per_execution:,.1f}",
}


def table(measurements: Iterable[Measurement]) -> str:
    """Returns a table with aligned columns."""
    lines = [list(_COLUMNS)]
    lines += [[show(m) for show in _COLUMNS.values()] for m in measurements]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < 3 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
