"""A deployed DLRM compared with its plain SavedModel, in the Python backend of one server.

Needs `make serve-setup`. Each side is measured in turn, the others are loaded and idle.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import machine, report
from benchmarks.harness.report import Page, command, summary, table
from benchmarks.serving.models import (
    CARDINALITIES,
    DEPLOYED,
    EXACT,
    MAX_BATCH_SIZE,
    PLAIN,
    SIZES,
    deploy_all,
    model_name,
    train,
)
from deployment.client import perf_analyzer
from deployment.client.client import Client
from deployment.client.closed_loop import ClosedLoop
from deployment.client.drawn_requests import drawn_request
from deployment.client.latency_statistics import Timing
from deployment.serve.server import running

ROWS = 8192  # that requests are made of
# perf_analyzer prepares the square of the rows; from here on our own client sends requests.
OWN_CLIENT_FROM = 2048


class Traffic(NamedTuple):
    """Requests of a turn: their size, and how many are in flight and measured."""

    batch_size: int
    in_flight: int
    requests: int


# The last one is for throughput: while the server computes one request it receives the next one.
LATENCY, THROUGHPUT = Traffic(1, 1, 800), Traffic(2048, 2, 30)
SETTINGS = (LATENCY, Traffic(64, 1, 200), Traffic(2048, 1, 20), Traffic(1, 8, 1600), THROUGHPUT)
LATENCY_TARGET, THROUGHPUT_TARGET = 2.0, 1.5  # times better than the plain SavedModel


class ServingMeasurements:
    """Lists of all sides."""

    def __init__(self):
        # of (size, side, traffic) a `Timing` per round
        self.timings: dict[tuple[str, str, Traffic], list[Timing]] = defaultdict(list)
        # of (size, side) the largest one from the plain SavedModel's scores
        self.differences: dict[tuple[str, str], float] = {}
        # cores that others kept busy while the server was idle, one value per round
        self.foreign_cpu: list[float] = []

    def ms(self, size: str, side: str, traffic: Traffic, place: int) -> np.ndarray:
        """A percentile of each round: 0 for p50, -1 for p99."""
        return np.array([t.percentiles_ms[place] for t in self.timings[size, side, traffic]])

    def rows_per_s(self, size: str, side: str, traffic: Traffic) -> np.ndarray:
        timings = self.timings[size, side, traffic]
        return np.array([traffic.batch_size * t.requests / t.elapsed_s for t in timings])

    def latency_ratio(self, size: str, side: str, traffic: Traffic) -> np.ndarray:
        """The plain SavedModel's p50 over a side's."""
        return self.ms(size, PLAIN, traffic, 0) / self.ms(size, side, traffic, 0)

    def throughput_ratio(self, size: str, side: str, traffic: Traffic) -> np.ndarray:
        """A side's throughput over the plain SavedModel's."""
        return self.rows_per_s(size, side, traffic) / self.rows_per_s(size, PLAIN, traffic)


def measure(args: argparse.Namespace, folder: Path) -> ServingMeasurements:
    """Trains, deploys, serves and measures."""
    measurements, repository = ServingMeasurements(), folder / "repository"
    interfaces = {size: deploy_all(size, train(size, folder), repository) for size in args.sizes}
    with running(repository, folder / "server.log") as server:
        rows = {
            size: drawn_request(interface, ROWS, np.random.default_rng(0))
            for size, interface in interfaces.items()
        }
        for size in args.sizes:
            _compare(measurements, server.url, size, rows[size])
        turns = [(size, side) for size in args.sizes for side in (*DEPLOYED, PLAIN)]
        for number in range(args.rounds):
            measurements.foreign_cpu.append(_busy_cores())
            for traffic in SETTINGS:
                for size, side in turns[:: 1 if number % 2 else -1]:
                    model = (server.url, model_name(size, side), rows[size])
                    timing = _measure_turn(model, traffic)
                    if timing.errors:
                        raise RuntimeError(f"{size}, {side}: {timing.errors} requests failed")
                    measurements.timings[size, side, traffic].append(timing)
            print(f"round {number + 1} of {args.rounds}", flush=True)
    return measurements


def _measure_turn(model: tuple, traffic: Traffic) -> Timing:
    """Asks a model (url, name, rows), after a warm-up."""
    batch_size, in_flight, requests = traffic
    if batch_size < OWN_CLIENT_FROM:
        defaults = perf_analyzer.PerfAnalyzerOptions()
        return perf_analyzer.measure(*model, batch_size, in_flight, requests, defaults)
    with ClosedLoop(*model, batch_size, in_flight) as loop:
        loop.run(0, min_requests=2 * in_flight)
        return loop.run(0, min_requests=requests)


def _busy_cores(seconds: float = 2.0) -> float:
    """Cores that are busy though the server is not asked."""
    busy_s = machine.busy_cpu_s()
    time.sleep(seconds)
    return (machine.busy_cpu_s() - busy_s) / seconds


def _compare(measurements: ServingMeasurements, url: str, size: str, rows) -> None:
    """Raises RuntimeError where float32 sides differ in their scores."""
    scores = {}
    for side in (*DEPLOYED, PLAIN):
        with Client(url, model_name(size, side)) as client:
            first = {name: array[:2048] for name, array in rows.items()}
            scores[side] = client.ask(client.prepare(first, side))
    for side in DEPLOYED:
        difference = float(np.abs(scores[side] - scores[PLAIN]).max())
        measurements.differences[size, side] = difference
        if side in EXACT and difference > 1e-5:
            raise RuntimeError(f"{size}: scores of {side} differ by {difference} from {PLAIN}'s")


def page_of(measurements: ServingMeasurements, args: argparse.Namespace) -> Page:
    differences = "; ".join(
        f"{size}, {side}: {value:.1e}" for (size, side), value in measurements.differences.items()
    )
    facts = [
        f"tritonserver 2.51 with the Python backend, max_batch_size {MAX_BATCH_SIZE:,}; server and "
        "client share the cores",
        f"{len(CARDINALITIES)} tables of {sum(CARDINALITIES):,} rows in all; ids are uniform",
        f"others kept {summary(measurements.foreign_cpu, '.2f')} cores busy while the server "
        "was idle",
        f"largest difference from the scores of {PLAIN}, over 2,048 rows: {differences}",
        "medians [quartiles] over the rounds; latencies are those of a round's requests",
    ]
    page = Page("A deployed DLRM on a Triton server", [command("serving", args)], facts)
    for size in args.sizes:
        title = f"Sizes of the {size}: `{' '.join(SIZES[size])}`"
        page.add(title, *_table(measurements, size))
    for traffic, ratio, target, what in (
        (LATENCY, measurements.latency_ratio, LATENCY_TARGET, "p50 lower"),
        (THROUGHPUT, measurements.throughput_ratio, THROUGHPUT_TARGET, "throughput higher"),
    ):
        for size in args.sizes:
            reached = {side: float(np.median(ratio(size, side, traffic))) for side in DEPLOYED}
            values = "; ".join(f"{side}: {value:.2f}" for side, value in reached.items())
            name = f"{size}, batch {traffic.batch_size:,}, {traffic.in_flight} in flight"
            text = f"{name}, {what} by: {values}"
            page.judge(text, f"{target} of one side", max(reached.values()) >= target)
    return page


def _table(measurements: ServingMeasurements, size: str) -> list[str]:
    rows = []
    for traffic in sorted(SETTINGS):
        for side in (*DEPLOYED, PLAIN):
            key = (size, side, traffic)
            ms = (summary(measurements.ms(*key, place), ".2f") for place in (0, -1))
            ratios = (measurements.latency_ratio(*key), measurements.throughput_ratio(*key))
            better = ("" if side == PLAIN else summary(ratio, ".2f") for ratio in ratios)
            speed = summary(measurements.rows_per_s(*key))
            rows.append((side, f"{traffic.batch_size:,}", traffic.in_flight, *ms, speed, *better))
    columns = ("side", "rows of a request", "in flight", "p50 ms", "p99 ms", "rows/s")
    return table((*columns, "p50 lower by", "rows/s higher by"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, rounds=5)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=[*SIZES])
    args = parser.parse_args(argv)
    if not perf_analyzer.works():
        parser.error("perf_analyzer is not there: run `make serve-setup`")
    with tempfile.TemporaryDirectory() as folder:
        measurements = measure(args, Path(folder))
    return page_of(measurements, args).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
