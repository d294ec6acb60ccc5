"""--early_stopping in the real recipes, on tiny data."""

import os
import re

import pytest

import dcnv2
import dlrm
import ncf
import sim
from runtime import checkpoint
from runtime.logs import plots
from tests import sequence_data, tastes
from tests.recipes.test_entry_scripts import TINY, in_process, lines
from tests.tables import check_same_arrays

# Learns 1,000 rows by heart, so that the AUC of other rows rises and then falls.
OVERFITS = (
    *("--optimizer=adam", "--learning_rate=0.03", "--decay_steps=0", "--epochs=30"),
    *("--evals_per_epoch=2", "--early_stopping=3"),
)
CONSTANT = ("--evals_per_epoch=2", "--early_stopping=2", "--epochs=9")
RANKING = (*(flag for flag in TINY if "learning_rate" not in flag), "--learning_rate=0")
SEQUENCE = (
    "--preset=terabyte",
    *("--global_batch_size=64", "--embedding_dim=4", "--stage_two_mlp_dims=8,4", "--lr=0"),
    *("--model_type=din", "--seed=1", "--affinity=disabled"),
)
COLLABORATIVE = (
    "--preset=terabyte",
    *("-b=240", "--valid_batch_size=300", "-f=8", "--layers=16,8", "-l=0", "-k=3"),
)


def values_of(run_dir, name):
    """(step, metric) of each evaluation that the log has."""
    entries = [x for x in lines(run_dir / "log.json") if x["type"] == "LOG" and x["step"]]
    return [(x["step"][-1], x["data"][name]) for x in entries if name in x["data"]]


def aucs(run_dir):
    return values_of(run_dir, "auc")


@pytest.fixture(scope="module")
def drawn():
    """Content of the pictures of the training of `stopped`, by their kind."""
    return {}


@pytest.fixture(scope="module")
def stopped(tiny, tmp_path_factory, drawn):
    """(folder, summary, flags) of a training that overfits."""
    folder = tmp_path_factory.mktemp("stopped")
    flags = [f"--dataset_path={tiny}", *TINY, *OVERFITS, f"--save_checkpoint_path={folder / 'm'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw", lambda kind, path, **content: drawn.update({kind: content}))
        code, summary = in_process(folder / "run", *flags)
    assert code == 0
    return folder, summary, flags[:-1]


def test_pictures_of_the_kept_weights(stopped, drawn):
    _, summary, _ = stopped
    step = summary["best_auc_step"]
    assert drawn["learning_curve"]["best_step"] == drawn["evaluation"]["step"] == step
    assert drawn["evaluation"]["curves"]["auc"] == summary["best_auc"] != summary["auc"]


def test_patience(tiny, stopped, tmp_path, capsys):
    folder, summary, _ = stopped
    values = aucs(folder / "run")
    best = max(range(len(values)), key=lambda i: values[i][1])
    assert len(values) == best + 1 + 3, "the third evaluation after the best one ends the training"
    assert summary["steps"] == values[-1][0] < 120
    assert (summary["best_auc_step"], summary["best_auc"]) == values[best]
    link = folder / "m/best"
    assert os.readlink(link).endswith(f"-step-{summary['best_auc_step']}")
    flags = (f"--dataset_path={tiny}", "--mode=eval", "--eval_mapping=validation")
    _, tested = in_process(tmp_path, *flags, f"--restore_checkpoint_path={link}")
    assert tested["auc"] == pytest.approx(summary["best_auc"], abs=1e-9)
    output = capsys.readouterr().out
    assert re.search(r"\nmetric +validation\nauc ", output), "values of the training are equal"
    assert " seed " not in output


@pytest.mark.long
def test_resumed_patience(stopped, tmp_path, capsys):
    folder, summary, flags = stopped
    saved = (f"--save_checkpoint_path={tmp_path / 'm'}", "--resume=auto")
    cut = summary["steps"] - 2  # after the second of three evaluations
    in_process(tmp_path / "run", *flags, *saved, f"--max_steps={cut}")
    capsys.readouterr()
    _, resumed = in_process(tmp_path / "run", *saved, "--max_steps=-1")
    output = capsys.readouterr().out
    assert resumed["steps"] == summary["steps"]
    best = (tmp_path / "m/best").resolve()
    assert "3 evaluations in a row without a higher auc" in output
    assert f"at step {summary['best_auc_step']}: checkpoint {best}" in output
    check_same_arrays(folder / "m", tmp_path / "m")
    again = in_process(tmp_path / "run", *saved)[1]
    assert again["steps"] == summary["steps"], "nothing is left to do"
    more = in_process(tmp_path / "run", *saved, "--early_stopping=4")[1]
    assert more["steps"] > summary["steps"]


