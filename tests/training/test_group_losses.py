"""Trainings with `--loss listwise` and `pairwise`: order of the rows, resume, errors."""

import re

import pytest

from runtime.cli import USER_ERROR
from tests.recipes.test_entry_scripts import TINY, in_process, lines
from tests.tables import check_same_arrays

GROUPS = ("--group_column=cat_1", "--epochs=2", "--optimizer=adam")


@pytest.mark.quick("pairwise")
@pytest.mark.parametrize("loss", ["listwise", "pairwise"])
def test_resumed_training(tiny, tmp_path, capsys, loss):
    """A training that is cut within an epoch has the weights of one that is not."""
    flags = (f"--dataset_path={tiny}", *TINY, *GROUPS, f"--loss={loss}")
    code, summary = in_process(tmp_path / "a", *flags, f"--save_checkpoint_path={tmp_path / 'one'}")
    assert code == 0 and summary["steps"] == 8
    assert 0 < summary["ndcg@5"] <= summary["best_ndcg@5"] < 1
    assert "not probabilities" in capsys.readouterr().out
    save = f"--save_checkpoint_path={tmp_path / 'cut'}"
    assert in_process(tmp_path / "b", *flags, save, "--max_steps=3")[0] == 0
    resumed = (f"--dataset_path={tiny}", f"--resume={tmp_path / 'cut'}", "--max_steps=-1")
    assert in_process(tmp_path / "b", *resumed)[1]["steps"] == 8
    check_same_arrays(tmp_path / "one", tmp_path / "cut")


def test_best_by_a_metric_of_groups(tiny, tmp_path, capsys):
    """The log loss is trained, and the evaluations are compared by NDCG."""
    flags = (f"--dataset_path={tiny}", *TINY, *GROUPS, "--metric=ndcg@5", "--keep_best")
    save = f"--save_checkpoint_path={tmp_path / 'model'}"
    _, summary = in_process(tmp_path, *flags, save)
    evaluated = [line["data"] for line in lines(tmp_path / "log.json") if "data" in line]
    best = max(data["ndcg@5"] for data in evaluated if "ndcg@5" in data)
    assert summary["best_ndcg@5"] == best and "best validation ndcg@5" in capsys.readouterr().out
    flags = (f"--dataset_path={tiny}", *TINY, *GROUPS, "--metric=ndcg@3")
    assert in_process(tmp_path, *flags)[0] == USER_ERROR
    assert "one of auc, log_loss, " in " ".join(capsys.readouterr().err.split())


def test_without_evaluations(tiny, tmp_path):
    flags = (f"--dataset_path={tiny}", *TINY, *GROUPS, "--loss=listwise", "--evals_per_epoch=0")
    assert in_process(tmp_path, *flags)[1]["steps"] == 8


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--loss=listwise",), "--loss listwise orders .* with --group_column"),
        (
            ("--loss=pairwise", "--group_column=cat_0", "--dataset_type=synthetic"),
            "--loss pairwise .* expected a stored data set, got --dataset_type synthetic",
        ),
        (
            ("--loss=pairwise", "--group_column=cat_0", "--nodata_parallel_input"),
            "--group_column needs the ids of each sample on its rank",
        ),
        (("--loss=hinge",), "--training_loss=hinge: .*log_loss|listwise|pairwise"),
    ],
)
def test_errors(tiny, tmp_path, capsys, flags, message):
    code, _ = in_process(tmp_path, f"--dataset_path={tiny}", *TINY, *flags)
    assert code == USER_ERROR
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
