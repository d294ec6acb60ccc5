"""What a latency measurement found, as numbers, as lines of a CSV file and as a table.

The file has a header and a line for each measurement:

    model               name of the served model
    client              own or perf_analyzer: who measured
    batching            dynamic: the server puts requests that wait together; static: it does not
    batch_size          rows of a request
    concurrency         requests that were in flight all the time
    repeat              which round, from 1
    requests            that were answered; latencies and rows are of these
    errors              requests that were refused or lost
    elapsed_s           how long it took
    rows_per_s          rows answered in a second
    mean_ms ... p99_ms  of a request, from its sending to its scores, as the client sees it
    rows_per_execution  rows that the server scored at a time
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
    """A line of the CSV file, see there."""

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
    """What a client found out about requests of one size.

    requests, errors: how many were answered, and how many not.
    elapsed_s: of all.
    mean_ms, percentiles_ms: of the answered, the latter as `PERCENTILES`.
    """

    requests: int
    errors: int
    elapsed_s: float
    mean_ms: float
    percentiles_ms: tuple[float, ...]


def timing(latencies_s: Sequence[float], errors: int, elapsed_s: float) -> Timing:
    """The statistics of latencies in seconds, at least one."""
    in_ms = np.asarray(latencies_s) * 1e3
    return Timing(
        len(in_ms),
        errors,
        elapsed_s,
        float(in_ms.mean()),
        tuple(np.percentile(in_ms, PERCENTILES).tolist()),
    )


def write_csv(path: str | Path, measurements: Iterable[Measurement]) -> None:
    """Writes the file; its folder is made."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Measurement._fields)
    for measurement in measurements:
        writer.writerow([f"{v:.4f}" if isinstance(v, float) else v for v in measurement])
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text.getvalue())


def medians(measurements: Iterable[Measurement]) -> list[Measurement]:
    """One for the repeats of each setting: medians, sums of errors; `repeat` says how many."""
    settings: dict[tuple, list[Measurement]] = {}
    for found in measurements:
        settings.setdefault(found[: Measurement._fields.index("repeat")], []).append(found)
    merged = []
    for setting, found in settings.items():
        columns = {f: [getattr(m, f) for m in found] for f in Measurement._fields[len(setting) :]}
        middle = {name: statistics.median(values) for name, values in columns.items()}
        whole = {
            "repeat": len(found),
            "requests": round(middle["requests"]),
            "errors": sum(columns["errors"]),
        }
        merged.append(Measurement(*setting, **(middle | whole)))
    return merged


def table(measurements: Iterable[Measurement]) -> str:
    """Aligned columns for people."""
    lines = [
        (
            "model",
            "client",
            "batching",
            "batch",
            "in flight",
            "rows/s",
            "p50 ms",
            "p90",
            "p95",
            "p99",
        )
        + ("errors", "rows/execution")
    ]
    for m in measurements:
        percentiles = (f"{v:.2f}" for v in (m.p50_ms, m.p90_ms, m.p95_ms, m.p99_ms))
        lines.append(
            (
                m.model,
                m.client,
                m.batching,
                f"{m.batch_size:,}",
                f"{m.concurrency}",
                f"{m.rows_per_s:,.0f}",
            )
            + (*percentiles, f"{m.errors:,}", f"{m.rows_per_execution:,.1f}")
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < 3 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
