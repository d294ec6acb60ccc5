"""Trials in Optuna's storage: what counts, what is pruned, what another run continues."""

import math

import pytest

from recipes.recipe import Goal
from recipes.search.space import Parameter
from recipes.search.study import Study

pytest.importorskip("optuna", reason="needs the package optuna, which is optional")
SPACE = [Parameter("rate", "log", (1e-3, 1.0)), Parameter("width", "choice", ("8", "16"))]


def study(tmp_path, metric="auc", **description):
    description = {"recipe": "dlrm", "metric": metric, **description}
    return Study(
        "clicks", tmp_path / "study.db", SPACE, description, Goal(metric), {"metric": "auc"}
    )


def end(study, *metrics):
    trial = study.start_trial()
    for metric in metrics:
        trial.evaluated(metric)
    study.complete(trial, f"--rate={trial.number}")
    return trial


def test_counted_trials(tmp_path):
    """The best metric of the evaluations counts; failed and interrupted trials do not."""
    first = study(tmp_path)
    first.start_from({"rate": 0.5, "width": "16"})
    start = end(first, math.nan, 0.7, 0.6)
    assert start.values == {"rate": 0.5, "width": "16"} and str(start) == "rate 0.5  width 16"
    assert start.best == 0.7 and start.num_evaluations == 3
    first.prune(first.start_trial())
    first.fail(first.start_trial())
    end(first, 0.65)
    first.start_trial()  # interrupted
    assert first.num_done == 3 and first.best() == (0, 0.7)
    assert first.flags_of_best() == "--rate=0"
    again = study(tmp_path)
    assert again.fail_interrupted() == 1 and again.fail_interrupted() == 0
    again.start_from({"rate": 0.5, "width": "16"})
    assert again.num_done == 3 and again.best() == (0, 0.7)
    assert end(again, 0.9).number == 5, "the start is of new studies"
    assert again.best() == (5, 0.9) and again.flags_of_best() == "--rate=5"


def test_lower_metric(tmp_path):
    """The lowest log loss is the best, and a higher one is pruned."""
    pruned = study(tmp_path, "log_loss")
    for _ in range(5):
        assert end(pruned, 0.6, 0.5, 0.7).best == 0.5
    assert pruned.best() == (0, 0.5)
    good, bad = pruned.start_trial(), pruned.start_trial()
    assert good.evaluated(0.55) and not bad.evaluated(0.65)
    pruned.complete(good, "")
    assert end(pruned, 0.4).number == 7 and pruned.best() == (7, 0.4)


def test_pruning(tmp_path):
    """After 5 trials, one below the median of their evaluations is stopped."""
    pruned = study(tmp_path)
    for _ in range(5):
        end(pruned, 0.6, 0.7)
    good, bad = pruned.start_trial(), pruned.start_trial()
    assert good.evaluated(0.65) and not bad.evaluated(0.55)
    pruned.prune(bad)
    pruned.complete(good, "")
    assert pruned.num_done == 7


def test_other_search_of_the_name(tmp_path):
    study(tmp_path, flags=["--epochs=1"])
    with pytest.raises(ValueError, match="other flags: .*--epochs=1.*; repeat that one, or"):
        study(tmp_path, flags=["--epochs=2"])
    with pytest.raises(ValueError, match="other metric: auc; repeat that one, or"):
        study(tmp_path, "log_loss", flags=["--epochs=1"])


def test_study_of_an_earlier_version(tmp_path):
    """It does not state its metric, the AUC."""
    first = study(tmp_path)
    first._study.set_user_attr("search", {"recipe": "dlrm"})
    study(tmp_path)
    with pytest.raises(ValueError, match="other metric: auc; repeat that one, or"):
        study(tmp_path, "log_loss")


def test_storage_that_is_no_database(tmp_path):
    (tmp_path / "study.db").write_text("text" * 999)
    with pytest.raises(ValueError, match="study.db: cannot be used: "):
        study(tmp_path)
