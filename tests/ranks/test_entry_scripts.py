"""`dlrm.py` on several ranks: N ranks equal one, and an error is printed once."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.tables import arrays_of

NUM_RANKS = [2, pytest.param(3, marks=pytest.mark.long)]
BINS = ("--auc_thresholds", "500")
SLICES = ("--column_slice_threshold", "5000", "--row_slice_threshold", "12000")
# Device memory of a rank that holds half of the bytes of the tables, but not the largest table.
TIGHT = ("--plan_device_memory_gb", "0.00014")
SMALL = (
    *("--embedding_dim", "16", "--bottom_mlp_dims", "32,16", "--top_mlp_dims", "32,1"),
    "--preset=terabyte",
    *("--batch_size", "600", "--valid_batch_size", "600", "--warmup_steps", "0"),
    *("--decay_steps", "0", "--seed", "1", "--optimizer", "adagrad", "--learning_rate", "0.05"),
    *("--print_freq", "5"),
)


def lines(run_dir):
    """The DLLL lines' steps and data."""
    entries = []
    for line in (Path(run_dir) / "log.json").read_text().splitlines():
        entry = json.loads(line.removeprefix("DLLL "))
        if entry.get("type") == "LOG":
            entries.append((entry["step"], entry["data"]))
    return entries


def summary(run_dir):
    return lines(run_dir)[-1][1]


@pytest.fixture(scope="module")
def one_rank(rows, run_recipes, tmp_path_factory):
    """The folder of one process: `model`, and of each mode its log and predictions."""
    folder = tmp_path_factory.mktemp("one")
    commands = {"train": training(rows, folder)} | modes(rows, folder, folder)
    del commands["inference"]
    run_recipes(1, commands)
    return folder


def training(rows, folder, *flags):
    """The command line of a training, which logs to folder/train."""
    where = ("--save_checkpoint_path", folder / "model", "--run_dir", folder / "train")
    return ("dlrm.py", "--dataset_path", rows, *SMALL, *where, *flags)


def modes(rows, model_folder, folder):
    """Command lines of all modes but training; each logs to, and predicts in, folder/<its name>."""
    unlabelled = folder / "unlabelled"
    shutil.copytree(rows, unlabelled)
    for file in (unlabelled / "test").glob("label*"):
        file.unlink()
    flags = {
        "exact": ("--mode", "eval", "--dataset_path", rows),
        "bins": ("--mode", "eval", "--dataset_path", rows, *BINS),
        "importance": ("--mode", "importance", "--dataset_path", rows, "--importance_repeats", "2"),
        "predict": ("--mode", "predict", "--dataset_path", unlabelled, "--predictions_path"),
        "inference": ("--mode", "inference", "--dataset_path", rows, "--warmup_batches", "1"),
    }
    flags["predict"] += (folder / "scores.csv", *SLICES, "--predictions_keep", "cat_0")
    flags["inference"] += ("--max_steps", "5")
    flags["importance"] += ("--seed", "5", *SLICES)
    common = ("dlrm.py", "--restore_checkpoint_path", model_folder / "model")
    common += ("--valid_batch_size", "600")
    return {
        name: (*common, *more, "--run_dir", folder / name, "--cpu") for name, more in flags.items()
    }


# What is wrong with a command line on 2 ranks: flags, exit code, message.
MISTAKES = {
    "batch": (
        ("--valid_batch_size", "1"),
        2,
        "batch_size 1 .* each of 2 ranks",
    ),
    "unwritable": (
        ("--save_checkpoint_path", "/dev/null/x"),
        2,
        "save_checkpoint_path .* cannot be written",
    ),
    "no checkpoint": (
        ("--restore_checkpoint_path", "nowhere"),
        2,
        "nowhere: the folder does not exist",
    ),
    "rank": (
        ("--profiler_start_step", "0", "--profiled_rank", "5"),
        2,
        "--profiled_rank 5 does not",
    ),
    "different flags": (
        ("--learning_rate", "{rank}"),
        2,
        "--learning_rate is 0.0 on rank 0, 1.0 on rank 1",
    ),
    "diverged": (
        ("--learning_rate", "1e30"),
        3,
        "training diverged: .* no checkpoint was saved",
    ),
}


@pytest.fixture(scope="module")
def runs(request, rows, one_rank, run_recipes, tmp_path_factory):
    """(folder of the logs, `RecipesRun`) of trainings, one in slices, and all modes on
    `request.param` ranks; on 2 of them of the mistakes, too."""
    folder = tmp_path_factory.mktemp("many")
    commands = {"sliced": training(rows, folder / "sliced", *SLICES)}
    commands |= modes(rows, one_rank, folder)
    if request.param == 2:
        commands["train"] = training(rows, folder)
        commands["fitted"] = training(rows, folder / "fitted", *TIGHT)
        train = ("dlrm.py", "--dataset_path", rows, *SMALL, "--run_dir", folder / "mistake")
        commands |= {name: (*train, *flags) for name, (flags, _, _) in MISTAKES.items()}
    return folder, run_recipes(request.param, commands, check=False)


def same_losses(one, many):
    first = [(step, data["loss"]) for step, data in lines(one) if "loss" in data]
    second = [(step, data["loss"]) for step, data in lines(many) if "loss" in data]
    assert len(first) >= 2
    assert [step for step, _ in first] == [step for step, _ in second]
    np.testing.assert_allclose([loss for _, loss in first], [loss for _, loss in second], rtol=1e-4)


