"""Metrics of scores, and the flags of evaluate_accuracy; the tool itself: tests/serving."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dataloading.pipeline.batch import Batch, Inputs
from deployment.client import evaluation_requests
from deployment.evaluate_accuracy import __main__ as evaluate_accuracy
from deployment.evaluate_accuracy import evaluation
from deployment.evaluate_accuracy.evaluation import ScoreMetrics


def test_auc_and_log_loss_by_hand():
    metrics = ScoreMetrics()
    metrics.update(np.array([1, 0], np.float32), np.array([0.75, 0.5], np.float32), None)
    metrics.update(np.array([1, 0], np.float32), np.array([0.25, 0.25], np.float32), None)
    actual = metrics.result()
    # Among four pairs, two are right, one is wrong and one is a tie.
    assert actual["auc"] == 2.5 / 4
    right = (0.75, 0.5, 0.25, 0.75)
    assert actual["log_loss"] == pytest.approx(-sum(map(math.log, right)) / 4)


def test_score_rounded_to_one():
    metrics = ScoreMetrics()
    metrics.update(np.array([0, 1], np.float32), np.array([1, 1], np.float32), None)
    assert metrics.result()["log_loss"] == pytest.approx(25 * math.log(2) / 2)


def test_lists_by_hand():
    """Three candidate lists of four; the positive is the first of each."""
    metrics = ScoreMetrics(list_length=4, k=2)
    items = np.array([[9, 1, 2, 3], [9, 1, 2, 3], [9, 1, 2, 3]])
    scores = np.array([[0.9, 0.1, 0.2, 0.3], [0.5, 0.6, 0.1, 0.2], [0.1, 0.2, 0.3, 0.4]])
    labels = np.tile([1, 0, 0, 0], 3).astype(np.float32)
    metrics.update(labels, scores.astype(np.float32).reshape(-1), items.reshape(-1))
    actual = metrics.result()
    assert list(actual) == ["hr@2", "ndcg@2", "log_loss"]
    assert actual["hr@2"] == 2 / 3
    assert actual["ndcg@2"] == pytest.approx((1 + math.log(2) / math.log(3)) / 3)


class Rows:
    """Two batches of three rows, of which row 1 is padding."""

    num_samples, failure = 5, ""

    def dataset(self):
        for first in (0, 3):
            ids = np.arange(first, first + 3, dtype=np.int32)[:, None]
            weights = np.float32(ids != 1)
            yield Batch(Inputs(np.zeros((3, 0), np.float32), (ids,)), np.float32(ids % 2), weights)
        if self.failure:
            raise RuntimeError("a stack trace")


@pytest.fixture
def plain_requests(monkeypatch):
    monkeypatch.setattr(evaluation_requests, "interface_of", lambda trained: None)
    ids = lambda trained, interface, inputs: {"ids": inputs.categorical[0]}  # noqa: E731
    monkeypatch.setattr(evaluation_requests, "request_arrays", ids)


@pytest.mark.parametrize(
    ("max_rows", "wanted"),
    [(None, [[0, 2], [3, 4, 5]]), (4, [[0, 2], [3, 4]]), (2, [[0, 2]]), (9, [[0, 2], [3, 4, 5]])],
)
def test_requests_without_padding(plain_requests, max_rows, wanted):
    actual = list(evaluation_requests.labelled_requests(SimpleNamespace(), Rows(), max_rows))
    assert [request.arrays["ids"][:, 0].tolist() for request in actual] == wanted
    assert [r.labels.tolist() for r in actual] == [[i % 2 for i in ids] for ids in wanted]
    assert all(request.items is None for request in actual)


def test_loader_errors(plain_requests):
    rows = Rows()
    rows.failure, rows.num_samples = "test/city.bin: row 7 is bad", 9
    with pytest.raises(ValueError, match="^test/city.bin: row 7 is bad$"):
        list(evaluation_requests.labelled_requests(SimpleNamespace(), rows))
    rows.dataset = lambda: iter([None])
    rows.failure = ""
    with pytest.raises(AttributeError):
        list(evaluation_requests.labelled_requests(SimpleNamespace(), rows))


def test_choice_of_split():
    def trained(kind, *splits):
        config = SimpleNamespace(data=SimpleNamespace(dataset_type=kind))
        spec = SimpleNamespace(source_spec=splits, origin="f.yaml")
        return SimpleNamespace(config=config, spec=spec, path="p")

    actual = trained("tf_raw", "train", "validation", "test")
    assert [evaluation.split_of(actual, w) for w in ("auto", "train")] == ["test", "train"]
    assert evaluation.split_of(trained("tf_raw", "validation"), "auto") == "validation"
    assert evaluation.split_of(trained("synthetic"), "auto") is None
    with pytest.raises(ValueError, match="--eval_mapping test: p was trained on synthetic rows"):
        evaluation.split_of(trained("synthetic"), "test")


# The flag that the message names first, and the command line.
INVALID = """
--batch_size: --batch_size=0
--tolerance: --trained --tolerance=-1
--url: --model=m --url=u
--feature_spec: --feature_spec=f.yaml
--checkpoint_dir absent:
"""


@pytest.mark.parametrize("case", INVALID.split("\n")[1:-1])
def test_invalid_flags(case, capsys):
    name, _, flags = case.partition(":")
    assert evaluate_accuracy.main(["--checkpoint_dir=absent", *flags.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {name}")
