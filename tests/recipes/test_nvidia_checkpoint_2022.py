"""Checkpoints in the layout of NVIDIA's DLRM of October 2022, written here with NumPy alone."""

import json

import numpy as np
import pytest

import dlrm
from dataloading.spec.feature_spec import FeatureSpec
from deployment.artifacts.table_files import blocks_of
from deployment.model.checkpoint_rows import CheckpointRows
from deployment.model.served_model import DenseModel, request_arrays, serving_spec_of
from deployment.model.trained_model import (
    evaluation_rows,
    open_checkpoint,
    restored_recipe,
    tables_of,
)
from runtime.checkpoint import __main__ as checkpoint_tool
from tests.recipes.test_entry_scripts import in_process, tiny
from tests.recipes.test_nvidia_checkpoint import read_rows
from tests.tables import arrays_of

__all__ = ["tiny"]  # a fixture
BOTTOM, TOP = (16, 8), (12, 6, 1)


def padded(width):
    return -(-width // 8) * 8


def write_2022(folder, cardinalities, num_numerical):
    """Writes random weights as that release does; returns them by name of file."""
    generator = np.random.default_rng(3)
    dim, features = BOTTOM[-1], len(cardinalities) + 1
    arrays = {f"feature_{i}": generator.normal(size=[n, dim]) for i, n in enumerate(cardinalities)}
    interactions = dim + features * (features - 1) // 2
    for mlp, dims, inputs in (
        ("bottom_mlp", BOTTOM, num_numerical),
        ("top_mlp", TOP, interactions),
    ):
        widths = (padded(inputs), *dims)
        for i, shape in enumerate(zip(widths, dims, strict=False)):
            arrays[f"{mlp}_layer_{i}_kernel"] = generator.normal(size=shape, scale=0.3)
            arrays[f"{mlp}_layer_{i}_bias"] = generator.normal(size=shape[1:])
    arrays = {name: values.astype(np.float32) for name, values in arrays.items()}
    folder.mkdir(parents=True)
    for name, values in arrays.items():
        np.save(folder / f"{name}_part0.npy", values)
    return arrays


def logits_of(arrays, numerical, ids):
    """Returns the logits [rows] of that release's formulas."""

    def mlp(name, dims, x):
        x = np.pad(x, [(0, 0), (0, padded(x.shape[1]) - x.shape[1])])
        for i in range(len(dims)):
            x = x @ arrays[f"{name}_layer_{i}_kernel"] + arrays[f"{name}_layer_{i}_bias"]
            x = np.maximum(x, 0) if name == "bottom_mlp" or i < len(dims) - 1 else x
        return x

    bottom = mlp("bottom_mlp", BOTTOM, numerical)
    vectors = [arrays[f"feature_{i}"][column] for i, column in enumerate(ids.T)]
    features = np.stack([bottom, *vectors], axis=1)
    products = features @ features.transpose(0, 2, 1)
    rows, columns = np.tril_indices(features.shape[1], -1)
    return mlp("top_mlp", TOP, np.concatenate([bottom, products[:, rows, columns]], 1))[:, 0]


@pytest.fixture
def original(tiny, tmp_path):
    """(folder, its arrays, logits of the test rows)."""
    spec = FeatureSpec.from_yaml(tiny / "feature_spec.yaml")
    folder = tmp_path / "original"
    arrays = write_2022(folder, spec.cardinalities("categorical"), len(spec.channel("numerical")))
    return folder, arrays, logits_of(arrays, *read_rows(spec, "test"))


def test_logits_of_modes(tiny, tmp_path, original):
    """Predictions are those of the formulas, without a flag for the model's shape."""
    folder, _, logits = original
    flags = [f"--dataset_path={tiny}", f"--restore_checkpoint_path={folder}"]
    path = tmp_path / "scores.npy"
    predict = ["--mode=predict", f"--predictions_path={path}", "--eval_mapping=test"]
    assert in_process(tmp_path / "predict", *flags, *predict)[0] == 0
    scores = np.load(path).astype(np.float64).ravel()
    np.testing.assert_allclose(np.log(scores / (1 - scores)), logits, rtol=1e-4, atol=1e-4)
    labels = np.fromfile(tiny / "test/label.bin", np.bool_)
    code, summary = in_process(tmp_path / "eval", *flags, "--mode=eval", "--eval_mapping=test")
    assert code == 0
    expected = np.mean(np.logaddexp(0, logits) - labels * logits)
    assert summary["test_loss"] == pytest.approx(expected, rel=1e-4)
    inference = ["--mode=inference", "--valid_batch_size=64", "--max_steps=3"]
    code, summary = in_process(tmp_path / "inference", *flags, *inference)
    assert code == 0 and summary["mean_inference_throughput"] > 0


def test_training(tiny, tmp_path, original, capsys):
    """The first step starts from all weights of the folder."""
    folder, arrays, _ = original
    flags = [f"--dataset_path={tiny}", f"--restore_checkpoint_path={folder}", "--batch_size=256"]
    flags += ["--learning_rate=1e-30", f"--save_checkpoint_path={tmp_path / 'm'}"]
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert "(NVIDIA's layout)" in capsys.readouterr().out
    saved = arrays_of(tmp_path / "m")
    for i in range(3):
        np.testing.assert_array_equal(saved[f"sparse/cat_{i}"], arrays[f"feature_{i}"])
    for name, dims in (("bottom_mlp", BOTTOM), ("top_mlp", TOP)):
        for i in range(len(dims)):
            kernel = saved[f"dense/{name}.dense_{i}.kernel"]
            np.testing.assert_array_equal(kernel, arrays[f"{name}_layer_{i}_kernel"][: len(kernel)])
            bias = saved[f"dense/{name}.dense_{i}.bias"].ravel()
            np.testing.assert_array_equal(bias, arrays[f"{name}_layer_{i}_bias"])


def test_tools(tiny, original, capsys):
    """Deployment restores all weights and reads the tables; `inspect` lists them."""
    folder, arrays, logits = original
    trained = open_checkpoint(str(folder), str(tiny))
    assert trained.recipe == "dlrm"
    recipe = restored_recipe(trained, batch_size=100)
    batches = list(evaluation_rows(trained, 100, "test").dataset())
    ours = np.concatenate([recipe.model(batch.inputs).numpy()[:, 0] for batch in batches])
    np.testing.assert_allclose(ours, logits, rtol=1e-4, atol=1e-4)
    for i, (name, rows, _) in enumerate(tables_of(trained)):
        expected = arrays[f"feature_{i}"]
        np.testing.assert_array_equal(CheckpointRows(trained, name).take(np.arange(rows)), expected)
        blocks = [block for _, block in blocks_of(trained, name)]
        np.testing.assert_array_equal(np.concatenate(blocks), expected)
    tensors = request_arrays(serving_spec_of(trained), batches[0].inputs)
    vectors = [
        arrays[f"feature_{i}"][column] for i, column in enumerate(tensors["categorical_features"].T)
    ]
    dense = DenseModel(trained)
    scores = dense.score(np.concatenate(vectors, 1), tensors["numerical_features"]).numpy()[:, 0]
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits[:100])), rtol=1e-4, atol=1e-6)
    assert checkpoint_tool.main(["inspect", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "feature_1_part0.npy  20 x 8" in printed and "top_mlp_dims [12, 6, 1]" in printed
    assert checkpoint_tool.main(["inspect", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["categorical_cardinalities"] == [10, 20, 5]


def test_half_precision_tables(tiny, original):
    folder, arrays, _ = original
    np.save(folder / "feature_1_part0.npy", arrays["feature_1"].astype(np.float16))
    rows = CheckpointRows(open_checkpoint(str(folder), str(tiny)), "cat_1").take(np.arange(20))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, arrays["feature_1"].astype(np.float16))


def saved(name, values):
    """Returns a function that replaces an array in a folder."""
    return lambda d: np.save(d / f"{name}_part0.npy", np.asarray(values))


def removed(pattern):
    return lambda d: [file.unlink() for file in d.glob(pattern)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (removed("feature_1_*"), "feature_1_part0.npy cannot be used: No such"),
        (saved("feature_1", np.zeros([21, 8], "f")), "tables of [10, 21, 5] rows"),
        (saved("feature_2", np.full([5, 8], np.nan, "f")), "feature_2_part0.npy cannot be used: "),
        (saved("feature_2", np.zeros([5, 8])), "it is float64 [5, 8], the model needs float32"),
        (saved("feature_2", np.zeros(5, "f")), "it is [5], expected 2 dim"),
        (removed("top_mlp_layer_1_bias*"), "top_mlp_layer_1_bias_part0.npy cannot be used"),
        (saved("top_mlp_layer_1_kernel", np.zeros([12, 7], "f")), "dense/top_mlp.dense_1.kernel"),
        (removed("top_mlp*"), "expected weights top_mlp_layer_*_part0.npy"),
        (lambda d: (d / "feature_0_part1.npy").touch(), "stores an array in several parts"),
    ],
)
def test_damages(tiny, tmp_path, original, damage, message, capsys):
    folder, *_ = original
    damage(folder)
    flags = [f"--dataset_path={tiny}", f"--restore_checkpoint_path={folder}", "--mode=eval"]
    assert in_process(tmp_path / "run", *flags, recipe=dlrm)[0] == 2
    assert message in capsys.readouterr().err


def test_resume(tiny, tmp_path, original, capsys):
    """A checkpoint without the state of a training is refused."""
    flags = [f"--dataset_path={tiny}", f"--resume={original[0]}"]
    assert in_process(tmp_path / "run", *flags)[0] == 2
    assert "without the state of a training" in capsys.readouterr().err
