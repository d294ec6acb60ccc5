"""`python -m recipes.baseline`: table, files and errors."""

import json
import sys

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from config.command_line import parse
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import write_dataset
from dataloading.synthetic.rows import synthetic_spec
from recipes import api
from recipes.baseline import comparison
from recipes.baseline.__main__ import main
from recipes.registry import DLRM

MODELS = ["constant", "popularity", "logistic regression", "LightGBM"]


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison") / "rows"
    spec = synthetic_spec([50, 9], num_numerical=2)
    write_dataset(folder, spec, {"train": 1500, "validation": 300, "test": 300})
    return folder


def run(data_set, output, *flags):
    return main([f"--dataset_path={data_set}", f"--output={output}", *flags])


def test_comparison_after_a_training(data_set, tmp_path, capfd):
    flags = {"dataset_path": data_set, "embedding_dim": 8, "seed": 1, "epochs": 1}
    flags |= {"bottom_mlp_dims": "8", "top_mlp_dims": "8,1", "baseline": True}
    trained = api.train("dlrm", **flags, run_dir=tmp_path / "train")
    output = capfd.readouterr().out
    evaluated = api.evaluate(
        *("dlrm",),
        dataset_path=data_set,
        restore_checkpoint_path=trained.checkpoint,
        run_dir=tmp_path / "eval",
    )
    results = json.loads((tmp_path / "train/baseline.json").read_text())
    assert [row["model"] for row in results["models"]] == MODELS
    assert results["models"][0]["metrics"]["auc"] == 0.5
    metrics = results["checkpoint"]["metrics"]
    for name in ("auc", "log_loss", "normalized_entropy"):
        assert metrics[name] == pytest.approx(evaluated.metrics[name], abs=1e-6)
    assert f"\ndlrm                    {metrics['auc']:.5f}" in output
    gap = metrics["auc"] - max(row["metrics"]["auc"] for row in results["models"])
    assert f"the best simple model: {gap:+.5f}\n" in output
    assert trained.plots[-1] == tmp_path / "train/baseline.png"
    assert trained.plots[-1].stat().st_size > 10_000


def test_metrics_of_the_test_rows(data_set):
    """Metrics of scikit-learn for the predictions of the popularity."""
    task = comparison.task(FeatureSpec.from_yaml(data_set / "feature_spec.yaml"), None, 10_000)
    row = task.models[1]()
    feature = row.settings.split()[3].rstrip(",")
    ids, labels = (
        [np.fromfile(data_set / split / f"{name}.bin", np.int8) for split in ("train", "test")]
        for name in (feature, "label")
    )
    mean, added = labels[0].mean(), int(row.settings.split()[4])
    counts, positives = (np.bincount(ids[0], weights, 50) for weights in (None, labels[0]))
    predictions = ((positives + added * mean) / (counts + added))[ids[1]]
    assert row.metrics["auc"] == pytest.approx(roc_auc_score(labels[1], predictions), abs=1e-6)
    assert row.metrics["log_loss"] == pytest.approx(log_loss(labels[1], predictions), abs=1e-6)


@pytest.mark.parametrize(
    ("package", "name"), [("sklearn", "scikit-learn"), ("lightgbm", "lightgbm")]
)
def test_missing_package(package, name, data_set, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert run(data_set, tmp_path / "out") == 2
    message = f"packages that are not installed: install them (pip install {name})"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=f"pip install {name}"):
        api.train("dlrm", dataset_path=data_set, baseline=True, run_dir=tmp_path / "run")
    assert not (tmp_path / "run/log.json").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"save_checkpoint_path": None}, "only read with --save_checkpoint_path"),
        ({"dataset_type": "synthetic"}, "only read with a data set in --dataset_path"),
    ],
)
def test_refused_flags(flags, message, data_set):
    flags = {"dataset_path": data_set, "save_checkpoint_path": "model", **flags}
    names = [f"--{name}={value}" for name, value in flags.items() if value]
    with pytest.raises(ValueError, match=message):
        parse(["dlrm", "--baseline", *names], DLRM)


def test_labels_of_one_class(tmp_path, capsys):
    folder = tmp_path / "rows"
    write_dataset(folder, synthetic_spec([5], num_numerical=1), {"train": 40, "test": 40})
    np.zeros(40, bool).tofile(folder / "train/label.bin")
    assert run(folder, tmp_path / "out") == 2
    assert "expected labels of both classes in 'train', got 0 in all" in capsys.readouterr().err


def test_test_rows_of_one_class(tmp_path, capsys):
    folder = tmp_path / "rows"
    write_dataset(folder, synthetic_spec([5], num_numerical=1), {"train": 200, "test": 40})
    np.ones(40, bool).tofile(folder / "test/label.bin")
    assert run(folder, tmp_path / "out") == 0
    note = "auc is undefined on the test split: the models are not compared"
    assert note in capsys.readouterr().out
    assert (tmp_path / "out/baseline.png").stat().st_size > 10_000


def test_refused_paths(data_set, tmp_path, capsys):
    assert run(tmp_path / "absent", tmp_path / "out") == 2
    assert "--dataset_path" in capsys.readouterr().err
    assert run(data_set, tmp_path / "out", f"--checkpoint_path={tmp_path}") == 2
    assert run(data_set, tmp_path / "out", "--max_rows=0") == 2
    assert "--max_rows: expected at least 100, got 0" in capsys.readouterr().err
