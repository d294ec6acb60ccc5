"""Latency and throughput of served models by batch size and requests in flight.

    python -m deployment.evaluate_latency --model_name dlrm --model_repository repository \
        --batch_sizes 1,64,2048 --concurrency 1,16 --output latency

With one request in flight (`--concurrency 1`) the server scores that request's rows and no others,
whether the model's batching is dynamic or static. With several in flight dynamic batching scores
the rows of requests that wait together; `rows_per_execution` is their number. Writes `latency.csv`
(deployment/client/latency_statistics.py has its columns) and `latency.png`.

Requests have rows of the data set (`--checkpoint_dir`), or random ids in the ranges of the model's
interface (`--model_repository`). Several models (`--model_name a,b`, which take the same requests)
are measured alternately, setting by setting and round by round, so that other load on the machine
affects both.
"""

import argparse
import math
import sys
import time
from pathlib import Path

from deployment.client import perf_analyzer
from deployment.client.client import Client
from deployment.client.closed_loop import ClosedLoop
from deployment.client.latency_requests import RequestRows, drawn_rows, rows_of_data_set
from deployment.client.latency_statistics import Measurement, Timing, medians, table, write_csv
from deployment.evaluate_latency.plot import draw
from deployment.triton.model_folders import entry_interface
from runtime.cli import exit_status

AUTO, PERF_ANALYZER, OWN = "auto", "perf_analyzer", "own"

_MAX_ROWS = 65_536  # of all requests, unless a single one has more
_MAX_CONCURRENCY = 1024  # each request in flight has its own thread and connection


def evaluate(options: argparse.Namespace) -> list[Measurement]:
    """Measures the models, writes the files, and prints a table.

    Raises:
        ValueError: a flag, the repository or the data set is invalid, or no request is answered.
        ServerLost: there is no server.
    """
    models = options.model_name.split(",")
    sizes = _numbers(options, "batch_sizes")
    in_flight = _numbers(options, "concurrency", _MAX_CONCURRENCY)
    _check(options, models)
    csv, png = _files(options.output)
    client = _client(options.client)
    rows = _rows(options, models[0], max(sizes))
    if options.wait_s:
        _wait(options.url, models, options.wait_s)
    served = [_MeasuredModel(options.url, model, max(sizes)) for model in models]
    print(f"measuring {', '.join(models)} at {options.url} with {_NAMES[client]}", flush=True)
    measurements = []
    for repeat in range(1, options.repeats + 1):
        for batch_size in sizes:
            for concurrency in in_flight:
                for model in served:
                    setting = batch_size, concurrency, repeat
                    measurements.append(model.measure(rows, client, options, *setting))
    merged = medians(measurements)
    print(table(merged))
    write_csv(csv, measurements)
    draw(png, merged)
    print(f"wrote {csv} and {png}")
    return measurements


class _MeasuredModel:
    """A model with its configuration on the server."""

    def __init__(self, url: str, model: str, largest: int):
        self._url, self._name = url, model
        with Client(url, model) as client:
            config = client.config()
            # An ensemble runs nothing; its last step does.
            steps = config.ensemble_scheduling.step
            self._runs = steps[-1].model_name if steps else model
        with Client(url, self._runs) as client:
            dynamic = client.config().HasField("dynamic_batching")
        self._batching = "dynamic" if dynamic else "static"
        if 0 < config.max_batch_size < largest:
            raise ValueError(
                f"--batch_sizes has {largest:,}, {model} takes {config.max_batch_size:,} rows at "
                "most: leave it out"
            )

    def measure(
        self,
        rows: RequestRows,
        client: str,
        options: argparse.Namespace,
        batch_size: int,
        concurrency: int,
        repeat: int,
    ) -> Measurement:
        with (
            ClosedLoop(self._url, self._name, rows, batch_size, concurrency) as loop,
            Client(self._url, self._runs) as runs,
        ):
            warm = loop.run(options.warmup_seconds)
            before = runs.statistics()
            if client == AUTO:
                quick = perf_analyzer.is_quick(batch_size, concurrency)
                client = PERF_ANALYZER if quick else OWN
            if client == PERF_ANALYZER:
                # It takes a number of requests, not of seconds: that of the warm-up rate.
                number = round(options.seconds * warm.requests / warm.elapsed_s)
                requests = max(options.requests, number)
                timed = perf_analyzer.measure(
                    self._url, self._name, rows, batch_size, concurrency, requests
                )
            else:
                timed = loop.run(options.seconds, options.requests)
            after = runs.statistics()
        return self._measurement(
            timed,
            client,
            (batch_size, concurrency, repeat),
            (after.rows - before.rows) / max(1, after.executions - before.executions),
        )

    def _measurement(self, timed: Timing, client: str, setting, rows_per_execution) -> Measurement:
        return Measurement(
            self._name,
            client,
            self._batching,
            *setting,
            timed.requests,
            timed.errors,
            timed.elapsed_s,
            timed.requests * setting[0] / timed.elapsed_s,
            timed.mean_ms,
            *timed.percentiles_ms,
            rows_per_execution,
        )


