"""Requests of raw rows compared with encoded ones: a DLRM on one Triton server, interleaved.

26 text columns with vocabularies of 100,000 values and 13 numbers; needs `make serve-setup`.
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

import dlrm
from benchmarks.harness import report
from benchmarks.harness.report import Page, command, summary, table
from benchmarks.serving.models import SIZES
from dataloading.spec.data_set_files import ENCODER_FOLDER, SPEC_FILE
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from deployment.client.client import Client
from deployment.client.closed_loop import ClosedLoop
from deployment.client.drawn_rows import drawn_rows
from deployment.client.latency_statistics import Timing
from deployment.deploy.deploy_options import ENCODED, RAW, DeployOptions
from deployment.deploy.deployer import deploy
from deployment.serve.server import running
from deployment.serving import interface as interfaces
from deployment.serving.raw.rows import RawRows
from preproc.encoding.encoder import Encoder
from preproc.encoding.numbers import Number
from preproc.encoding.profile import ColumnProfile
from preproc.encoding.vocabulary import Vocabulary

NUM_VALUES, NUM_TEXTS, NUM_NUMBERS = 100_000, 26, 13
ROWS = 8192  # that requests are made of
# Rows of a request, requests in flight, requests of a turn.
SETTINGS = ((1, 1, 800), (64, 1, 200), (2048, 1, 15), (1, 8, 1600), (2048, 2, 20))
LATENCY_TARGET, THROUGHPUT_TARGET = 1.3, 0.7  # raw divided by encoded
Timings = dict[tuple[str, tuple[int, int, int]], list[Timing]]


def write_data(folder: Path) -> None:
    """Writes a small data set, and an encoder whose texts have 8 characters."""
    spec = synthetic_spec((NUM_VALUES + 1,) * NUM_TEXTS, 1, num_numerical=NUM_NUMBERS)
    write_dataset(folder, spec, {"train": 4096, "test": 1024}, seed=0)
    content = yaml.safe_load((folder / SPEC_FILE).read_text())
    rng = np.random.default_rng(0)
    counts = pa.array(np.arange(NUM_VALUES, 0, -1))
    features = []
    for name in content["channel_spec"]["numerical"]:
        scale = {"transformation": "standardize", "mean": 3.5, "deviation": 2.0}
        features.append(Number(name=name, column=name, fill=3.5, **scale))
    for name in content["channel_spec"]["categorical"]:
        values = [f"{n:08x}" for n in rng.choice(2**32, NUM_VALUES, replace=False)]
        texts = {"name": name, "column": name, "values": pa.array(values), "dtype": "int32"}
        features.append(Vocabulary(counts=counts, **texts))
    profile = ColumnProfile(4096, 0, quantiles=tuple(np.linspace(-5, 20, 101)))
    numbers = {feature.name: profile for feature in features if isinstance(feature, Number)}
    encoder = Encoder(tuple(features), profile=numbers)
    encoder.save(folder / ENCODER_FOLDER)
    content.setdefault("metadata", {})[ENCODER_FOLDER] = encoder.digest
    (folder / SPEC_FILE).write_text(yaml.safe_dump(content, sort_keys=False))


def deploy_both(folder: Path) -> Path:
    """Trains a step and deploys a model of raw and one of encoded requests; returns the
    repository."""
    write_data(folder / "data")
    where = [f"--dataset_path={folder / 'data'}", f"--save_checkpoint_path={folder / 'model'}"]
    flags = ["--batch_size=4096", "--valid_batch_size=1024", "--epochs=1", "--seed=1", "--cpu"]
    status = dlrm.main(["dlrm", *where, f"--run_dir={folder / 'run'}", *flags, *SIZES["paper"]])
    if status:
        raise RuntimeError(f"the training ended with status {status}")
    for inputs in (RAW, ENCODED):
        settings = {"model_name": inputs, "inputs": inputs, "monolithic": True}
        print(deploy(DeployOptions(str(folder / "model"), folder / "repository", **settings)))
    return folder / "repository"


def measure(rounds: int, folder: Path) -> Timings:
    """Deploys, serves and measures."""
    repository = deploy_both(folder)
    version = repository / RAW / "1"
    interface = interfaces.read(version)
    raw = drawn_rows(version, interface, ROWS, np.random.default_rng(0))
    texts = {n: a.ravel() if a.dtype != object else a.ravel().tolist() for n, a in raw.items()}
    rows = {RAW: raw, ENCODED: RawRows(version, interface).encode(texts)}
    timings = defaultdict(list)
    with running(repository, folder / "server.log") as server:
        scores = []
        for side, arrays in rows.items():
            first = {name: array[:2048] for name, array in arrays.items()}
            with Client(server.url, side) as client:
                scores.append(client.ask(client.prepare(first, side)))
        if not np.array_equal(*scores):
            raise RuntimeError("scores of raw and encoded requests differ")
        for number in range(rounds):
            for setting in SETTINGS:
                for side in (RAW, ENCODED)[:: 1 if number % 2 else -1]:
                    timing = measure_turn(server.url, side, rows[side], *setting)
                    timings[side, setting].append(timing)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return timings


def measure_turn(url: str, side: str, rows, batch_size: int, in_flight: int, requests: int):
    """Sends requests after a warm-up by our own client, as callers in Python do."""
    with ClosedLoop(url, side, rows, batch_size, in_flight) as loop:
        loop.run(0, min_requests=max(5, requests // 10))
        return loop.run(0, min_requests=requests)


def results(timings: Timings, page: Page) -> None:
    """Adds the table and the verdicts."""
    lines = []
    for setting in SETTINGS:
        batch_size, in_flight, _ = setting
        p50 = {
            s: np.array([t.percentiles_ms[0] for t in timings[s, setting]]) for s in (RAW, ENCODED)
        }
        speed = {
            s: np.array([batch_size * t.requests / t.elapsed_s for t in timings[s, setting]])
            for s in (RAW, ENCODED)
        }
        latency, throughput = (each[RAW] / each[ENCODED] for each in (p50, speed))
        for side in (ENCODED, RAW):
            ratios = [summary(r, ".2f") if side == RAW else "" for r in (latency, throughput)]
            cells = (summary(p50[side], ".2f"), summary(speed[side]), *ratios)
            lines.append((side, f"{batch_size:,}", in_flight, *cells))
        if (batch_size, in_flight) == (1, 1):
            ratio = float(np.median(latency))
            text = f"batch 1, p50 of raw divided by that of encoded requests: {ratio:.2f}"
            page.judge(text, f"at most {LATENCY_TARGET}", ratio <= LATENCY_TARGET)
        if batch_size == 2048:
            ratio = float(np.median(throughput))
            text = f"batch 2,048, {in_flight} in flight, throughput of raw by encoded: {ratio:.2f}"
            page.judge(text, f"at least {THROUGHPUT_TARGET}", ratio >= THROUGHPUT_TARGET)
    columns = ("requests", "rows of a request", "in flight", "p50 ms", "rows/s")
    page.add("Results", *table((*columns, "p50 raw / encoded", "rows/s raw / encoded"), lines))


def main(argv: Sequence[str] | None = None) -> int:
    args = report.parser_of(__doc__, rounds=5).parse_args(argv)
    facts = [
        f"{NUM_TEXTS} texts with vocabularies of {NUM_VALUES:,} values, {NUM_NUMBERS} numbers; "
        f"uniform values; `{' '.join(SIZES['paper'])}`",
        "tritonserver 2.51, Python backend, one instance of each model; server and client share "
        "the cores; medians [quartiles] over the rounds",
    ]
    page = Page("Raw and encoded requests", [command("raw_serving", args)], facts)
    with tempfile.TemporaryDirectory() as folder:
        timings = measure(args.rounds, Path(folder))
    results(timings, page)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
