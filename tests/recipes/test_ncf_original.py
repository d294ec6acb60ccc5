"""Command lines and files of NVIDIA's NCF recipe."""

import re
import sys

import numpy as np
import pytest
import yaml

import main as entry
import ncf
from dataloading import describe
from dataloading.formats.torch_tensor import TensorChunk
from dataloading.pipeline.gather import Scattered
from dataloading.spec.feature_spec import FeatureSpec
from runtime.checkpoint import __main__ as checkpoint_tool
from runtime.files.torch_file import read_tensors
from tests import tastes
from tests.recipes.test_entry_scripts import in_process, lines
from tests.recipes.test_ncf import TINY, run
from tests.tables import arrays_of, check_same_arrays

SHORT = (*(flag for flag in TINY if not flag.startswith("-e=")), "-e=2")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interactions") / "rows"
    tastes.write(folder)
    return folder


@pytest.fixture(scope="module")
def trained(rows, tmp_path_factory):
    """Returns (folder of checkpoints, summary) of a NeuMF."""
    folder = tmp_path_factory.mktemp("trained")
    summary = run(rows, folder / "run", *SHORT, f"--checkpoint_dir={folder / 'model'}")
    return folder / "model", summary


def test_short_runs(rows, tmp_path, capsys):
    """A training without negatives, and a test of random weights."""
    assert run(rows, tmp_path, *SHORT[:-1], "-n", "0", "-e", "1")["steps"] == 2
    summary = run(rows, tmp_path, *TINY, "--mode", "test")
    assert 0 < summary["hr@3"] < 0.6
    assert "note: the weights are random" in capsys.readouterr().out


def test_model_file(torch, rows, trained, tmp_path, capsys):
    """The commands of the seed: training, then a test of its model.pth."""
    folder, summary = trained
    tested = run(rows, tmp_path, "--mode", "test", f"--checkpoint-path={folder}/model.pth", "-k=3")
    assert tested["hr@3"] == summary["best_accuracy"]
    again = ("--mode=test", f"--checkpoint_dir={tmp_path}/none", "-k=3")
    again += (f"--load_checkpoint_path={folder}/model.pth",)
    assert run(rows, tmp_path, *again)["hr@3"] == summary["best_accuracy"]
    assert "not used in this run (--mode eval): --checkpoint_dir" in capsys.readouterr().out


def test_exported_model_file(torch, trained, tmp_path, capsys):
    command = ["export", f"{trained[0]}/best", "--format", "torch", "--output"]
    assert checkpoint_tool.main([*command, f"{tmp_path}/a.pth"]) == 0
    written = (tmp_path / "a.pth", trained[0] / "model.pth")
    one, other = (read_tensors(file) for file in written)
    assert list(one) == list(other) and "mf_user_embed.weight" in one
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert checkpoint_tool.main(["inspect", f"{trained[0]}/model.pth"]) == 2
    assert "is a file of PyTorch" in capsys.readouterr().err


def test_training_from_a_model_file(torch, rows, trained, tmp_path, capsys):
    model = f"--load_checkpoint_path={trained[0]}/model.pth"
    shape = ("-f=", "--layers=", "-e=", "-l=")
    flags = (*(flag for flag in TINY if not flag.startswith(shape)), "-e=1", "-l=0")
    run(rows, tmp_path / "run", *flags, model, f"--checkpoint_dir={tmp_path / 'model'}")
    one, other = arrays_of(trained[0] / "best"), arrays_of(tmp_path / "model")
    names = [name for name in one if name.startswith(("dense/", "sparse/"))]
    assert len(names) == 11
    for name in names:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    resume = f"--resume={trained[0]}/model.pth"
    run(rows, tmp_path / "r", *flags, resume, code=entry.USER_ERROR)
    assert "holds weights and no state of a training" in capsys.readouterr().err
    torch.save({"mlp.0.weight": torch.zeros(2, 2)}, tmp_path / "x.pth")
    other = ("--mode=test", f"--load_checkpoint_path={tmp_path}/x.pth")
    run(rows, tmp_path, *other, code=entry.USER_ERROR)
    assert "expected the state_dict of NeuMF; it lacks final.bias" in capsys.readouterr().err


