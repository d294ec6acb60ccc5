"""Permutation importance of a model whose use of each feature is known."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from nn.metrics.evaluator import ClickEvaluator
from nn.metrics.importance import permutation_importance
from training.importance_report import table


def first_numerical(inputs):
    return inputs.numerical[:, :1]


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("importance") / "rows"
    return write_dataset(folder, synthetic_spec([10], num_numerical=2), {"test": 500})


def test_importance_by_scikit_learn(spec):
    dataset = StoredDataset(spec, "test", 64)
    evaluator = ClickEvaluator(first_numerical, dataset)
    metrics, batches = dict(evaluator.evaluate()), []
    result = permutation_importance(evaluator, metrics, 2, 7, lambda: batches.append(1))
    assert len(batches) == 3 * 2 * evaluator.num_batches
    changes_of = {name: tuple(changes) for name, *changes in result}
    drops = [importance.auc_drop for importance in result]
    assert drops == sorted(drops, reverse=True) and len(drops) == 3
    assert changes_of["num_1"] == changes_of["cat_0"] == (0, 0, 0, 0), "the model ignores them"

    (whole,) = StoredDataset(spec, "test", 500).dataset()
    labels, logits = whole.labels.numpy()[:, 0], whole.inputs.numerical.numpy()[:, 0]
    changes = []
    for repeat in range(2):
        other = logits[np.random.default_rng([7, repeat]).permutation(500)]
        losses = [log_loss(labels, 1 / (1 + np.exp(-np.float64(x)))) for x in (logits, other)]
        drop = roc_auc_score(labels, logits) - roc_auc_score(labels, other)
        changes.append((drop, losses[1] - losses[0]))
    (drop, rise), (drop_std, rise_std) = np.mean(changes, axis=0), np.std(changes, axis=0, ddof=1)
    np.testing.assert_allclose(changes_of["num_0"], (drop, drop_std, rise, rise_std), atol=1e-6)
    assert dict(evaluator.evaluate()) == metrics, "the evaluator reads the samples as they are"


def test_one_permutation(spec):
    """It has no standard deviation."""
    evaluator = ClickEvaluator(first_numerical, StoredDataset(spec, "test", 64))
    result = permutation_importance(evaluator, dict(evaluator.evaluate()), 1, 7)
    assert all(np.isnan([i.auc_drop_std, i.log_loss_rise_std]).all() for i in result)
    _, first, *_ = table(result)
    assert "±" not in first and "nan" not in first
    assert first.split()[:2] == [result[0].feature, f"{result[0].auc_drop:.5f}"]
