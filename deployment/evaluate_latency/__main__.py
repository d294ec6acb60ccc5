"""Latency and throughput of served models by batch size and requests in flight.

    python -m deployment.evaluate_latency --model_name dlrm --model_repository repository \
        --batch_sizes 1,64,2048 --concurrency 1,16 --output latency

Dynamic batching scores the rows of requests that wait together (`rows_per_execution`).
"""

import itertools
import sys
import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np

from config.command import parse, separated
from config.flag import flag
from deployment import nvidia_flags
from deployment.client import perf_analyzer
from deployment.client.client import Client
from deployment.client.closed_loop import ClosedLoop
from deployment.client.drawn_requests import drawn_request, drawn_rows
from deployment.client.latency_statistics import Measurement, table, write_csv, write_original_csv
from deployment.client.served_tensors import served_tensors
from deployment.request_options import RequestOptions
from deployment.serving.interface import Interface
from deployment.triton.model_folders import entry_interface
from runtime.cli import exit_status
from runtime.files.outputs import check_writable

AUTO, PERF_ANALYZER, OWN = "auto", "perf_analyzer", "own"

_MAX_ROWS = 65_536  # of all requests, unless a single one has more
_MAX_CONCURRENCY = 1024  # each request in flight has its own thread and connection


@dataclass(frozen=True, kw_only=True)
class LatencyOptions(RequestOptions):
    """Measures latency and throughput of served models."""

    model_name: str = flag(MISSING, "of the served model; several: a,b")
    url: str = flag("127.0.0.1:8001", "host:port of the server's gRPC")
    model_repository: str | None = flag(
        None, "served repository, whose interface limits random ids", metavar="DIR"
    )
    num_benchmark_samples: int | None = flag(
        None, f"rows of all requests (default {_MAX_ROWS:,})", at_least=1
    )
    model_version: str | None = flag(None, "version of the model (default: the newest)")
    batch_sizes: tuple[int, ...] = flag(
        (1, 64, 2048), "rows per request", parse=separated(int), at_least=1
    )
    concurrency: tuple[int, ...] = flag(
        (1,), "requests in flight", parse=separated(int), at_least=1, at_most=_MAX_CONCURRENCY
    )
    seconds: float = flag(3.0, "of a measurement, after its warm-up", at_least=1e-6)
    warmup_seconds: float = flag(1.0, "of each measurement", at_least=0)
    requests: int = flag(100, "of a measurement at least", at_least=1)
    timeout_s: float | None = flag(None, "limit of a measurement", at_least=1e-6)
    client: str = flag(
        AUTO,
        "client; auto: perf_analyzer if it starts and prepares requests within seconds (batch "
        "size^2 x concurrency up to 8 million), else our own client",
        choices=(AUTO, PERF_ANALYZER, OWN),
    )
    result_path: Path | None = flag(None, "CSV file with the columns of NVIDIA's tool, too")
    output: Path = flag(Path("runs/latency"), "path of the CSV file, less suffix")


def evaluate(options: LatencyOptions) -> None:
    """Measures the models, writes `latency.csv`, and prints a table.

    Several models are measured alternately, setting by setting, so that other load on the machine
    affects all of them.
    """
    models, largest = options.model_name.split(","), max(options.batch_sizes)
    if not all(models) or len(set(models)) < len(models):
        raise ValueError(
            "--model_name: expected a name, or different ones like a,b, got " + options.model_name
        )
    if not options.output.name:
        raise ValueError(
            f"--output: expected a path of a file like runs/latency, got {options.output}"
        )
    csv = options.output.with_name(f"{options.output.name}.csv")
    check_writable(csv, "--output")
    if path := options.result_path:
        if path.suffix != ".csv":
            raise ValueError(f"--result_path: expected a CSV file like results.csv, got {path}")
        check_writable(path, "--result_path")
    client = _client(options.client)
    rows = dict.fromkeys(models, _rows(options, models[0], largest))
    if not (options.checkpoint_dir or options.dataset_path):
        rows |= {model: _rows(options, model, largest) for model in models[1:]}
    deadline = time.monotonic() + options.wait_s
    for model in models if options.wait_s else ():
        with Client(options.url, model) as connection:
            connection.wait_until_ready(max(0.0, deadline - time.monotonic()))
    served = [_MeasuredModel(options, model, *rows[model]) for model in models]
    print(f"measuring {', '.join(models)} at {options.url}; --client {client}", flush=True)
    settings = itertools.product(options.batch_sizes, options.concurrency, served)
    measurements = [
        model.measure(client, options, batch_size, concurrency)
        for batch_size, concurrency, model in settings
    ]
    print(table(measurements))
    write_csv(csv, measurements)
    if options.result_path:
        write_original_csv(options.result_path, measurements)
        print(f"wrote {options.result_path}")
    print(f"wrote {csv}")


