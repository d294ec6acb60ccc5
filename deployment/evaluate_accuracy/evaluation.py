"""Comparison of a served model with the trained one, over the same rows."""

import contextlib
import itertools
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deployment.client.evaluation_requests import LabelledRequest, labelled_requests
from deployment.client.served_tensors import ServedTensors, served_tensors
from deployment.evaluate_accuracy.options import AccuracyOptions
from deployment.model.evaluated_samples import described
from deployment.model.served_model import interface_of
from deployment.model.trained_model import TrainedModel, evaluation_rows, restored_model
from deployment.serving.interface import Interface
from nn.metrics.classification import make_metrics
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives
from recipes.from_flags import evaluation_split
from runtime.logs.dlll import DlllWriter, stdout_line

# A score of 1 in float32 stands for anything above 1 - 2^-25, whose log loss is finite.
_SMALLEST = 2.0**-25

_WARMUP_REQUESTS = 10  # of NVIDIA's tool

DIFFERENT = 1  # exit status if served and trained model differ by more than --tolerance


class EvaluationResult(NamedTuple):
    """Scores float32 [rows] of a number of requests, their metrics, and seconds of each request."""

    metrics: dict[str, float]
    scores: np.ndarray
    requests: int
    elapsed_s: float
    latencies_s: Sequence[float]


class ScoreMetrics:
    """Metrics of probabilities, the answers of a served model.

    Training and evaluation compute them from logits. The sigmoid rounds some of these to the same
    score, which changes the AUC by less than 1e-6.

    Args:
        list_length: rows per candidate list; None for independent samples.
        k: k of HR@k and NDCG@k.
        auc_thresholds: number of bins of an approximate AUC; None: the exact AUC.
    """

    def __init__(
        self, list_length: int | None = None, k: int = 10, auc_thresholds: int | None = None
    ):
        self._length, self._k, self._is_exact = list_length, k, auc_thresholds is None
        self._order = make_metrics(auc_thresholds)  # used for the AUC alone
        self._losses, self._rows = 0.0, 0
        self._ranks = np.zeros(list_length or 0, np.int64)

    def update(self, labels: np.ndarray, scores: np.ndarray, items: np.ndarray | None) -> None:
        """Adds labels, 0 or 1, scores float32 in [0, 1], and items of whole candidate lists, [rows]
        each."""
        if self._is_exact:  # depends on the order alone
            self._order.update(labels, scores)
        else:
            with np.errstate(divide="ignore"):  # bins are those of probabilities
                self._order.update(labels, np.log(scores) - np.log1p(-scores))
        right = np.where(labels > 0, scores, 1 - scores.astype(np.float64))
        self._losses -= float(np.log(np.maximum(right, _SMALLEST)).sum())
        self._rows += len(labels)
        if self._length is not None:
            lists = (column.reshape(-1, self._length) for column in (items, labels, scores))
            self._ranks += np.bincount(ranks_of_positives(*lists), minlength=self._length)

    def result(self) -> dict[str, float]:
        """Returns "auc", NaN for rows of one class, and "log_loss" in nats; for candidate lists
        "hr@k", "ndcg@k" and "log_loss"."""
        order = self._order.result()
        log_loss = {"log_loss": self._losses / self._rows}
        if self._length is None:
            return {"auc": order.auc} | log_loss
        hits = {
            f"{n}@{self._k}": f(self._ranks, self._k) for n, f in (("hr", hit_rate), ("ndcg", ndcg))
        }
        return hits | log_loss


def evaluate(options: AccuracyOptions) -> int:
    """Evaluates a served model, and prints the result; returns the exit status."""
    trained = described(options)
    split = split_of(trained, options.eval_mapping)
    rows = evaluation_rows(trained, options.batch_size, split or "auto")
    requests = labelled_requests(trained, rows, options.num_rows)
    name = options.model_name or trained.recipe
    metrics = _metrics(trained, rows, options.auc_thresholds)
    with _scorer(options, name, interface_of(trained)) as (score, latencies_s):
        served = measure(requests, score, metrics, latencies_s, options.print_freq)
    where = options.model or f"{name} at {options.url}"
    print(
        f"{where}, {f'rows of {split}' if split else 'synthetic rows'}: "
        f"{len(served.scores):,} rows in {served.requests:,} requests, "
        f"{served.elapsed_s:.2f} s, {len(served.scores) / served.elapsed_s:,.0f} rows/s "
        "with the reading of rows"
    )
    print(f"served      {_readable(served.metrics)}")
    if options.log_path:
        log_original(served, options.batch_size, options.log_path)
    if not options.trained:
        return 0
    own = measure_trained(trained, rows, options)
    print(f"trained     {_readable(own.metrics)}")
    differences = {name: served.metrics[name] - own.metrics[name] for name in own.metrics}
    largest = float(np.abs(served.scores - own.scores).max())
    print(f"difference  {_readable(differences, '+.2e')}  largest of a score {largest:.2e}")
    over = {
        name: value
        for name, value in differences.items()
        # The AUC of rows of one class is not a number.
        if not (abs(value) <= options.tolerance or (name == "auc" and math.isnan(value)))
    }
    if over:
        print(
            f"the served model is another than the trained one: {_readable(over, '+.2e')}; "
            f"allowed is {options.tolerance:g} (--tolerance)",
            file=sys.stderr,
        )
    return DIFFERENT if over else 0


