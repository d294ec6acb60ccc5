"""`dlrm.py` on several ranks, as a user starts it."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.ranks.conftest import run_limited
from tests.tables import arrays_of

BINS = ("--auc_thresholds", "500")
SMALL = (
    *("--embedding_dim", "16", "--bottom_mlp_dims", "32,16", "--top_mlp_dims", "32,1"),
    *("--batch_size", "600", "--valid_batch_size", "600", "--warmup_steps", "0"),
    *("--decay_steps", "0", "--seed", "1", "--optimizer", "adagrad", "--learning_rate", "0.05"),
    *("--print_freq", "5", "--shuffle"),
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory, run_script):
    """5,300 training rows and 1,001 each of validation and test: the last batches are short."""
    folder = tmp_path_factory.mktemp("rows")
    command = ["-m", "dataloading.synthetic", "--output", folder, "--rows", "5300"]
    command += ["--validation_rows", "1001", "--test_rows", "1001"]
    done = run_script(*command, "--cardinalities", "1000,700,50,9,3")
    assert done.returncode == 0, done.stderr
    return folder


def lines(run_dir):
    """The DLLL lines' steps and data."""
    found = []
    for line in (Path(run_dir) / "log.json").read_text().splitlines():
        entry = json.loads(line.removeprefix("DLLL "))
        if entry.get("type") == "LOG":
            found.append((entry["step"], entry["data"]))
    return found


def summary(run_dir):
    return lines(run_dir)[-1][1]


@pytest.fixture(scope="module")
def one_rank(rows, run_script, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    flags = ("--dataset_path", rows, *SMALL, "--run_dir", folder / "run")
    done = run_script("dlrm.py", *flags, "--save_checkpoint_path", folder / "model")
    assert done.returncode == 0, done.stderr
    return folder


def same_losses(one, many):
    first = [(step, data["loss"]) for step, data in lines(one) if "loss" in data]
    second = [(step, data["loss"]) for step, data in lines(many) if "loss" in data]
    assert len(first) >= 2
    assert [step for step, _ in first] == [step for step, _ in second]
    np.testing.assert_allclose([loss for _, loss in first], [loss for _, loss in second], rtol=1e-4)


@pytest.mark.parametrize(
    ("launcher", "num_ranks", "flags"),
    [
        ("gloo", 2, ()),
        ("mpi", 2, ("--model_parallel_input",)),
        ("gloo", 3, ("--column_slice_threshold", "5000", "--row_slice_threshold", "12000")),
    ],
    ids=["gloo", "mpi, model-parallel input", "gloo, slices"],
)
def test_training_equals_one_process(
    rows, one_rank, run_ranks, tmp_path, launcher, num_ranks, flags
):
    flags = ("--dataset_path", rows, *SMALL, "--run_dir", tmp_path / "run", *flags)
    path = tmp_path / "model"
    run = run_ranks(num_ranks, "dlrm.py", *flags, "--save_checkpoint_path", path, launcher=launcher)
    same_losses(one_rank / "run", tmp_path / "run")
    one, many = summary(one_rank / "run"), summary(tmp_path / "run")
    assert many["auc"] == pytest.approx(one["auc"], abs=1e-4)
    assert run.output.count("summary") == 1, "one rank speaks"
    expected, found = arrays_of(one_rank / "model"), arrays_of(path)
    assert expected.keys() == found.keys() and "sparse.accumulator/cat_0" in found
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("num_ranks", "bins"),
    [
        pytest.param(2, BINS, id="2, bins"),
        pytest.param(3, (), id="3, exact"),
        pytest.param(2, (), id="2, exact", marks=pytest.mark.long),
        pytest.param(3, BINS, id="3, bins", marks=pytest.mark.long),
    ],
)
def test_evaluation_counts_every_row_once(
    rows, one_rank, run_ranks, run_script, tmp_path, num_ranks, bins
):
    flags = ("--mode", "eval", "--dataset_path", rows, "--valid_batch_size", "600", *bins)
    flags += ("--restore_checkpoint_path", one_rank / "model", "--run_dir")
    done = run_script("dlrm.py", *flags, tmp_path / "one")
    assert done.returncode == 0, done.stderr
    run_ranks(num_ranks, "dlrm.py", *flags, tmp_path / "many", "--cpu")
    one, many = summary(tmp_path / "one"), summary(tmp_path / "many")
    assert many["auc"] == pytest.approx(one["auc"], abs=1e-6)
    assert many["log_loss"] == pytest.approx(one["log_loss"], abs=1e-6)
    assert (tmp_path / "many/roc.png").exists()


@pytest.mark.parametrize("num_ranks", [pytest.param(2, marks=pytest.mark.long), 3])
def test_predictions_are_in_row_order(rows, one_rank, run_ranks, run_script, tmp_path, num_ranks):
    """Labels are not there: 1,001 rows in batches that do not divide."""
    unlabelled = tmp_path / "rows"
    shutil.copytree(rows, unlabelled)
    for file in (unlabelled / "test").glob("label*"):
        file.unlink()
    flags = ("--mode", "predict", "--dataset_path", unlabelled, "--valid_batch_size", "600")
    flags += ("--restore_checkpoint_path", one_rank / "model", "--run_dir", tmp_path / "run")
    done = run_script("dlrm.py", *flags, "--predictions_path", tmp_path / "one.npy")
    assert done.returncode == 0, done.stderr
    cut = ("--column_slice_threshold", "5000", "--row_slice_threshold", "12000")
    path = tmp_path / "many.csv"
    run_ranks(num_ranks, "dlrm.py", *flags, *cut, "--predictions_path", path)
    many = np.loadtxt(path, delimiter=",", skiprows=1)
    assert many[:, 0].tolist() == list(range(1001))
    np.testing.assert_allclose(many[:, 1], np.load(tmp_path / "one.npy"), atol=1e-6)


