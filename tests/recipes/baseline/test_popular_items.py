"""Popular items as a baseline of `ncf.py` and `sim.py`."""

import json

import numpy as np
import pytest

from dataloading.interactions.candidate_rules import list_length_key
from dataloading.spec.feature_spec import FeatureSpec
from recipes import api
from recipes.baseline.__main__ import main
from recipes.baseline.histories import popularity_auc
from tests import sequence_data
from tests.interaction_data import write_interactions

# Train has item 3 three times, item 1 twice, items 0 and 2 once each.
TRAIN = {"user": [0, 1, 2, 0, 1, 2, 3], "item": [3, 3, 3, 1, 1, 0, 2], "label": [1] * 7}
# Candidate lists of three: item 1 is first of 0, 1, 2; item 0 is third of 0, 3, 1; item 3 first;
# item 2 is second, because the equally popular item 0 ranks before it.
TEST = {
    "user": [1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0],
    "item": [0, 1, 2, 0, 3, 1, 3, 1, 0, 2, 0, 4],
    "label": [0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0],
}


def results_of(folder, output, *flags):
    assert main([f"--dataset_path={folder}", f"--output={output}", *flags]) == 0
    return json.loads((output / "baseline.json").read_text())


@pytest.fixture
def lists(tmp_path):
    spec = write_interactions(
        *(tmp_path / "rows", 4, 5),
        {"train": TRAIN, "test": TEST},
        {list_length_key("test"): 3},
    )
    spec.to_yaml(tmp_path / "rows/feature_spec.yaml")
    return tmp_path / "rows"


def test_popular_items_of_candidate_lists(lists, tmp_path, monkeypatch):
    flags = {"dataset_path": lists, "topk": 2, "factors": 4, "layers": "8,4", "epochs": 1}
    flags |= {"batch_size": 8, "seed": 1, "valid_batch_size": 12, "negative_samples": 1}
    trained = api.train("ncf", **flags, run_dir=tmp_path / "run")
    output = tmp_path / "out"
    monkeypatch.chdir(tmp_path)
    checkpoint = f"--checkpoint_path={trained.checkpoint}"
    results = results_of(lists, output, checkpoint)
    assert results["checkpoint"]["model"] == "neumf"
    assert not (tmp_path / "run/baseline.json").exists()
    assert main([f"--dataset_path={lists}", checkpoint]) == 0
    assert (tmp_path / "run/baseline.json").exists() and not (tmp_path / "runs").exists()
    assert main([f"--dataset_path={lists}"]) == 0
    assert (tmp_path / "runs/baseline-rows/baseline.json").exists()
    random, popular = (row["metrics"] for row in results["models"])
    second = np.log(2) / np.log(3)
    assert random == {"hr@2": 2 / 3, "ndcg@2": pytest.approx((1 + second) / 3)}
    assert popular == {"hr@2": 3 / 4, "ndcg@2": pytest.approx((2 + second) / 4)}
    restored = {"restore_checkpoint_path": trained.checkpoint, "topk": 2}
    evaluated = api.evaluate("ncf", dataset_path=lists, run_dir=tmp_path / "eval", **restored)
    for name in ("hr@2", "ndcg@2"):
        assert results["checkpoint"]["metrics"][name] == evaluated.metrics[name]


def test_popular_items_of_histories(tmp_path, capsys):
    sequence_data.write(tmp_path / "rows", 300)
    spec = FeatureSpec.from_yaml(tmp_path / "rows/feature_spec.yaml")
    results = results_of(tmp_path / "rows", tmp_path / "out")
    assert [row["model"] for row in results["models"]] == ["constant", "popularity"]
    auc = results["models"][1]["metrics"]["auc"]
    assert auc == popularity_auc(spec, "test") and 0.3 < auc < 0.7
    assert "test split of 300 rows\n" in capsys.readouterr().out
