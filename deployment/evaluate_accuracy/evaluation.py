"""Comparison of a served model with the trained one, over the same rows."""

import argparse
import contextlib
import itertools
import math
import sys
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from deployment.client.evaluation_requests import LabelledRequest, labelled_requests
from deployment.model.trained_model import (
    TrainedModel,
    evaluation_rows,
    open_checkpoint,
    restored_recipe,
)
from nn.metrics.classification import ExactMetrics
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives
from recipes.from_flags import evaluation_split

# A score of 1 in float32 stands for anything above 1 - 2^-25, whose log loss is finite.
_SMALLEST = 2.0**-25

DIFFERENT = 1  # exit status if served and trained model differ by more than --tolerance


class EvaluationResult(NamedTuple):
    """Scores float32 [rows] of a number of requests, their metrics and time."""

    metrics: dict[str, float]
    scores: np.ndarray
    requests: int
    elapsed_s: float


class ScoreMetrics:
    """Metrics of probabilities, the answers of a served model.

    Training and evaluation compute them from logits. The sigmoid rounds some of these to the same
    score, which changes the AUC by less than 1e-6.

    Args:
        list_length: rows per candidate list; None for independent samples.
        k: k of HR@k and NDCG@k, for candidate lists.
    """

    def __init__(self, list_length: int | None = None, k: int = 10):
        self._length, self._k = list_length, k
        self._order = ExactMetrics()  # used for the AUC, which depends on the order alone
        self._losses, self._rows = 0.0, 0
        self._ranks = np.zeros(list_length or 0, np.int64)

    def update(self, labels: np.ndarray, scores: np.ndarray, items: np.ndarray | None) -> None:
        """Adds labels, 0 or 1, scores float32 in [0, 1], and items of whole candidate lists, [rows]
        each."""
        self._order.update(labels, scores)
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


def evaluate(options: argparse.Namespace) -> int:
    """Evaluates a served model, and prints the result; returns the exit status."""
    trained = open_checkpoint(options.checkpoint_dir, options.dataset_path)
    split = split_of(trained, options.eval_mapping)
    rows = evaluation_rows(trained, options.batch_size, split or "auto")
    requests = labelled_requests(trained, rows, options.max_rows)
    name = options.model_name or trained.recipe
    with _scorer(options, name) as score:
        served = measure(requests, score, _metrics(trained, rows))
    where = options.model or f"{name} at {options.url}"
    print(
        f"{where}, {f'rows of {split}' if split else 'synthetic rows'}: "
        f"{len(served.scores):,} rows in {served.requests:,} requests, "
        f"{served.elapsed_s:.2f} s, {len(served.scores) / served.elapsed_s:,.0f} rows/s "
        "with the reading of rows"
    )
    print(f"served      {_readable(served.metrics)}")
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


def measure(requests: Iterable[LabelledRequest], score, metrics: ScoreMetrics) -> EvaluationResult:
    """Scores requests, in order, by a function from tensors of requests to their scores."""
    scores: list[np.ndarray] = []
    started = time.perf_counter()
    requests, sent = itertools.tee(requests)  # which are read ahead of their answers
    for request, answer in zip(requests, score(r.arrays for r in sent), strict=False):
        scores.append(answer[:, 0])
        metrics.update(request.labels, scores[-1], request.items)
    elapsed_s = time.perf_counter() - started
    return EvaluationResult(metrics.result(), np.concatenate(scores), len(scores), elapsed_s)


def measure_trained(trained: TrainedModel, rows, options: argparse.Namespace) -> EvaluationResult:
    """Scores the samples with the checkpoint's model in TensorFlow."""
    from nn.metrics.predictor import predict

    model = restored_recipe(trained, options.batch_size).model
    batches = predict(model, rows)

    def score(requests):
        for arrays, scores in zip(requests, batches, strict=False):
            # --max_rows may end within a batch.
            yield scores[: len(next(iter(arrays.values()))), None]

    requests = labelled_requests(trained, rows, options.max_rows)
    return measure(requests, score, _metrics(trained, rows))


def _metrics(trained: TrainedModel, rows) -> ScoreMetrics:
    length = getattr(rows, "list_length", None)
    return ScoreMetrics(length, trained.config.collaborative.topk if length else 0)


@contextlib.contextmanager
def _scorer(options: argparse.Namespace, name: str):
    """Yields a function from requests to scores, by a deployed model's folder or a server."""
    if options.model:
        from deployment.serving.scorer import RequestScorer
        from deployment.triton.model_folders import find_model

        model = find_model(options.model)
        scorer = RequestScorer(model.folder, dense_folder=model.dense_folder)
        yield lambda requests: map(scorer.score, requests)
        return
    from deployment.client.client import Client

    with Client(options.url, name, in_flight=options.in_flight) as client:
        if options.wait_s:
            client.wait_until_ready(options.wait_s)
        allowed = client.config().max_batch_size
        if 0 < allowed < options.batch_size:
            raise ValueError(
                f"--batch_size is {options.batch_size:,}, {name} at {options.url} takes "
                f"{allowed:,} rows at most: choose that or fewer"
            )
        yield client.scores


def _readable(metrics: Mapping[str, float], form: str = ".9f") -> str:
    return "  ".join(f"{name} {value:{form}}" for name, value in metrics.items())