def test_inference(rows, one_rank, run_ranks, tmp_path):
    flags = ("--mode", "inference", "--dataset_path", rows, "--valid_batch_size", "500")
    flags += ("--restore_checkpoint_path", one_rank / "model", "--run_dir", tmp_path / "run")
    run_ranks(2, "dlrm.py", *flags, "--max_steps", "5", "--warmup_batches", "1")
    found = summary(tmp_path / "run")
    assert found["throughput"] > 0 and found["auc"] > 0.5


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--valid_batch_size", "601"), 2, "batch_size 601 .* not divisible by world_size 2"),
        (("--learning_rate", "1e30"), 3, "training diverged: .* no checkpoint was saved"),
        (("--save_checkpoint_path", "/dev/null/x"), 2, "save_checkpoint_path .* cannot be written"),
        (("--restore_checkpoint_path", "nowhere"), 2, "nowhere: there is no such folder"),
        (("--profiler_start_step", "0", "--profiled_rank", "5"), 2, "--profiled_rank 5 does not"),
    ],
    ids=["batch", "diverged", "unwritable", "no checkpoint", "rank"],
)
def test_an_error_is_said_once(rows, run_ranks, tmp_path, flags, code, message):
    flags = ("--dataset_path", rows, *SMALL, "--run_dir", tmp_path / "run", *flags)
    run = run_ranks(2, "dlrm.py", *flags, check=False)
    assert run.returncode != 0
    assert f"exit with status code {code}" in run.output
    said = [line for line in run.output.splitlines() if "dlrm: " in line]
    assert len(said) == 1, run.output
    assert re.search(message, said[0]), said


def test_ranks_with_different_flags(rows, run_ranks, tmp_path):
    """Each rank's shell adds its rank to a flag."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, sys, dlrm\n"
        "sys.exit(dlrm.main(sys.argv + ['--learning_rate', os.environ['HOROVOD_RANK']]))\n"
    )
    flags = ("--dataset_path", rows, *SMALL, "--run_dir", tmp_path / "run")
    run = run_ranks(2, str(script), *flags, check=False)
    assert "--learning_rate is 0.0 on rank 0, 1.0 on rank 1" in run.output
    assert run.output.count("--learning_rate is") == 1


def test_a_bad_row_on_one_rank_ends_all(rows, run_ranks, tmp_path):
    """Rank 1 meets an id that its table does not have; rank 0 does not wait for ever."""
    folder = tmp_path / "rows"
    shutil.copytree(rows, folder)
    spec = (folder / "feature_spec.yaml").read_text()
    file = next(f for f in sorted((folder / "train").iterdir()) if "cat_2" in f.name)
    ids = np.fromfile(file, np.uint8)
    assert ids.size == 5300, spec
    ids[-1] = 77  # of 50 rows; the last row is rank 1's
    ids.tofile(file)
    flags = [arg for arg in SMALL if arg != "--shuffle"]
    run = run_ranks(2, "dlrm.py", "--dataset_path", folder, *flags, timeout=120, check=False)
    assert run.returncode != 0
    assert "77" in run.output and "cat_2" in run.output


def test_real_rows(criteo_rows, run_script, run_ranks, tmp_path):
    """On the first 10,000 rows of the Criteo log, 2 ranks reach the AUC of one."""
    prepared = tmp_path / "criteo"
    done = run_script(
        *("-m", "preproc.criteo", "--input", criteo_rows, "--output", prepared),
        *("--frequency_threshold", "3", "--holdout_fraction", "0.2"),
    )
    assert done.returncode == 0, done.stderr
    flags = ("--dataset_path", prepared, *SMALL, "--run_dir")
    done = run_script("dlrm.py", *flags, tmp_path / "one")
    assert done.returncode == 0, done.stderr
    run_ranks(2, "dlrm.py", *flags, tmp_path / "two")
    one, two = summary(tmp_path / "one"), summary(tmp_path / "two")
    assert one["auc"] > 0.6
    assert two["auc"] == pytest.approx(one["auc"], abs=2e-3)


def test_one_rank_of_a_launcher_is_one_process(rows, one_rank, tmp_path):
    """horovodrun -np 1 and mpirun -np 1 train as plain python does."""
    flags = ("--dataset_path", rows, *SMALL, "--run_dir", tmp_path / "run")
    launcher = str(Path(sys.executable).parent / "horovodrun")
    command = [launcher, "--gloo", "-np", "1", sys.executable, "dlrm.py", *map(str, flags)]
    code, output = run_limited(command, {**os.environ}, 120)
    assert code == 0, output
    same_losses(one_rank / "run", tmp_path / "run")
