"""A deployed DLRM compared with its plain SavedModel, in the Python backend of one server.

    python -m benchmarks.serving --output benchmarks/results/serving_xeon_202611.md

Needs `make serve-setup`. Each side is measured in turn, the others are loaded and idle; the order
alternates from round to round, and a ratio is taken within a round.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.harness import machine
from benchmarks.serving import report as serving_report
from benchmarks.serving.models import DEPLOYED, PLAIN, SIZES, deploy_all, model_name, train
from deployment.client import perf_analyzer
from deployment.client.client import Client
from deployment.client.closed_loop import ClosedLoop
from deployment.client.drawn_requests import drawn_request
from deployment.client.latency_statistics import Timing
from deployment.serve.server import running

# (rows of a request, requests in flight, requests that are measured in a round). The last one is
# for throughput: while the server computes one request it receives the next one.
SETTINGS = ((1, 1, 800), (64, 1, 200), (2048, 1, 20), (1, 8, 1600), (2048, 2, 30))
ROWS = 8192  # that requests are made of
# perf_analyzer prepares the square of the rows; from here on our own client sends requests.
OWN_CLIENT_FROM = 2048


class ServingMeasurements:
    """Measurements of all sides.

    Attributes:
        timings: of (size, side, setting) a `Timing` a round.
        differences: of (size, side) the largest one from the plain SavedModel's scores.
        foreign_cpu: cores that others kept busy while the server was idle, one value per round.
    """

    def __init__(self):
        self.timings, self.differences, self.foreign_cpu = defaultdict(list), {}, []


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
            for setting in SETTINGS:
                for size, side in turns[:: 1 if number % 2 else -1]:
                    batch_size, in_flight, requests = setting
                    request = (
                        server.url,
                        model_name(size, side),
                        rows[size],
                        batch_size,
                        in_flight,
                    )
                    timing = _measure(request, requests)
                    if timing.errors:
                        raise RuntimeError(f"{size}, {side}: {timing.errors} requests failed")
                    measurements.timings[size, side, setting].append(timing)
            print(f"round {number + 1} of {args.rounds}", flush=True)
    return measurements


def _measure(request: tuple, requests: int) -> Timing:
    """Asks one model, after a warm-up.

    Args:
        asked: url, name of the model, rows, rows of a request, requests in flight.
        requests: to be measured.
    """
    if request[3] < OWN_CLIENT_FROM:
        return perf_analyzer.measure(*request, requests)
    with ClosedLoop(*request) as loop:
        loop.run(0, min_requests=2 * request[4])
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
        if side in serving_report.EXACT and difference > 1e-5:
            raise RuntimeError(f"{size}: scores of {side} differ by {difference} from {PLAIN}'s")


def main() -> int:
    """Exit status 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=[*SIZES])
    parser.add_argument("--output", type=Path, help="Markdown page to write")
    args = parser.parse_args()
    if not perf_analyzer.works():
        parser.error("perf_analyzer is not there: run `make serve-setup`")
    with tempfile.TemporaryDirectory() as folder:
        measurements = measure(args, Path(folder))
    page, met = serving_report.render(measurements, args)
    print(page)
    if args.output:
        args.output.write_text(page)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