def test_metric_of_the_patience(tiny, tmp_path, capsys):
    """The log loss decides; an AUC above the threshold ends the training, resumed or not."""
    flags = [f"--dataset_path={tiny}", *TINY, *OVERFITS, "--metric=log_loss"]
    flags += [f"--save_checkpoint_path={tmp_path / 'm'}"]
    code, summary = in_process(tmp_path / "run", *flags)
    assert code == 0 and "best_auc" not in summary
    output, values = capsys.readouterr().out, values_of(tmp_path / "run", "log_loss")
    best = min(range(len(values)), key=lambda i: values[i][1])
    assert len(values) == best + 1 + 3
    assert (summary["best_log_loss_step"], summary["best_log_loss"]) == values[best]
    assert "3 evaluations in a row without a lower log_loss" in output
    assert os.readlink(tmp_path / "m/best").endswith(f"-step-{values[best][0]}")
    second = max(auc for _, auc in aucs(tmp_path / "run")[:2])
    resume = (f"--save_checkpoint_path={tmp_path / 'm'}", f"--auc_threshold={second}")
    _, again = in_process(tmp_path / "run", *resume, "--resume=auto", "--early_stopping=9")
    assert again["steps"] == summary["steps"], "the threshold was reached in the first part"
    assert f"--auc_threshold {second} is reached: best_auc " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "metric", "message"),
    [
        (dlrm, "accuracy", "one of auc, log_loss, normalized_entropy, pr_auc, got 'accuracy'"),
        (dlrm, "gauc", "got 'gauc'; metrics of groups need --group_column"),
        (ncf, "auc", "one of hr@3, ndcg@3, log_loss, got 'auc'"),
    ],
)
def test_unknown_metric(recipe, metric, message, tiny, tmp_path, capsys):
    data, flags = tiny, RANKING
    if recipe is ncf:
        data, flags = tmp_path / "rows", COLLABORATIVE
        tastes.write(data)
    flags = (*flags, f"--dataset_path={data}", f"--metric={metric}")
    assert in_process(tmp_path / "run", *flags, recipe=recipe)[0] == 2
    error = capsys.readouterr().err
    assert message in error and error.strip().count("\n") == 0, error


@pytest.mark.quick("ncf", "dcnv2")
@pytest.mark.parametrize("recipe", [dlrm, dcnv2, sim, ncf], ids=lambda recipe: recipe.__name__)
def test_stop_of_every_recipe(recipe, tiny, tmp_path, capsys):
    """A model that does not learn: the first evaluation is the best one."""
    data, flags = tiny, RANKING
    if recipe is sim:
        data, flags = tmp_path / "rows", SEQUENCE
        sequence_data.write(data, 300)
    elif recipe is ncf:
        data, flags = tmp_path / "rows", COLLABORATIVE
        tastes.write(data)
    saved = () if recipe is dcnv2 else (f"--save_checkpoint_path={tmp_path / 'model'}",)
    code, summary = in_process(
        tmp_path / "run", f"--dataset_path={data}", *flags, *CONSTANT, *saved, recipe=recipe
    )
    assert code == 0
    goal = "hr@3" if recipe is ncf else "auc"
    (step,) = (value for name, value in summary.items() if name.endswith("_step"))
    epoch = 2 * step  # two evaluations in an epoch, the first at its half, rounded up
    assert summary["steps"] in (epoch + step, epoch + step - 1)
    output = capsys.readouterr().out
    assert f"2 evaluations in a row without a higher {goal}" in output
    if saved:
        assert checkpoint.Folder(tmp_path / "model").best_of_step(step) is not None
        return
    assert f"at step {step}: no checkpoint without --save_checkpoint_path" in output
    flags = (*flags, *CONSTANT, f"--save_checkpoint_path={tmp_path / 'model'}", "--nokeep_best")
    flags += (f"--dataset_path={data}", f"--max_steps={summary['steps']}")
    assert in_process(tmp_path / "run", *flags, recipe=recipe)[0] == 0
    assert not (tmp_path / "model/best").exists()
    output = capsys.readouterr().out
    assert "its checkpoint was not kept (--keep_best)" in output
    assert "early stopping at" not in output, "no step was left"
