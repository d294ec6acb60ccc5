"""A deployed DLRM compared with its plain SavedModel, in the Python backend of one server.

Needs `make serve-setup`. Each side is measured in turn, the others are loaded and idle.
"""

import dataclasses
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from distributed_embeddings.ops import kernels

import dlrm
from benchmarks.harness.result_page import (
    Page,
    QuickOptions,
    in_turns,
    parse,
    refuse,
    summary,
    table,
)
from deployment.client import perf_analyzer
from deployment.client.client import Client
from deployment.client.closed_loop import ClosedLoop
from deployment.client.drawn_requests import drawn_request
from deployment.client.latency_statistics import Timing
from deployment.deploy.deploy_options import LocalOptions
from deployment.deploy.deployer import deploy
from deployment.model.served_model import interface_of
from deployment.model.trained_model import open_checkpoint, restored_model
from deployment.serve.server import running
from deployment.serving.interface import Interface, ServedTensor
from deployment.triton.config_pbtxt import (
    CONFIG_FILE,
    CPU,
    Batching,
    Instances,
    model_config,
    write_config,
)

# Sizes of tables as they occur in click logs: some large ones, many small ones.
CARDINALITIES = (
    *(200_000, 200_000, 150_000, 100_000, 100_000, 50_000, 40_000, 20_000, 12_000, 10_000),
    *(7_000, 5_000, 2_000, 1_500, 1_000, 500, 300, 100, 60, 30, 25, 20, 10, 10, 4, 3),
)
SIZES = {
    "paper": ("--embedding_dim=128", "--bottom_mlp_dims=512,256,128")
    + ("--top_mlp_dims=1024,1024,512,256,1",),
    "demo": ("--embedding_dim=16", "--bottom_mlp_dims=64,16", "--top_mlp_dims=128,64,1"),
}
MAX_BATCH_SIZE = 2048
PLAIN = "plain SavedModel"
_PLAIN_MODEL = Path(__file__).parent / "peers/plain_saved_model.py"  # for Triton alone

# Our sides, and how each is deployed.
DEPLOYED = {
    "fp32": {"monolithic": True},
    "bf16": {"monolithic": True, "precision": "bf16"},
    "fp32, ensemble": {},
    "fp32, int8 tables": {"monolithic": True, "quantize_tables": "int8", "check_rows": 20_000},
}
EXACT = ("fp32", "fp32, ensemble")  # float32 scores of exact tables
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


def model_name(size: str, side: str) -> str:
    return f"{size}_{side}".replace(", ", "_").replace(" ", "_")


def train(size: str, folder: Path) -> Path:
    """Trains some steps on generated clicks; returns the folder of the checkpoint."""
    checkpoint = folder / f"checkpoint_{size}"
    rows = ",".join(map(str, CARDINALITIES))
    data = ("--dataset_type=synthetic", f"--synthetic_dataset_cardinalities={rows}")
    length = ("--synthetic_dataset_train_batches=10", "--synthetic_dataset_valid_batches=5")
    flags = ("--batch_size=2048", "--evals_per_epoch=0", "--seed=1", "--cpu", "--learning_rate=1")
    where = (f"--run_dir={folder / 'run'}", f"--save_checkpoint_path={checkpoint}")
    status = dlrm.main(["dlrm", *data, *length, *flags, *where, *SIZES[size]])
    if status:
        raise RuntimeError(f"the training ended with status {status}")
    return checkpoint


def deploy_all(size: str, checkpoint: Path, repository: Path) -> Interface:
    """Deploys all sides; returns what requests look like."""
    for side, options in DEPLOYED.items():
        settings = {"model_name": model_name(size, side), "max_batch_size": MAX_BATCH_SIZE}
        print(deploy(LocalOptions(str(checkpoint), repository, **settings, **options)))
    trained = open_checkpoint(str(checkpoint))
    interface = interface_of(trained)
    deploy_plainly(trained, interface.inputs, repository / model_name(size, PLAIN))
    return interface


def deploy_plainly(trained, inputs: tuple[ServedTensor, ...], folder: Path) -> None:
    """The peer: the trained Keras model with a signature, saved, and a few lines around it."""
    # A plain SavedModel needs nothing but TensorFlow where it is served.
    config = trained.config.replace(interaction="dot_tensorflow")
    with kernels.disabled():
        model = restored_model(dataclasses.replace(trained, config=config))
    num_features = len(trained.shape.feature_names)

    class Plain(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec([None, *t.dims], t.dtype, t.name) for t in inputs]
        )
        def score(self, numerical_features, categorical_features):
            ids = tuple(tf.split(categorical_features, num_features, axis=1))
            return {"scores": tf.sigmoid(model((numerical_features, ids)))}

    plain = Plain()
    plain.variables_of_model = model.variables
    with kernels.disabled():
        tf.saved_model.save(plain, str(folder / "1/saved_model"), plain.score)
    shutil.copy(_PLAIN_MODEL, folder / "1/model.py")
    config = model_config(
        folder.name,
        {"backend": "python"},
        inputs,
        [ServedTensor("scores", "float32", (1,))],
        Batching(MAX_BATCH_SIZE, dynamic=True, max_queue_delay_us=0),
        Instances(CPU, 1),
        parameters={"EXECUTION_ENV_PATH": os.path.abspath(".venv")},
    )
    write_config(config, folder / CONFIG_FILE)


def measure(folder: Path, sizes: Sequence[str], rounds: int) -> Timings:
    """Trains, deploys, serves and measures."""
    timings, repository = defaultdict(list), folder / "repository"
    interfaces = {size: deploy_all(size, train(size, folder), repository) for size in sizes}
    with running(repository, folder / "server.log") as server:
        rows = {
            size: drawn_request(interface, ROWS, np.random.default_rng(0))
            for size, interface in interfaces.items()
        }
        for size in sizes:
            _check_scores(server.url, size, rows[size])
        turns = [(size, side) for size in sizes for side in (*DEPLOYED, PLAIN)]
        for traffic in SETTINGS:
            for size, side in in_turns(turns, rounds):
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
    args = parse(QuickOptions, argv, "serving", __doc__)
    sizes, rounds = (("demo",), 1) if args.quick else (tuple(SIZES), ROUNDS)
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
        timings = measure(Path(folder), sizes, rounds)
    for size in sizes:
        results(timings, size, page)
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