def test_scores_in_pytorch(torch, rows, trained, tmp_path):
    """The model of NVIDIA's recipe, in PyTorch, scores as ours does."""
    model = trained[0] / "model.pth"
    weights = torch.load(model, weights_only=True)
    files = [rows / f"test/{name}_0.bin" for name in ("user", "item")]
    users, items = (torch.from_numpy(np.fromfile(file, np.int32)).long() for file in files)

    def vectors(kind, ids):
        return weights[f"{kind}_embed.weight"][ids]

    x = torch.cat([vectors("mlp_user", users), vectors("mlp_item", items)], dim=1)
    for layer in range(2):
        x = torch.relu(x @ weights[f"mlp.{layer}.weight"].T + weights[f"mlp.{layer}.bias"])
    x = torch.cat([vectors("mf_user", users) * vectors("mf_item", items), x], dim=1)
    scores = torch.sigmoid(x @ weights["final.weight"].T + weights["final.bias"]).numpy()
    flags = ("--mode=predict", f"--predictions_path={tmp_path / 'ours.npy'}")
    run(rows, tmp_path / "run", *flags, f"--load_checkpoint_path={model}")
    np.testing.assert_allclose(np.load(tmp_path / "ours.npy"), scores.ravel(), rtol=1e-5, atol=1e-6)


def test_training_without_torch(rows, tmp_path, monkeypatch, capsys):
    """The checkpoint stays, and a note in the log file alone names the package."""
    monkeypatch.setitem(sys.modules, "torch", None)
    run(rows, tmp_path / "run", *SHORT[:-1], "-e=1", f"--checkpoint_dir={tmp_path / 'model'}")
    assert "not exported" not in capsys.readouterr().out
    assert "pip install torch" in (tmp_path / "run/log.json").read_text()
    assert (tmp_path / "model/best/checkpoint.json").exists()
    assert not (tmp_path / "model/model.pth").exists()


def test_inference_sweep(trained, tmp_path):
    measure = ("--mode=inference", "--preset=terabyte", "--max_steps=5")
    flags = (*measure, "--batch_sizes", "1,3,64", "--dropout", "0.5", "--amp")
    shape = ("--n_users", "70", "--n_items", "9", "-f=8", "--layers", "16", "16", "8")
    code, summary = in_process(tmp_path / "a", *flags, *shape, recipe=ncf)
    assert code == 0
    for size in (1, 3, 64):
        mean = summary[f"batch_{size}_mean_latency"]
        assert 0 < mean < 1, "seconds"
        assert summary[f"batch_{size}_mean_throughput"] == pytest.approx(size / mean)
        percentiles = [summary[f"batch_{size}_p{p}_latency"] for p in (90, 95, 99)]
        assert percentiles == sorted(percentiles)
    parameters = lines(tmp_path / "a/log.json")[0]["data"]
    assert parameters["amp"] and parameters["n_users"] == 70
    load = (*measure, "--batch_sizes=2", "--opt_level=O0")
    load += (f"--load_checkpoint_path={trained[0]}/best",)
    code, summary = in_process(tmp_path / "b", *load, recipe=ncf)
    assert code == 0 and set(summary) > {"batch_2_p99_latency"}
    code, _ = in_process(tmp_path / "c", *load, "--n_users=3", recipe=ncf)
    assert code == entry.USER_ERROR


