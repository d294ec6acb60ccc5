"""--early_stopping by log loss on two ranks: they stop at the same step; one rank resumes it."""

import os

import pytest
import yaml

from tests.ranks.test_entry_scripts import SMALL, summary

# Learns the training rows by heart.
FAST = {"adagrad": "adam", "0.05": "0.02"}
FLAGS = (
    *(FAST.get(flag, flag) for flag in SMALL),
    *("--early_stopping", "2", "--evals_per_epoch", "2", "--resume", "auto"),
    *("--cpu", "--epochs", "20", "--metric", "log_loss"),
)


def without_validation(rows, folder):
    """A copy of a data set whose feature spec does not name the validation split."""
    folder.mkdir()
    for part in ("train", "test"):
        (folder / part).symlink_to(rows / part)
    content = yaml.safe_load((rows / "feature_spec.yaml").read_text())
    del content["source_spec"]["validation"]
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("has_split", [True, False])
def test_step_of_two_ranks(has_split, rows, run_recipes, tmp_path):
    """Without a validation split the last 530 of 5,300 training samples are held out."""
    if not has_split:
        rows = without_validation(rows, tmp_path / "rows")

    def command(name, *flags):
        where = ("--save_checkpoint_path", tmp_path / name, "--run_dir", tmp_path / f"{name}.run")
        return ("dlrm.py", "--dataset_path", rows, *FLAGS, *where, *flags)

    run_recipes(1, {"one": command("one")})
    stopped = summary(tmp_path / "one.run")
    assert stopped["steps"] < (180 if has_split else 160)
    cut = ("--max_steps", stopped["best_log_loss_step"])
    run_recipes(2, {"two": command("two"), "cut": command("cut", *cut)})
    run_recipes(1, {"cut": command("cut", "--max_steps", "-1")})
    for name in ("two", "cut"):
        result = summary(tmp_path / f"{name}.run")
        assert result["steps"] == stopped["steps"], name
        assert result["best_log_loss_step"] == stopped["best_log_loss_step"], name
        link = os.readlink(tmp_path / name / "best")
        assert link.endswith(f"-step-{stopped['best_log_loss_step']}"), name
