"""Trainings with all optional parts of DLRM and DCNv2: resumed, restored, exported."""

import shutil

import numpy as np
import pytest

import main as entry
from config.checkpoint_flags import model_flags, shape_flags
from runtime import checkpoint
from runtime.checkpoint import __main__ as checkpoint_tool
from tests import raw_shop
from tests.deployment.trained import BOTTOM, DLRM, write_clicks
from tests.recipes.test_entry_scripts import in_process
from tests.tables import arrays_of, check_same_arrays

FLAGS = (*DLRM, BOTTOM, *raw_shop.PARTS, "--evals_per_epoch=1", "--epochs=2")
EDGES = "dense/numerical_embedding.edges"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A data set with an encoder: 480 rows to train on, 120 for validation."""
    folder = tmp_path_factory.mktemp("shop")
    source = raw_shop.write_csv(folder / "days.csv", raw_shop.orders(600, seed=0))
    return raw_shop.encode(source, folder / "data", *raw_shop.ENCODING)


@pytest.fixture(scope="module")
def trained(shop, tmp_path_factory):
    """A training of 4 steps; its folder, and its summary."""
    folder = tmp_path_factory.mktemp("trained")
    flags = (f"--dataset_path={shop}", *FLAGS, f"--save_checkpoint_path={folder / 'model'}")
    code, summary = in_process(folder / "run", *flags)
    assert code == 0
    return folder / "model", summary


def test_resumed_training(shop, trained, tmp_path):
    """Dropout leaves out the same units."""
    model = tmp_path / "model"
    flags = (f"--dataset_path={shop}", *FLAGS, f"--save_checkpoint_path={model}", "--resume=auto")
    assert in_process(tmp_path / "run", *flags, "--max_steps=1")[0] == 0
    assert in_process(tmp_path / "run", *flags, "--max_steps=-1")[0] == 0
    check_same_arrays(trained[0], model)


def test_restored_model(shop, trained, tmp_path):
    """It needs neither the flags nor the encoder."""
    model, summary = trained
    rows = shutil.copytree(shop, tmp_path / "rows")
    shutil.rmtree(rows / "encoder")
    flags = (f"--dataset_path={rows}", f"--restore_checkpoint_path={model}", "--mode=eval")
    code, evaluated = in_process(tmp_path / "run", *flags, "--eval_mapping=validation", "--cpu")
    assert code == 0
    assert evaluated["auc"] == pytest.approx(summary["auc"], abs=1e-6)


def test_training_from_a_checkpoint(trained, shop, tmp_path):
    """Its edges stay, whatever the bins of the data set."""
    flags = (f"--dataset_path={shop}", f"--restore_checkpoint_path={trained[0]}", "--epochs=1")
    save = f"--save_checkpoint_path={tmp_path / 'model'}"
    assert in_process(tmp_path / "run", *flags, save, "--cpu", "--seed=2")[0] == 0
    np.testing.assert_array_equal(
        arrays_of(tmp_path / "model")[EDGES], arrays_of(trained[0])[EDGES]
    )


@pytest.mark.parametrize("rate", ["-1", "0.3"])
def test_resuming_with_another_dropout_rate(shop, trained, tmp_path, capsys, rate):
    model = shutil.copytree(trained[0], tmp_path / "model")
    flags = (f"--dataset_path={shop}", f"--resume={model}", f"--dropout_rate={rate}")
    code, _ = in_process(tmp_path / "run", *flags)
    captured = capsys.readouterr()
    if rate == "-1":
        assert code == entry.USER_ERROR
        assert "--dropout_rate -1.0 differs from the checkpoint's 0.1" in captured.err
    else:
        assert code == 0 and "other than before: --dropout_rate 0.3" in captured.out


def test_number_of_bins(shop, trained, tmp_path):
    flags = (f"--dataset_path={shop}", *FLAGS, "--numerical_bins=4", "--max_steps=1")
    assert in_process(tmp_path / "run", *flags, f"--save_checkpoint_path={tmp_path / 'm'}")[0] == 0
    few, all_edges = arrays_of(tmp_path / "m")[EDGES], arrays_of(trained[0])[EDGES]
    assert few.shape == (len(all_edges), 5)
    np.testing.assert_array_equal(few[:, 0], all_edges[:, 0])
    np.testing.assert_array_equal(few[:, -1], all_edges[:, -1])
    stored = checkpoint.describe(checkpoint.resolve(trained[0])).description["model_flags"]
    assert stored["numerical_bins"] == all_edges.shape[1] - 1


def test_data_set_without_encoder(tmp_path, capsys):
    data = write_clicks(tmp_path)
    flags = (f"--dataset_path={data}", "--numerical_embedding=bins")
    assert in_process(tmp_path / "run", *flags)[0] == entry.USER_ERROR
    error = capsys.readouterr().err
    assert "--numerical_embedding bins: expected a data set whose encoder has bins" in error
    assert "preproc.transcode" in error


def test_data_set_without_numbers(tmp_path, capsys):
    data = write_clicks(tmp_path, num_numerical=0)
    flags = (f"--dataset_path={data}", *DLRM, *raw_shop.PARTS, "--max_steps=2")
    assert in_process(tmp_path / "run", *flags)[0] == 0
    assert "note: --numerical_embedding bins has no effect" in capsys.readouterr().out


def test_nvidia_layout(trained, tmp_path, capsys):
    arguments = ["export", str(trained[0]), "--output", str(tmp_path / "out"), "--format=nvidia"]
    assert checkpoint_tool.main(arguments) != 0
    error = capsys.readouterr().err
    assert "--numerical_embedding bins, --wide True" in error


def test_checkpoints_of_earlier_versions():
    flags = model_flags({"model_flags": {"interaction": "dot_custom"}})
    assert flags == {
        "interaction": "dot",
        "numerical_embedding": "none",
        "numerical_bins": 0,
        "wide": False,
        "variant": "nvidia",
    }
    assert model_flags({"model_flags": {"model_type": "din"}}) == {"model_type": "din"}
    assert shape_flags({"original_layout": {}}) == {"embedding_dim", "wide"}
    assert {"bottom_mlp_dims", "variant"} <= shape_flags({"original_layout": {"dense": {}}})
