"""Results of latency measurements: numbers, a CSV file and a table."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runtime.files.outputs import output_file

PERCENTILES = (50, 90, 95, 99)


class Measurement(NamedTuple):
    """A line of the CSV file, whose header has these names.

    `batching` is "dynamic" if the server batches requests that wait, else "static"; `batch_size`
    rows per request; `concurrency` requests in flight; `requests` the number of answered ones,
    whose latencies, as the client measures them, and rows are measured. The last four are means of
    a request in the server: its time in the queue, and of reading inputs, computing and writing
    outputs.
    """

    model: str
    client: str
    batching: str
    batch_size: int
    concurrency: int
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
    queue_ms: float = 0.0
    compute_input_ms: float = 0.0
    compute_infer_ms: float = 0.0
    compute_output_ms: float = 0.0


class Timing(NamedTuple):
    """Times of requests of one size; `percentiles_ms` are the latencies at `PERCENTILES`."""

    requests: int
    errors: int
    elapsed_s: float
    mean_ms: float
    percentiles_ms: tuple[float, ...]


def timing(latencies_s: Sequence[float], errors: int, elapsed_s: float) -> Timing:
    """Returns the statistics of one or more latencies in seconds."""
    in_ms = np.asarray(latencies_s) * 1e3
    percentiles = np.percentile(in_ms, PERCENTILES)
    return Timing(len(in_ms), errors, elapsed_s, float(in_ms.mean()), tuple(percentiles.tolist()))


_ORIGINAL_COLUMNS = (
    *("Batch", "Concurrency", "Inferences/Second", "Client Send", "Network+Server Send/Recv"),
    *("Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output"),
    *("Client Recv", "p50 latency", "p90 latency", "p95 latency", "p99 latency", "avg latency"),
)


def write_csv(path: Path, measurements: Iterable[Measurement]) -> None:
    """Writes the CSV file and creates its folder."""
    rows = ([f"{v:.4f}" if isinstance(v, float) else v for v in m] for m in measurements)
    _write_rows(path, Measurement._fields, rows)


def write_original_csv(path: Path, measurements: Iterable[Measurement]) -> None:
    """Writes a CSV file with the columns of NVIDIA's tool, times in microseconds.

    These are those of perf_analyzer. The time that neither the queue nor the computation takes is
    in "Network+Server Send/Recv"; a gRPC client does not measure sending and receiving alone.
    """
    rows = []
    for m in measurements:
        server = [m.queue_ms, m.compute_input_ms, m.compute_infer_ms, m.compute_output_ms]
        other = max(0.0, m.mean_ms - sum(server))
        percentiles = (m.p50_ms, m.p90_ms, m.p95_ms, m.p99_ms, m.mean_ms)
        times = [round(1e3 * ms) for ms in (0.0, other, *server, 0.0, *percentiles)]
        rows.append([m.batch_size, m.concurrency, f"{m.rows_per_s:.6g}", *times])
    _write_rows(path, _ORIGINAL_COLUMNS, rows)


def _write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    with output_file(path) as stream:
        stream.write(text.getvalue().encode())


_COLUMNS = {
    "model": "{0.model}",
    "client": "{0.client}",
    "batching": "{0.batching}",
    "batch": "{0.batch_size:,}",
    "in flight": "{0.concurrency}",
    "rows/s": "{0.rows_per_s:,.0f}",
    "p50 ms": "{0.p50_ms:.2f}",
    "p90": "{0.p90_ms:.2f}",
    "p95": "{0.p95_ms:.2f}",
    "p99": "{0.p99_ms:.2f}",
    "errors": "{0.errors:,}",
    "rows/execution": "{0.rows_per_execution:,.1f}",
}


def table(measurements: Iterable[Measurement]) -> str:
    """Returns a table with aligned columns."""
    lines = [list(_COLUMNS)]
    lines += [[cell.format(m) for cell in _COLUMNS.values()] for m in measurements]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)
