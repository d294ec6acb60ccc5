"""A deployed DLRM compared with its plain SavedModel, in the Python backend of one server.

Needs `make serve-setup`. Each side is measured in turn, the others are loaded and idle.
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness.result_page import (
    BenchmarkOptions,
    Page,
    in_turns,
    parse,
    refuse,
    summary,
    table,
)
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

ROUNDS = 5
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
# Of (size, side, traffic) one per round.
Timings = dict[tuple[str, str, Traffic], list[Timing]]


def measure(folder: Path) -> Timings:
    """Trains, deploys, serves and measures."""
    timings, repository = defaultdict(list), folder / "repository"
    interfaces = {size: deploy_all(size, train(size, folder), repository) for size in SIZES}
    with running(repository, folder / "server.log") as server:
        rows = {
            size: drawn_request(interface, ROWS, np.random.default_rng(0))
            for size, interface in interfaces.items()
        }
        for size in SIZES:
            _check_scores(server.url, size, rows[size])
        turns = [(size, side) for size in SIZES for side in (*DEPLOYED, PLAIN)]
        for traffic in SETTINGS:
            for size, side in in_turns(turns, ROUNDS):
                model = (server.url, model_name(size, side), rows[size])
                timing = _measure_turn(model, traffic)
                if timing.errors:
                    raise RuntimeError(f"{size}, {side}: {timing.errors} requests failed")
                timings[size, side, traffic].append(timing)
    return timings


def _measure_turn(model: tuple, traffic: Traffic) -> Timing:
    """Asks a model (url, name, rows), after a warm-up."""
    batch_size, in_flight, requests = traffic
    if batch_size < OWN_CLIENT_FROM:
        return perf_analyzer.measure(*model, batch_size, in_flight, requests)
    with ClosedLoop(*model, batch_size, in_flight) as loop:
        loop.run(0, min_requests=2 * in_flight)
        return loop.run(0, min_requests=requests)


def _check_scores(url: str, size: str, rows) -> None:
    """Raises RuntimeError where float32 sides differ in their scores."""
    scores = {}
    for side in (*EXACT, PLAIN):
        with Client(url, model_name(size, side)) as client:
            first = {name: array[:2048] for name, array in rows.items()}
            scores[side] = client.ask(client.prepare(first, side))
    for side in EXACT:
        difference = float(np.abs(scores[side] - scores[PLAIN]).max())
        if difference > 1e-5:
            raise RuntimeError(f"{size}: scores of {side} differ by {difference} from {PLAIN}'s")


def _ms(timings: Sequence[Timing], place: int) -> np.ndarray:
    """A percentile of each round: 0 for p50, -1 for p99."""
    return np.array([timing.percentiles_ms[place] for timing in timings])


def _rows_per_s(timings: Sequence[Timing], traffic: Traffic) -> np.ndarray:
    return np.array([traffic.batch_size * t.requests / t.elapsed_s for t in timings])


def results(timings: Timings, size: str, page: Page) -> None:
    """Adds the table of a size, and its verdicts."""
    rows, best = [], {}
    for traffic in sorted(SETTINGS):
        plain = timings[size, PLAIN, traffic]
        for side in (*DEPLOYED, PLAIN):
            its = timings[size, side, traffic]
            speed = _rows_per_s(its, traffic)
            ratios = (_ms(plain, 0) / _ms(its, 0), speed / _rows_per_s(plain, traffic))
            if side != PLAIN:
                medians = [float(np.median(ratio)) for ratio in ratios]
                best[traffic] = np.maximum(best.get(traffic, medians), medians)
            ms = (summary(_ms(its, place), ".2f") for place in (0, -1))
            better = ("" if side == PLAIN else summary(ratio, ".2f") for ratio in ratios)
            name = (side, f"{traffic.batch_size:,}", traffic.in_flight)
            rows.append((*name, *ms, summary(speed), *better))
    columns = ("side", "rows of a request", "in flight", "p50 ms", "p99 ms", "rows/s")
    lines = table((*columns, "p50 lower by", "rows/s higher by"), rows)
    page.add(f"Sizes of the {size}: `{' '.join(SIZES[size])}`", *lines)
    for traffic, place, target, what in (
        (LATENCY, 0, LATENCY_TARGET, "p50 lower"),
        (THROUGHPUT, 1, THROUGHPUT_TARGET, "throughput higher"),
    ):
        ratio = best[traffic][place]
        text = f"{size}, batch {traffic.batch_size:,}, {what} by {ratio:.2f} (the best side)"
        page.judge(text, target, ratio >= target)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(BenchmarkOptions, argv, "serving", __doc__)
    if not perf_analyzer.works():
        refuse("perf_analyzer is not there: run `make serve-setup`")
    facts = [
        f"tritonserver 2.51 with the Python backend, max_batch_size {MAX_BATCH_SIZE:,}; server and "
        "client share the cores",
        f"{len(CARDINALITIES)} tables of {sum(CARDINALITIES):,} rows in all; ids are uniform",
        "medians [quartiles] over the rounds; latencies are those of a round's requests",
    ]
    page = Page("A deployed DLRM on a Triton server", "serving", args, facts)
    with tempfile.TemporaryDirectory() as folder:
        timings = measure(Path(folder))
    for size in SIZES:
        results(timings, size, page)
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