def feature_spec():
    """Returns the recipe's template; cardinalities and the list's length are of `tastes`."""
    features = (["user", "item"], ["label"])
    return {
        "feature_spec": {
            "user": {"dtype": "torch.int64", "cardinality": 60},
            "item": {"dtype": "torch.int64", "cardinality": 40},
            "label": {"dtype": "torch.float32"},
        },
        "metadata": {"test_samples_per_series": 13},
        "source_spec": {
            split: [
                {"type": "torch_tensor", "features": names, "files": [f"{split}_data_{i}.pt"]}
                for i, names in enumerate(features)
            ]
            for split in ("train", "test")
        },
        "channel_spec": {"user_ch": ["user"], "item_ch": ["item"], "label_ch": ["label"]},
    }


def write_tensors(torch, folder, rows):
    """Writes the data set of split binaries `rows` as the original stores it."""
    folder.mkdir()
    for split in ("train", "test"):
        ids = [np.fromfile(rows / f"{split}/{name}_0.bin", np.int32) for name in ("user", "item")]
        ids = np.stack(ids, axis=1).astype(np.int64)
        labels = np.ones((len(ids), 1), np.float32)
        if split == "test":
            labels[:, 0] = np.fromfile(rows / "test/label_0.bin", np.uint8)
        torch.save(torch.from_numpy(ids), folder / f"{split}_data_0.pt")
        torch.save(torch.from_numpy(labels), folder / f"{split}_data_1.pt")
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(feature_spec()))


def test_several_tensor_files(torch, tmp_path):
    """Files one after the other, of booleans too, by slice and by number."""
    for name, values in {"a": [[1, 0]], "b": [[0, 1], [1, 1]]}.items():
        torch.save(torch.tensor(values, dtype=torch.bool), tmp_path / f"{name}.pt")
    chunk = {"type": "torch_tensor", "features": ["x", "y"], "files": ["a.pt", "b.pt"]}
    content = {
        "feature_spec": {"x": {"dtype": "bool"}, "y": {"dtype": "bool"}},
        "source_spec": {"train": [chunk]},
        "channel_spec": {"label": ["x", "y"]},
    }
    spec = FeatureSpec.from_dict(content, tmp_path)
    stored = TensorChunk(spec, "train", spec.source_spec["train"][0])
    assert stored.num_samples == 3 and stored.dtype == np.uint8
    assert stored.read(range(2)).tolist() == [[1, 0], [0, 1]]
    assert stored.read(Scattered.from_batch(np.array([2, 0]))).tolist() == [[1, 1], [1, 0]]
    assert stored.locate(2) == ("b.pt", 1)


def test_tensor_files(torch, rows, trained, tmp_path, capsys):
    """Weights trained on tensors and on split binaries of the same samples are equal."""
    write_tensors(torch, tmp_path / "data", rows)
    run(tmp_path / "data", tmp_path / "run", *SHORT, f"--checkpoint_dir={tmp_path / 'model'}")
    check_same_arrays(trained[0], tmp_path / "model")
    assert describe.main([str(tmp_path / "data")]) == 0
    report = capsys.readouterr().out
    assert "ids in use" in report and "complete: every file is there" in report


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("train_data_0.pt", np.full((480, 2), 40), "feature 'item': found 40 in row 0"),
        ("train_data_0.pt", np.zeros((480, 3), int), r"expected a tensor \[rows, 2\], got"),
        ("train_data_0.pt", np.zeros((480, 2)), "of integers for ids .user, item.*float64"),
        ("test_data_1.pt", np.full((780, 1), 0.5, "f4"), "feature 'label': found 0.5 in row 0"),
        (
            "test_data_1.pt",
            np.zeros((779, 1), "f4"),
            "has 780 rows and feature 'label' has 779",
        ),
    ],
)
def test_invalid_tensor_files(torch, file, values, message, rows, tmp_path, capsys):
    write_tensors(torch, tmp_path / "data", rows)
    torch.save(torch.from_numpy(values), tmp_path / "data" / file)
    run(tmp_path / "data", tmp_path / "run", *TINY, code=entry.USER_ERROR)
    assert re.search(message, error := capsys.readouterr().err), error