def log_original(result: EvaluationResult, batch_size: int, path: Path) -> None:
    """Logs a result under the names of NVIDIA's tool: prints it, and writes a DLLL file.

    As there, the first requests are not measured, if there are more.
    """
    latencies_s = result.latencies_s[_WARMUP_REQUESTS:] or result.latencies_s
    mean = float(np.mean(latencies_s))
    data = {
        "mean_inference_throughput": batch_size / mean,
        "mean_inference_latency": mean,
        "auc": result.metrics.get("auc"),
        "test_loss": result.metrics["log_loss"],
    }
    writer = DlllWriter(path, append=False)
    writer.log([], data)
    writer.close()
    print(stdout_line((), data, {}))
    print("DONE")


def split_of(trained: TrainedModel, wanted: str) -> str | None:
    """Returns the split of `--eval_mapping`; None for synthetic samples, which have no splits."""
    if trained.config.data.dataset_type != "synthetic":
        return evaluation_split(wanted, "eval", trained.spec)
    if wanted != "auto":
        raise ValueError(
            f"--eval_mapping {wanted}: {trained.path} was trained on synthetic rows, which have no "
            "splits: leave the flag out"
        )
    return None


def measure(
    requests: Iterable[LabelledRequest],
    score,
    metrics: ScoreMetrics,
    latencies_s: Sequence[float] = (),
    print_freq: int | None = None,
) -> EvaluationResult:
    """Scores requests, in order, by a function from tensors of requests to their scores.

    The function appends the seconds of each request to `latencies_s`. Every `print_freq` requests
    a line is printed.
    """
    scores: list[np.ndarray] = []
    started = time.perf_counter()
    requests, sent = itertools.tee(requests)  # which are read ahead of their answers
    for request, answer in zip(requests, score(r.arrays for r in sent), strict=False):
        scores.append(answer[:, 0])
        metrics.update(request.labels, scores[-1], request.items)
        if print_freq and len(scores) % print_freq == 0:
            latest = 1e3 * float(np.mean(latencies_s[-print_freq:]))
            print(f"requests {len(scores):,}  latency {latest:.3f} ms", flush=True)
    elapsed_s = time.perf_counter() - started
    every = np.concatenate(scores)
    return EvaluationResult(metrics.result(), every, len(scores), elapsed_s, latencies_s)


def measure_trained(trained: TrainedModel, rows, options: AccuracyOptions) -> EvaluationResult:
    """Scores the samples with the checkpoint's model in TensorFlow."""
    from nn.metrics.predictor import predict

    batches = predict(restored_model(trained), rows)

    def score(requests):
        for arrays, scores in zip(requests, batches, strict=False):
            # --max_rows may end within a batch.
            yield scores[: len(next(iter(arrays.values()))), None]

    requests = labelled_requests(trained, rows, options.num_rows)
    return measure(requests, score, _metrics(trained, rows, options.auc_thresholds))


def _metrics(trained: TrainedModel, rows, auc_thresholds: int | None) -> ScoreMetrics:
    length = getattr(rows, "list_length", None)
    return ScoreMetrics(length, trained.config.family_flags.topk if length else 0, auc_thresholds)


@contextlib.contextmanager
def _scorer(options: AccuracyOptions, name: str, interface: Interface):
    """Yields a function from requests to scores, and the list of seconds that it fills."""
    if options.model:
        from deployment.serving.scorer import RequestScorer
        from deployment.triton.model_folders import find_model

        model = find_model(options.model)
        scorer = RequestScorer(model.folder, dense_folder=model.dense_folder)
        tensors = ServedTensors({t.name: np.dtype(t.dtype).type for t in scorer.interface.inputs})
        latencies_s: list[float] = []

        def score(requests):
            for arrays in requests:
                started = time.perf_counter()
                scores = scorer.score(tensors.request(arrays))
                latencies_s.append(time.perf_counter() - started)
                yield scores

        yield score, latencies_s
        return
    from deployment.client.client import Client

    with Client(options.url, name, in_flight=options.in_flight) as client:
        if options.wait_s:
            client.wait_until_ready(options.wait_s)
        config = client.config()
        client.tensors = served_tensors(config, interface, options.fused_embedding)
        allowed = config.max_batch_size
        if 0 < allowed < options.batch_size:
            raise ValueError(
                f"--batch_size is {options.batch_size:,}, {name} at {options.url} takes "
                f"{allowed:,} rows at most: choose that or fewer"
            )
        yield client.scores, client.latencies_s


def _readable(metrics: Mapping[str, float], form: str = ".9f") -> str:
    return "  ".join(f"{name} {value:{form}}" for name, value in metrics.items())