_NAMES = {
    AUTO: "perf_analyzer, and our own client where requests are large and many are in flight",
    PERF_ANALYZER: "perf_analyzer",
    OWN: "our own client, in Python",
}


def _client(name: str) -> str:
    """Returns the client to use; auto falls back to our own."""
    if name == OWN or perf_analyzer.works():
        return name
    if name == PERF_ANALYZER:
        raise ValueError(
            f"--client perf_analyzer: {perf_analyzer.PROGRAM} is not there or does not start: run "
            "`make serve-setup`, or choose --client own"
        )
    return OWN


def _rows(options: argparse.Namespace, model: str, largest: int) -> RequestRows:
    num_rows = max(largest, min(_MAX_ROWS, 16 * largest))
    if options.checkpoint_dir:
        return rows_of_data_set(options.checkpoint_dir, options.dataset_path, num_rows)
    if options.dataset_path:
        raise ValueError("--dataset_path is of a --checkpoint_dir, which is not given")
    if not options.model_repository:
        raise ValueError(
            "a server does not report the allowed ids: give --model_repository, or "
            "--checkpoint_dir for rows of the data set"
        )
    return drawn_rows(entry_interface(options.model_repository, model), num_rows)


def _wait(url: str, models: list[str], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    for model in models:
        with Client(url, model) as client:
            client.wait_until_ready(max(0.0, deadline - time.monotonic()))


def _check(options: argparse.Namespace, models: list[str]) -> None:
    if not all(models) or len(set(models)) < len(models):
        raise ValueError(
            f"--model_name is {options.model_name}; allowed: a name, or different ones, like a,b"
        )
    for name in ("requests", "repeats"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} is {getattr(options, name)}; allowed: 1 or more")
    for name in ("seconds", "warmup_seconds", "wait_s"):
        value = getattr(options, name)
        if not 0 <= value < math.inf or (name == "seconds" and not value):
            least = "more than 0" if name == "seconds" else "0 or more"
            raise ValueError(f"--{name} is {value:g}; allowed: {least}, and finite")


def _files(output: Path) -> tuple[Path, Path]:
    """Returns the CSV and the PNG, and checks that both can be written.

    Raises:
        ValueError: one of them cannot.
    """
    if not output.name:
        raise ValueError(f"--output is {output}; allowed: a path of files, like runs/latency")
    files = (output.with_name(f"{output.name}.csv"), output.with_name(f"{output.name}.png"))
    for path in files:
        existed = path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab"):
                pass
            if not existed:
                path.unlink()
        except OSError as error:
            raise ValueError(
                f"--output {output}: {path} cannot be written ({error.strerror}): choose another"
            ) from None
    return files


def _numbers(options: argparse.Namespace, name: str, most: float = math.inf) -> list[int]:
    text = getattr(options, name)
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1 or max(numbers) > most or len(set(numbers)) < len(numbers):
        bounds = "from 1 on" if most == math.inf else f"from 1 to {most:,}"
        raise ValueError(f"--{name} is {text}; allowed: different numbers {bounds}, like 1,64")
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deployment.evaluate_latency",
        description="Measures latency and throughput of served models.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model_name", required=True, help="of the served model; several: a,b")
    add("--url", default="127.0.0.1:8001", help="host:port of the server's gRPC")
    add("--wait_s", type=float, default=0.0, help="seconds to wait for server and models")
    add("--model_repository", help="served repository, whose interface limits random ids")
    add("--checkpoint_dir", help="deployed checkpoint, whose data set is sent instead")
    add("--dataset_path", help="folder of that data set, if it has moved")
    add("--batch_sizes", default="1,64,2048", help="rows per request")
    add(
        "--concurrency",
        default="1",
        help=f"requests in flight, up to {_MAX_CONCURRENCY:,}",
    )
    add("--seconds", type=float, default=3.0, help="of a measurement, after its warm-up")
    add("--warmup_seconds", type=float, default=1.0, help="of each measurement")
    add("--requests", type=int, default=100, help="of a measurement at least")
    add("--repeats", type=int, default=1, help="rounds; the table and the plot have medians")
    add(
        "--client",
        default=AUTO,
        choices=(AUTO, PERF_ANALYZER, OWN),
        help="client; auto: perf_analyzer if it starts and prepares requests within seconds (batch "
        "size^2 x concurrency up to 8 million), else our own client",
    )
    add("--output", type=Path, default=Path("runs/latency"), help="path of both files, less suffix")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 after an error, 130 after Ctrl-C."""
    flags = _parser().parse_args(argv)

    def work() -> None:
        evaluate(flags)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