def check_same_training(one, many, output):
    """Compares losses, metrics and all weights of two folders; `output` is of all ranks."""
    same_losses(one / "train", many / "train")
    assert summary(many / "train")["auc"] == pytest.approx(summary(one / "train")["auc"], abs=1e-4)
    assert output.count("last (validation)") == 1, "one rank speaks"
    expected, actual = arrays_of(one / "model"), arrays_of(many / "model")
    assert expected.keys() == actual.keys() and "sparse.accumulator/cat_0" in actual
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("runs", [2], indirect=True)
def test_training(one_rank, runs):
    folder, run = runs
    assert set(run.codes["train"]) == {0}, run.outputs["train"]
    check_same_training(one_rank, folder, "".join(run.outputs["train"]))


@pytest.mark.parametrize("runs", NUM_RANKS, indirect=True)
def test_training_of_slices(one_rank, runs):
    folder, run = runs
    assert set(run.codes["sliced"]) == {0}, run.outputs["sliced"]
    check_same_training(one_rank, folder / "sliced", "".join(run.outputs["sliced"]))


@pytest.mark.parametrize("runs", [2], indirect=True)
def test_training_with_tables_cut_to_fit_memory(one_rank, runs):
    folder, run = runs
    assert set(run.codes["fitted"]) == {0}, run.outputs["fitted"]
    output = "".join(run.outputs["fitted"])
    assert re.search(r"\(--plan_device_memory_gb\), .* \(of 5 tables \d in column slices\)", output)
    check_same_training(one_rank, folder / "fitted", output)


def test_training_by_mpi(rows, one_rank, run_ranks, tmp_path):
    program, *flags = training(rows, tmp_path, "--model_parallel_input")
    run = run_ranks(2, program, *flags, launcher="mpi")
    check_same_training(one_rank, tmp_path, run.output)


@pytest.mark.parametrize("runs", NUM_RANKS, indirect=True)
@pytest.mark.parametrize("metrics", ["exact", "bins"])
def test_evaluation(one_rank, runs, metrics):
    folder, run = runs
    assert set(run.codes[metrics]) == {0}, run.outputs[metrics]
    one, many = summary(one_rank / metrics), summary(folder / metrics)
    assert many["auc"] == pytest.approx(one["auc"], abs=1e-6)
    assert many["log_loss"] == pytest.approx(one["log_loss"], abs=1e-6)
    assert (folder / metrics / "roc.png").exists()


@pytest.mark.parametrize("runs", NUM_RANKS, indirect=True)
def test_importance(one_rank, runs):
    folder, run = runs
    assert set(run.codes["importance"]) == {0}, run.outputs["importance"]
    one, many = (
        {row.pop("feature"): row for row in json.loads(file.read_text())}
        for file in (place / "importance/importance.json" for place in (one_rank, folder))
    )
    assert len(one) == 18
    assert {feature: pytest.approx(row, abs=1e-6) for feature, row in one.items()} == many


@pytest.mark.parametrize("runs", NUM_RANKS, indirect=True)
def test_order_of_predictions(one_rank, runs):
    """Labels are not there: 1,001 rows in batches that do not divide."""
    folder, run = runs
    assert set(run.codes["predict"]) == {0}, run.outputs["predict"]
    one, many = (
        np.loadtxt(place / "scores.csv", delimiter=",", skiprows=1) for place in (one_rank, folder)
    )
    assert many[:, 0].tolist() == list(range(1001))
    np.testing.assert_array_equal(many[:, 1], one[:, 1], "the ids of cat_0")
    np.testing.assert_allclose(many[:, 2], one[:, 2], atol=1e-6)


@pytest.mark.parametrize("runs", NUM_RANKS, indirect=True)
def test_inference(runs):
    folder, run = runs
    assert set(run.codes["inference"]) == {0}, run.outputs["inference"]
    result = summary(folder / "inference")
    assert result["throughput"] > 0 and result["auc"] > 0.5


@pytest.mark.parametrize("runs", [2], indirect=True)
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(runs, name):
    _, code, message = MISTAKES[name]
    _, run = runs
    assert run.codes[name] == [code, code]
    errors = [line for text in run.outputs[name] for line in text.splitlines() if "dlrm: " in line]
    assert len(errors) == 1, run.outputs[name]
    assert re.search(message, errors[0]), errors
    if name == "diverged":  # the last one
        assert f"exit with status code {code}" in run.output


def test_invalid_row_on_one_rank(rows, run_ranks, tmp_path):
    """Rank 1 meets an id that its table does not have; rank 0 does not wait forever."""
    folder = tmp_path / "rows"
    shutil.copytree(rows, folder)
    spec = (folder / "feature_spec.yaml").read_text()
    file = next(f for f in sorted((folder / "train").iterdir()) if "cat_2" in f.name)
    ids = np.fromfile(file, np.uint8)
    assert ids.size == 5300, spec
    ids[-1] = 77  # of 50 rows; the last row is rank 1's
    ids.tofile(file)
    flags = (*SMALL, "--noshuffle")
    run = run_ranks(2, "dlrm.py", "--dataset_path", folder, *flags, check=False)
    assert run.returncode != 0
    assert "77" in run.output and "cat_2" in run.output


def test_own_initial_weights(rows, run_recipes, tmp_path):
    """Ranks whose models differ at first train the weights of rank 0, which the checkpoint has."""
    recipe = ("main.py", "--model", "tests.ranks.own_recipe:OWN", "--dataset_path", rows, *SMALL)
    saved = tmp_path / "model"
    places = ("--run_dir", tmp_path / "train", "--save_checkpoint_path", saved)
    run_recipes(2, {"train": (*recipe, *places)})
    places = ("--run_dir", tmp_path / "eval", "--restore_checkpoint_path", saved)
    run_recipes(1, {"eval": (*recipe, *places, "--mode=eval", "--eval_mapping=validation")})
    expected = summary(tmp_path / "train")["log_loss"]
    assert summary(tmp_path / "eval")["log_loss"] == pytest.approx(expected, rel=1e-6)