class _MeasuredModel:
    def __init__(
        self,
        options: LatencyOptions,
        model: str,
        rows: Mapping[str, np.ndarray],
        interface: Interface | None,
    ):
        self._rows = rows
        url, largest = options.url, max(options.batch_sizes)
        self._url, self._name, self._version = url, model, options.model_version or ""
        with Client(url, model, version=self._version) as client:
            config = client.config()
            tensors = served_tensors(config, interface, options.fused_embedding)
            if interface is None:  # rows are drawn as the model takes them
                tensors = tensors._replace(are_encoded=False)
            self._tensors = tensors
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
        client: str,
        options: LatencyOptions,
        batch_size: int,
        concurrency: int,
    ) -> Measurement:
        request = self._url, self._name, self._rows, batch_size, concurrency
        same = {"tensors": self._tensors, "version": self._version}
        with (
            ClosedLoop(*request, **same) as loop,
            Client(self._url, self._runs) as runs,
            Client(self._url, self._name, **same) as whole,
        ):
            warm = loop.run(options.warmup_seconds, timeout_s=options.timeout_s)
            before, whole_before = runs.statistics(), whole.statistics()
            if client == AUTO:
                quick = perf_analyzer.is_quick(batch_size, concurrency)
                client = PERF_ANALYZER if quick else OWN
            if client == PERF_ANALYZER:
                # It takes a number of requests, not of seconds: that of the warm-up rate.
                number = round(options.seconds * warm.requests / warm.elapsed_s)
                number = max(options.requests, number)
                timeout_s = options.timeout_s
                timed = perf_analyzer.measure(*request, number, **same, timeout_s=timeout_s)
            else:
                timed = loop.run(options.seconds, options.requests, options.timeout_s)
            after, whole_after = runs.statistics(), whole.statistics()
        num_rows = after.inference_count - before.inference_count
        return Measurement(
            self._name,
            client,
            self._batching,
            batch_size,
            concurrency,
            timed.requests,
            timed.errors,
            timed.elapsed_s,
            timed.requests * batch_size / timed.elapsed_s,
            timed.mean_ms,
            *timed.percentiles_ms,
            num_rows / max(1, after.execution_count - before.execution_count),
            *_server_times_ms(whole_before, whole_after),
        )


def _server_times_ms(before, after) -> list[float]:
    """Returns the mean times of a request in the server: queue, input, computation, output."""
    before, after = before.inference_stats, after.inference_stats
    requests = max(1, after.success.count - before.success.count)
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    return [(getattr(after, p).ns - getattr(before, p).ns) / 1e6 / requests for p in parts]


def _client(name: str) -> str:
    if name == PERF_ANALYZER and not perf_analyzer.works():
        raise ValueError(
            f"--client perf_analyzer: {perf_analyzer.PROGRAM} is not there or does not start: run "
            "`make serve-setup`, or choose --client own"
        )
    return OWN if name == AUTO and not perf_analyzer.works() else name


def _rows(
    options: LatencyOptions, model: str, largest: int
) -> tuple[Mapping[str, np.ndarray], Interface | None]:
    """Returns rows of the data set and the interface of a model of it, or random rows of the
    served model's interface, and None.

    Uniform ids are the worst case for caches: rows of a data set, in which few ids are frequent,
    are looked up faster.
    """
    num_rows = max(largest, min(options.num_benchmark_samples or _MAX_ROWS, 16 * largest))
    if options.checkpoint_dir or options.dataset_path:
        return _rows_of_data_set(options, num_rows)
    if not options.model_repository:
        raise ValueError(
            "a server does not report the allowed ids: give --model_repository, or "
            "--checkpoint_dir or --dataset_path for rows of the data set"
        )
    folder, interface = entry_interface(options.model_repository, model)
    rng = np.random.default_rng(0)
    if interface.columns:
        return drawn_rows(folder, interface, num_rows, rng), None
    return drawn_request(interface, num_rows, rng), None


def _rows_of_data_set(options: LatencyOptions, num_rows: int):
    """First evaluation rows of the model, repeated if there are fewer, and their interface."""
    from deployment.client.evaluation_requests import labelled_requests
    from deployment.model.evaluated_samples import described
    from deployment.model.served_model import interface_of
    from deployment.model.trained_model import evaluation_rows

    trained = described(options)
    rows = evaluation_rows(trained, min(num_rows, _MAX_ROWS))
    parts = [request.arrays for request in labelled_requests(trained, rows, num_rows)]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    repeated = {k: np.take(v, np.arange(num_rows), axis=0, mode="wrap") for k, v in whole.items()}
    return repeated, interface_of(trained)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, 2 after an error, 130 after Ctrl-C."""

    def work() -> None:
        arguments = nvidia_flags.LATENCY.translate(argv)
        evaluate(parse(LatencyOptions, arguments, "deployment.evaluate_latency"))

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
