"""Comparison of a served model with the trained one, over the same rows."""

import argparse
import collections
import contextlib
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from deployment.client.evaluation_requests import LabelledRequest, labelled_requests
from deployment.evaluate_accuracy.score_metrics import ScoreMetrics
from deployment.model.trained_model import (
    TrainedModel,
    evaluation_rows,
    open_checkpoint,
    restored_recipe,
)
from recipes.from_flags import evaluation_split

DIFFERENT = 1  # exit status if served and trained model differ by more than --tolerance


class EvaluationResult(NamedTuple):
    """Scores float32 [rows] of a number of requests, their metrics and time."""

    metrics: dict[str, float]
    scores: np.ndarray
    requests: int
    elapsed_s: float


def evaluate(options: argparse.Namespace) -> int:
    """Evaluates a served model, and prints the result; returns the exit status.

    Raises:
        ValueError: checkpoint or data set are invalid, or a request is refused.
        ServerLost: there is no server.
    """
    trained = open_checkpoint(options.checkpoint_dir, options.dataset_path)
    mapping = mapping_of(trained, options.eval_mapping)
    rows = evaluation_rows(trained, options.batch_size, mapping or "auto")
    requests = labelled_requests(trained, rows, options.max_rows)
    name = options.model_name or trained.recipe
    with _scorer(options, name) as score:
        served = measure(requests, score, _metrics(trained, rows))
    where = options.model or f"{name} at {options.url}"
    print(
        f"{where}, {f'rows of {mapping}' if mapping else 'synthetic rows'}: "
        f"{len(served.scores):,} rows in {served.requests:,} requests, "
        f"{served.elapsed_s:.2f} s, {len(served.scores) / served.elapsed_s:,.0f} rows/s "
        "with the reading of rows"
    )
    print(f"served      {readable(served.metrics)}")
    if not options.trained:
        return 0
    own = measure_trained(trained, rows, options)
    print(f"trained     {readable(own.metrics)}")
    differences = {name: served.metrics[name] - own.metrics[name] for name in own.metrics}
    largest = float(np.abs(served.scores - own.scores).max())
    print(f"difference  {readable(differences, '+.2e')}  largest of a score {largest:.2e}")
    over = {
        name: value
        for name, value in differences.items()
        if not (abs(value) <= options.tolerance or _is_of_one_class(name, value))
    }
    if over:
        print(
            f"the served model is another than the trained one: {readable(over, '+.2e')}; "
            f"allowed is {options.tolerance:g} (--tolerance)",
            file=sys.stderr,
        )
    return DIFFERENT if over else 0


def mapping_of(trained: TrainedModel, wanted: str) -> str | None:
    """Returns the split of `--eval_mapping`; None for synthetic samples.

    Raises:
        ValueError: the data set has no such split.
    """
    if trained.config.data.dataset_type != "synthetic":
        return evaluation_split(wanted, "eval", trained.spec)
    if wanted != "auto":
        raise ValueError(
            f"--eval_mapping {wanted}: {trained.path} was trained on synthetic rows, which have no "
            "mappings: leave the flag out"
        )
    return None


def measure(requests: Iterable[LabelledRequest], score, metrics: ScoreMetrics) -> EvaluationResult:
    """Scores requests, in order, by a function from tensors of requests to their scores."""
    scores: list[np.ndarray] = []
    # Requests are read ahead of their answers.
    waiting: collections.deque[LabelledRequest] = collections.deque()

    def arrays() -> Iterator[Mapping[str, np.ndarray]]:
        for request in requests:
            waiting.append(request)
            yield request.arrays

    started = time.perf_counter()
    for answer in score(arrays()):
        request = waiting.popleft()
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
    length = getattr(rows, "series_length", None)
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


def readable(metrics: Mapping[str, float], form: str = ".9f") -> str:
    """Formats metrics; the AUC of rows of one class is not a number."""
    return "  ".join(
        "auc none, there is one class only"
        if _is_of_one_class(name, value)
        else f"{name} {value:{form}}"
        for name, value in metrics.items()
    )


def _is_of_one_class(metric: str, value: float) -> bool:
    """Returns whether this is the AUC of rows of one class, or a difference of two such."""
    return metric == "auc" and math.isnan(value)
